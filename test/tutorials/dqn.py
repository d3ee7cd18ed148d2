"""Deep Q-learning: a replay memory that is written in place, a target network that is a copy of the
trained one, updated every few steps.
"""

from __future__ import annotations

import numpy as np

from test.tutorials.common import initialize, initialize_torch, integers, normal
from tinygrad import Tensor, TinyJit, nn
from tinygrad.nn.state import get_parameters, get_state_dict, load_state_dict

STEPS, BATCH, CAPACITY, STATE, ACTIONS, GAMMA, COPY_EVERY = 8, 4, 6, 3, 2, 0.9, 3
# transitions that an agent has seen, one more at each step
STATES, NEXT = normal(STEPS + 4, STATE), normal(STEPS + 4, STATE, seed=1)
ACTION, REWARD = integers(ACTIONS, STEPS + 4), normal(STEPS + 4, seed=2)
DONE = (normal(STEPS + 4, seed=3) > 1).astype(np.float32)
SAMPLES = [integers(min(CAPACITY, step + 4), BATCH, seed=step) for step in range(STEPS)]


class Network:
    def __init__(self) -> None:
        self.l1, self.l2 = nn.Linear(STATE, 8), nn.Linear(8, ACTIONS)

    def __call__(self, x: Tensor) -> Tensor:
        return self.l2(self.l1(x).relu())


class Replay:
    """The last transitions, in memory that is written in place, oldest first."""

    def __init__(self) -> None:
        self.states, self.next = Tensor.zeros(CAPACITY, STATE), Tensor.zeros(CAPACITY, STATE)
        self.actions, self.rewards = Tensor.zeros(CAPACITY, dtype="int"), Tensor.zeros(CAPACITY)
        self.done = Tensor.zeros(CAPACITY)
        self.all = [self.states, self.next, self.actions, self.rewards, self.done]
        for x in self.all:
            x.replace(x.contiguous())
        self.position = 0

    def push(self, number: int) -> None:
        for memory, x in zip(self.all, (STATES, NEXT, ACTION, REWARD, DONE), strict=True):
            memory[self.position] = x[number].tolist()
        self.position = (self.position + 1) % CAPACITY

    def sample(self, indices: np.ndarray, devices: tuple[str, ...]) -> list[Tensor]:
        chosen = [memory[Tensor(indices)] for memory in self.all]
        return chosen if len(devices) == 1 else [x.shard(devices, axis=0) for x in chosen]


def huber(error: Tensor) -> Tensor:
    return (error.abs() < 1).where(0.5 * error.square(), error.abs() - 0.5).mean()


def train(devices: tuple[str, ...], jit: bool) -> list[float]:
    network, target = initialize(Network(), devices), initialize(Network(), devices)
    optimizer = nn.optim.Adam(get_parameters(network), lr=0.05)
    replay, numbers = Replay(), []

    def step(state: Tensor, after: Tensor, action: Tensor, reward: Tensor, done: Tensor) -> Tensor:
        value = network(state).gather(1, action.unsqueeze(1)).squeeze(1)
        with Tensor.no_grad():
            goal = reward + GAMMA * (1 - done) * target(after).max(1)
        loss = huber(value - goal)
        if not jit:
            print("loss", loss.item(), "largest value", value.max().item(), goal.tolist())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    step = TinyJit(step) if jit else step
    for number in range(4):
        replay.push(number)
    with Tensor.train():
        for number in range(STEPS):
            batch = replay.sample(SAMPLES[number], devices)
            numbers.append(step(*batch).item())
            replay.push(number + 4)
            if number % COPY_EVERY == COPY_EVERY - 1:
                load_state_dict(target, get_state_dict(network), verbose=False)
    return numbers + target.l2.bias.tolist() + replay.rewards.tolist()


def train_torch() -> list[float]:
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.l1, self.l2 = nn.Linear(STATE, 8), nn.Linear(8, ACTIONS)

        def forward(self, x):
            return self.l2(self.l1(x).relu())

    network, target = initialize_torch(Network()), initialize_torch(Network())
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    replay = [torch.zeros(CAPACITY, STATE), torch.zeros(CAPACITY, STATE)]
    replay += [torch.zeros(CAPACITY).long(), torch.zeros(CAPACITY), torch.zeros(CAPACITY)]

    def push(number):
        for memory, x in zip(replay, (STATES, NEXT, ACTION, REWARD, DONE), strict=True):
            memory[number % CAPACITY] = torch.tensor(x[number])

    numbers = []
    for number in range(4):
        push(number)
    for number in range(STEPS):
        state, after, action, reward, done = (x[torch.tensor(SAMPLES[number])] for x in replay)
        value = network(state).gather(1, action.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            goal = reward + GAMMA * (1 - done) * target(after).max(1).values
        loss = F.smooth_l1_loss(value, goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        numbers.append(loss.item())
        push(number + 4)
        if number % COPY_EVERY == COPY_EVERY - 1:
            target.load_state_dict(network.state_dict())
    return numbers + target.l2.bias.tolist() + replay[3].tolist()
