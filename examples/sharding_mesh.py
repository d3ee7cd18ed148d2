"""Data and tensor parallelism on a mesh of two dimensions.

    DP=2 TP=2 python examples/sharding_mesh.py

Device (i, j) has shard i of each batch, and shard j of each hidden layer: of the columns of the
first matrix and the rows of the second. Activations are all-reduced over the devices with the same
shard of the batch, and gradients over those with the same shard of the layers.

Settings: DP=2 and TP=2 (sizes of the mesh), BS=512 (images a step on all devices together),
STEPS=40.
"""

from example_settings import count
from sharding_report import report
from tinygrad import Device, Mesh, P, Tensor, TinyJit, nn
from tinygrad.engine import CommTrace
from tinygrad.nn.datasets import mnist
from tinygrad.nn.state import get_parameters

BS, STEPS = count("BS", 512, maximum=60_000), count("STEPS", 40)
WIDTH = 128
# each device has at least one image of a batch, and one column of a hidden layer
DP, TP = count("DP", 2, maximum=BS), count("TP", 2, maximum=4 * WIDTH)


class Block:
    """x + a network of one hidden layer: (batch, width) to (batch, width)."""

    def __init__(self) -> None:
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def __call__(self, x: Tensor) -> Tensor:
        return x + self.down(self.up(self.norm(x)).gelu())


class Model:
    """Images (batch, 784) to logits of the ten digits (batch, 10)."""

    def __init__(self) -> None:
        self.embed = nn.Linear(784, WIDTH)
        self.blocks = [Block() for _ in range(2)]
        self.out = nn.Linear(WIDTH, 10)

    def __call__(self, x: Tensor) -> Tensor:
        return self.out(self.embed(x).sequential(self.blocks))


def spec(name: str) -> P:
    """The spec of a parameter; the weight of a Linear layer is (outputs, inputs)."""
    if name.endswith(("up.weight", "up.bias")):
        return P("tp")
    if name.endswith("down.weight"):
        return P(None, "tp")
    return P()


def train(mesh: Mesh) -> tuple[list[float], CommTrace]:
    """The loss of each step, and the communication of the last one."""
    images, labels, _, _ = mnist()
    steps = len(images) // BS
    # all batches of an epoch; each row of the mesh keeps its shard of every one
    images = images[: steps * BS].reshape(steps, BS, 784).shard_(mesh, P(None, "dp")).realize()
    labels = labels[: steps * BS].reshape(steps, BS).shard_(mesh, P(None, "dp")).realize()

    Tensor.manual_seed(0)
    model = Model()
    for name, parameter in nn.state.get_state_dict(model).items():
        parameter.shard_(mesh, spec(name))
    optimizer = nn.optim.Adam(get_parameters(model), lr=0.001)

    @TinyJit
    @Tensor.train()
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x / 255).sparse_categorical_crossentropy(y).backward()
        return loss.realize(*optimizer.schedule_step())

    losses = []
    for number in range(STEPS):
        x, y = images[number % steps], labels[number % steps]
        with CommTrace() as trace:
            loss = step(x.contiguous(), y.contiguous())
        losses.append(loss.item())
    return losses, trace


def bound() -> int:
    """The lower bound of the bytes of a step, on all devices together."""

    def all_reduce(nbytes: int, group: int) -> int:
        """The bytes of an all-reduce within each group of devices, over all groups."""
        return DP * TP // group * 2 * (group - 1) * nbytes

    model = Model()
    gradients = 0
    for name, parameter in nn.state.get_state_dict(model).items():
        parts = 1 if spec(name) == P() else TP
        gradients += all_reduce(parameter.nbytes() // parts, DP)
    # each block's result, and the gradient of its input
    activations = len(model.blocks) * 2 * all_reduce(BS // DP * WIDTH * 4, TP)
    return gradients + activations


if __name__ == "__main__":
    devices = [f"{Device.DEFAULT}:{i}" for i in range(DP * TP)]
    names = "dp", "tp"
    losses, trace = train(Mesh((DP, TP), names, devices))
    alone, _ = train(Mesh((1, 1), names, devices[:1]))
    report({f"{DP} x {TP}": losses, "one device": alone}, trace, bound())
