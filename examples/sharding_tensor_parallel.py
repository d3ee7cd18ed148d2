"""Tensor and sequence parallelism: a transformer with sharded layers (Megatron).

    GPUS=4 python examples/sharding_tensor_parallel.py

The model predicts this project's documentation, letter by letter. Each device has some attention
heads and some columns of the hidden layer, which give partial sums of the result. Between these
layers, the activations are sharded along the sequence: a layer begins with an all-gather and ends
with a reduce-scatter, in which each of n devices sends (n - 1) / n of the activations; the backward
pass does the same.

Settings: GPUS=4 (devices), BS=16 (texts a step), STEPS=40.
"""

from pathlib import Path

from example_settings import count
from sharding_report import report
from tinygrad import Device, Tensor, TinyJit, nn
from tinygrad.engine import CommTrace
from tinygrad.nn.state import get_parameters, get_state_dict

VOCABULARY, LENGTH, WIDTH, HEADS, LAYERS = 128, 64, 128, 8, 2
GPUS = tuple(f"{Device.DEFAULT}:{i}" for i in range(count("GPUS", 4, maximum=HEADS)))
BS, STEPS = count("BS", 16, maximum=4096), count("STEPS", 40)
ROOT = Path(__file__).parents[1]


class Attention:
    """Causal attention: (batch, length, width) to the same."""

    def __init__(self) -> None:
        self.query, self.key, self.value, self.out = (
            nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4)
        )

    def __call__(self, x: Tensor) -> Tensor:
        query, key, value = (
            layer(x).reshape(*x.shape[:2], HEADS, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        x = query.scaled_dot_product_attention(key, value, is_causal=True)
        return self.out(x.transpose(1, 2).flatten(2))


class FeedForward:
    """One hidden layer: (batch, length, width) to the same."""

    def __init__(self) -> None:
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.out = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def __call__(self, x: Tensor) -> Tensor:
        return self.out(self.up(x).gelu())


class Residual:
    """x + layer(norm(x)), with x sharded along the sequence, and the layer sharded inside."""

    def __init__(self, layer: Attention | FeedForward, devices: tuple[str, ...]) -> None:
        self.norm = nn.RMSNorm(WIDTH)
        self.layer = layer
        self.devices = devices

    def __call__(self, x: Tensor) -> Tensor:
        whole = self.norm(x).shard(self.devices)
        return x + self.layer(whole).shard(self.devices, axis=1)


class Transformer:
    """Letters (batch, length) to logits of the next ones (batch, length, vocabulary)."""

    def __init__(self, devices: tuple[str, ...]) -> None:
        self.letters = nn.Embedding(VOCABULARY, WIDTH)
        self.places = Tensor.glorot_uniform(LENGTH, WIDTH)
        self.layers = [
            Residual(kind(), devices) for _ in range(LAYERS) for kind in (Attention, FeedForward)
        ]
        self.norm = nn.RMSNorm(WIDTH)
        self.scores = nn.Linear(WIDTH, VOCABULARY, bias=False)

        for name, parameter in get_state_dict(self).items():
            parameter.shard_(devices, split_axis(name))

    def __call__(self, x: Tensor) -> Tensor:
        return self.scores(self.norm((self.letters(x) + self.places).sequential(self.layers)))


def split_axis(name: str) -> int | None:
    """The sharded axis of a parameter; a Linear layer's weight is (outputs, inputs)."""
    if name.endswith("out.weight"):
        return 1
    return 0 if ".layer." in name or name == "places" else None


def texts() -> Tensor:
    """Pieces of the documentation, for each step: (steps, batch, length + 1)."""
    pages = [page.read_bytes() for page in sorted(ROOT.glob("docs/*.md"))]
    letters = Tensor(b"".join(pages)).minimum(VOCABULARY - 1)
    starts = Tensor.randint(STEPS, BS, 1, high=len(letters) - LENGTH)
    return letters[starts + Tensor.arange(LENGTH + 1)].cast("int")


def train(devices: tuple[str, ...]) -> tuple[list[float], CommTrace]:
    """The loss of each step, and the communication of the last one."""
    Tensor.manual_seed(0)
    letters = texts()
    before = letters[:, :, :-1].contiguous().shard(devices, axis=2).realize()
    after = letters[:, :, 1:].contiguous().shard(devices, axis=2).realize()
    model = Transformer(devices)
    optimizer = nn.optim.Adam(get_parameters(model), lr=0.003)

    @TinyJit
    @Tensor.train()
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).sparse_categorical_crossentropy(y).backward()
        return loss.realize(*optimizer.schedule_step())

    losses = []
    for number in range(STEPS):
        with CommTrace() as trace:
            loss = step(before[number].contiguous(), after[number].contiguous())
        losses.append(loss.item())
    return losses, trace


def bound() -> int:
    """The lower bound of the bytes of a step, on all devices together."""
    activations = BS * LENGTH * WIDTH * 4
    # gathered and scattered, forward and backward
    moved = 4 * activations * 2 * LAYERS
    parameters = get_state_dict(Transformer(GPUS)).items()
    copied: int = sum(x.nbytes() for name, x in parameters if split_axis(name) is None)
    return (len(GPUS) - 1) * (moved + 2 * copied)


if __name__ == "__main__":
    losses, trace = train(GPUS)
    alone, _ = train(GPUS[:1])
    report({f"{len(GPUS)} devices": losses, "one device": alone}, trace, bound())
