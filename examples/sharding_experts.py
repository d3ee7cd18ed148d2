"""Expert parallelism: a mixture of experts, sharded over the devices; letters are sent to experts.

    GPUS=4 python examples/sharding_experts.py

The model predicts the next letter of this project's documentation from the last eight. A router
selects an expert for each position. Groups of texts are sharded over the devices, and so are
experts: letters are sorted into (group, expert, slot), and resharded from groups to experts and
back. Each reshard is an all-to-all, in which each of n devices sends (n - 1) / n² of the slots; the
backward pass has two more. Weights of experts and their gradients are never sent.

Settings: GPUS=4 (devices), BS=256 (letters a step in each group), STEPS=40.
"""

from pathlib import Path

from example_settings import count
from sharding_report import report
from tinygrad import Device, Tensor, TinyJit, nn
from tinygrad.engine import CommTrace
from tinygrad.nn.state import get_parameters, get_state_dict

EXPERTS = 8
GPUS = tuple(f"{Device.DEFAULT}:{i}" for i in range(count("GPUS", 4, maximum=EXPERTS)))
# each expert has at least one slot
BS, STEPS = count("BS", 256, minimum=EXPERTS // 2, maximum=4096), count("STEPS", 40)
GROUPS, SLOTS = len(GPUS), 2 * BS // EXPERTS
VOCABULARY, CONTEXT, LETTER = 128, 8, 16
WIDTH = CONTEXT * LETTER
ROOT = Path(__file__).parents[1]


class Experts:
    """x + the output of one expert: (group, letter, width) to the same.

    A letter whose expert has no free slot is passed through. The balance loss has its minimum, 1,
    if all experts are chosen equally often (Fedus et al., Switch Transformers, 2021).
    """

    def __init__(self, devices: tuple[str, ...]) -> None:
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.up = Tensor.kaiming_uniform(EXPERTS, WIDTH, 2 * WIDTH)
        self.down = Tensor.kaiming_uniform(EXPERTS, 2 * WIDTH, WIDTH)
        self.devices = devices

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.router(x).softmax()
        chosen = scores.argmax(-1).one_hot(EXPERTS)
        balance = (scores.mean(1) * chosen.mean(1)).sum(-1).mean() * EXPERTS
        # the slot of each letter is the number of those before it with the same expert
        slot = ((chosen.cumsum(1) - 1) * chosen).sum(-1).one_hot(SLOTS)
        place = chosen.unsqueeze(3) * slot.unsqueeze(2)

        sent = Tensor.einsum("glw,gles->gesw", x, place).shard(self.devices, axis=1)
        hidden = Tensor.einsum("gesw,ewh->gesh", sent, self.up).relu()
        results = Tensor.einsum("gesh,ehw->gesw", hidden, self.down).shard(self.devices, axis=0)
        received = Tensor.einsum("gesw,gles->glw", results, place)
        return x + received * scores.max(-1, keepdim=True), balance


class Model:
    """Letters (group, letter, context) to logits of the next ones, and the balance loss."""

    def __init__(self, devices: tuple[str, ...]) -> None:
        self.letters = nn.Embedding(VOCABULARY, LETTER)
        self.experts = Experts(devices)
        self.scores = nn.Linear(WIDTH, VOCABULARY, bias=False)
        for name, parameter in get_state_dict(self).items():
            parameter.shard_(devices, axis=0 if of_experts(name) else None)

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x, balance = self.experts(self.letters(x).flatten(2))
        return self.scores(x), balance


def of_experts(name: str) -> bool:
    """Whether a parameter has an axis of experts."""
    return name in ("experts.up", "experts.down")


def texts() -> Tensor:
    """Pieces of the documentation, for each step: (steps, group, letter, context + 1)."""
    pages = [page.read_bytes() for page in sorted(ROOT.glob("docs/*.md"))]
    letters = Tensor(b"".join(pages)).minimum(VOCABULARY - 1)
    starts = Tensor.randint(STEPS, GROUPS, BS, 1, high=len(letters) - CONTEXT)
    return letters[starts + Tensor.arange(CONTEXT + 1)].cast("int")


def train(devices: tuple[str, ...]) -> tuple[list[float], CommTrace]:
    """The loss of each step, and the communication of the last one."""
    Tensor.manual_seed(0)
    letters = texts().shard(devices, axis=1).realize()
    model = Model(devices)
    optimizer = nn.optim.Adam(get_parameters(model), lr=0.005)

    @TinyJit
    @Tensor.train()
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        scores, balance = model(x[:, :, :-1])
        loss = scores.sparse_categorical_crossentropy(x[:, :, -1])
        (loss + 0.01 * balance).backward()
        return loss.realize(*optimizer.schedule_step())

    losses = []
    for number in range(STEPS):
        with CommTrace() as trace:
            loss = step(letters[number].contiguous())
        losses.append(loss.item())
    return losses, trace


def bound() -> int:
    """The lower bound of the bytes of a step, on all devices together."""
    n = len(GPUS)
    slots = GROUPS * EXPERTS * SLOTS * WIDTH * 4
    all_to_alls = 4 * (n - 1) * slots // n
    parameters = get_state_dict(Model(GPUS)).items()
    copied: int = sum(x.nbytes() for name, x in parameters if not of_experts(name))
    return all_to_alls + 2 * (n - 1) * copied


if __name__ == "__main__":
    losses, trace = train(GPUS)
    alone, _ = train(GPUS[:1])
    report({f"{len(GPUS)} devices": losses, "one device": alone}, trace, bound())
