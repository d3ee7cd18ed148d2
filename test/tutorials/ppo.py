"""Proximal policy optimization: advantages are computed backwards in time, in place; the policy is
then trained for some epochs on minibatches of the collected steps, against its old probabilities.
"""

from __future__ import annotations

import numpy as np

from test.tutorials.common import initialize, initialize_torch, integers, normal
from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.state import get_parameters

ROUNDS, TIME, PLACES, STATE, ACTIONS = 2, 4, 2, 3, 3
EPOCHS, MINIBATCHES, GAMMA, LAMBDA, CLIP = 2, 2, 0.9, 0.8, 0.2
STATES, LAST = normal(ROUNDS, TIME, PLACES, STATE), normal(ROUNDS, PLACES, STATE, seed=1)
# what the environment gave, for actions that are given
ACTION = integers(ACTIONS, ROUNDS, TIME, PLACES, seed=2)
REWARD = normal(ROUNDS, TIME, PLACES, seed=3)
DONE = (normal(ROUNDS, TIME, PLACES, seed=4) > 1).astype(np.float32)
ORDER = [np.random.default_rng(i).permutation(TIME * PLACES).astype(np.int32) for i in range(9)]


class ActorCritic:
    def __init__(self) -> None:
        self.body, self.actor, self.critic = (
            nn.Linear(STATE, 8),
            nn.Linear(8, ACTIONS),
            nn.Linear(8, 1),
        )

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.body(x).tanh()
        return self.actor(hidden).log_softmax(-1), self.critic(hidden).squeeze(-1)


def advantages_of(reward: Tensor, done: Tensor, value: Tensor, last_value: Tensor) -> Tensor:
    """Generalized advantage estimation, (time, place)."""
    advantages = reward.zeros_like().contiguous()
    running = last_value.zeros_like()
    for t in reversed(range(TIME)):
        after = last_value if t == TIME - 1 else value[t + 1]
        delta = reward[t] + GAMMA * after * (1 - done[t]) - value[t]
        running = delta + GAMMA * LAMBDA * (1 - done[t]) * running
        advantages[t] = running
    return advantages


def train(devices: tuple[str, ...], jit: bool) -> list[float]:
    model = initialize(ActorCritic(), devices)
    optimizer = nn.optim.Adam(get_parameters(model), lr=0.02, eps=1e-5)

    @Tensor.no_grad()
    def collect(round_: int) -> list[Tensor]:
        """The steps of a round: state, action, log probability, advantage, return."""
        state, action = Tensor(STATES[round_]).to(devices), Tensor(ACTION[round_]).to(devices)
        reward, done = Tensor(REWARD[round_]).to(devices), Tensor(DONE[round_]).to(devices)
        probability, value = model(state)
        probability = probability.gather(2, action.unsqueeze(2)).squeeze(2)
        _, last_value = model(Tensor(LAST[round_]).to(devices))
        advantage = advantages_of(reward, done, value, last_value)
        return [state, action, probability, advantage, advantage + value]

    def step(state: Tensor, action: Tensor, old: Tensor, advantage: Tensor, goal: Tensor) -> Tensor:
        probabilities, value = model(state)
        new = probabilities.gather(1, action.unsqueeze(1)).squeeze(1)
        ratio = (new - old).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        clipped = ratio.clip(1 - CLIP, 1 + CLIP)
        policy_loss = -(ratio * advantage).minimum(clipped * advantage).mean()
        value_loss = 0.5 * (value - goal).square().mean()
        entropy = -(probabilities.exp() * probabilities).sum(-1).mean()
        if not jit:
            print("policy", policy_loss.item(), "value", value_loss.item(), entropy.item())
        loss = policy_loss + 0.5 * value_loss - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, policy_loss, value_loss, entropy

    step = TinyJit(step) if jit else step
    numbers = []
    with Tensor.train():
        for round_ in range(ROUNDS):
            flat = [x.flatten(0, 1) for x in collect(round_)]
            for epoch in range(EPOCHS):
                for indices in np.split(ORDER[epoch], MINIBATCHES):
                    batch = [x[Tensor(indices).to(devices)] for x in flat]
                    if len(devices) > 1:
                        batch = [x.shard(devices, axis=0) for x in batch]
                    numbers += [x.item() for x in step(*batch)]
    return numbers


def train_torch() -> list[float]:
    import torch
    from torch import nn

    class ActorCritic(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.actor = nn.Linear(STATE, 8), nn.Linear(8, ACTIONS)
            self.critic = nn.Linear(8, 1)

        def forward(self, x):
            hidden = self.body(x).tanh()
            return self.actor(hidden).log_softmax(-1), self.critic(hidden).squeeze(-1)

    model = initialize_torch(ActorCritic())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02, eps=1e-5)
    numbers = []
    for round_ in range(ROUNDS):
        state, action = torch.tensor(STATES[round_]), torch.tensor(ACTION[round_]).long()
        reward, done = torch.tensor(REWARD[round_]), torch.tensor(DONE[round_])
        with torch.no_grad():
            probability, value = model(state)
            probability = probability.gather(2, action.unsqueeze(2)).squeeze(2)
            _, last_value = model(torch.tensor(LAST[round_]))
            advantage, running = torch.zeros_like(reward), torch.zeros_like(last_value)
            for t in reversed(range(TIME)):
                after = last_value if t == TIME - 1 else value[t + 1]
                delta = reward[t] + GAMMA * after * (1 - done[t]) - value[t]
                running = delta + GAMMA * LAMBDA * (1 - done[t]) * running
                advantage[t] = running
        collected = [state, action, probability, advantage, advantage + value]
        flat = [x.flatten(0, 1) for x in collected]
        for epoch in range(EPOCHS):
            for indices in np.split(ORDER[epoch], MINIBATCHES):
                state, action, old, advantage, goal = (x[torch.tensor(indices)] for x in flat)
                probabilities, value = model(state)
                new = probabilities.gather(1, action.unsqueeze(1)).squeeze(1)
                ratio = (new - old).exp()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                clipped = ratio.clip(1 - CLIP, 1 + CLIP)
                policy_loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
                value_loss = 0.5 * (value - goal).square().mean()
                entropy = -(probabilities.exp() * probabilities).sum(-1).mean()
                loss = policy_loss + 0.5 * value_loss - 0.01 * entropy
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                numbers += [x.item() for x in (loss, policy_loss, value_loss, entropy)]
    return numbers
