"""Programs whose kernels are generated for GPUs, without one: to compile, count and predict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from test.models.mnist_cnn import MnistCnn
from tinygrad import Context, Device, Tensor, Variable, dtypes, nn
from tinygrad.codegen import get_program
from tinygrad.codegen.optimize.threads.search import mappings, with_mapping
from tinygrad.dtype import DType
from tinygrad.renderer import ProgramSpec, find_renderer
from tinygrad.renderer.target import Target
from tinygrad.schedule.pipeline import lower_kernel
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

PLANNED = "NULL:31"
"""A device that runs nothing and has the target of a test; no other test uses it."""


@dataclass(frozen=True)
class GPUProgram:
    """A program by name. `build` schedules it on inputs of zeros."""

    name: str
    build: Callable[[], list[Tensor]]
    allow_tf32: bool = False

    def kernels(self, target: Target) -> list[ProgramSpec]:
        """The kernels of the program, generated for a target; none is compiled or run."""
        renderer = find_renderer(target)
        with Context(ALLOW_TF32=int(self.allow_tf32)):
            return [get_program(graph, renderer) for graph in self.graphs(target)]

    def kernel_without_producer(self, target: Target) -> ProgramSpec:
        """The only kernel of a product, of the tile of least cost whose threads have no roles."""
        (graph,) = self.graphs(target)
        renderer = find_renderer(target)
        with Context(ALLOW_TF32=int(self.allow_tf32)):
            tile = next(x for x in mappings(graph, renderer) if not x.producer)
            return get_program(with_mapping(graph, tile), renderer)

    def graphs(self, target: Target) -> list[UOp]:
        """The kernel graphs of the program."""
        Device[PLANNED]._target = target
        first, *others = self.build()
        items = first.schedule(*others)
        return [lower_kernel(item.ast) for item in items if item.ast.op is Ops.SINK]


def inputs(*shapes: tuple[int, ...], dtype: DType = dtypes.float32) -> list[Tensor]:
    """Tensors in memory. Their values do not matter; their bytes are not touched."""
    return [Tensor.empty(*shape, dtype=dtype, device=PLANNED) for shape in shapes]


NAMES = {dtypes.float32: "f32", dtypes.bfloat16: "bf16", dtypes.float16: "f16"}


def product(
    size: int, dtype: DType = dtypes.float32, transposed: bool = False, allow_tf32: bool = False
) -> GPUProgram:
    """A square matrix product."""

    def build() -> list[Tensor]:
        a, b = inputs((size, size), (size, size), dtype=dtype)
        return [a @ (b.T if transposed else b)]

    form = "tf32" if allow_tf32 else NAMES[dtype]
    name = f"product {size} {form}{' transposed' if transposed else ''}"
    return GPUProgram(name, build, allow_tf32)


def of_one(
    name: str,
    function: Callable[..., Tensor],
    *shapes: tuple[int, ...],
    dtype: DType = dtypes.float32,
) -> GPUProgram:
    """A program that computes one tensor of inputs."""
    return GPUProgram(name, lambda: [function(*inputs(*shapes, dtype=dtype))])


def linear(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    """A layer with its epilogue."""
    return (x @ w.T + bias).gelu() + x


def mnist_step() -> list[Tensor]:
    """A training step of the MNIST network on a batch of 512."""
    model = MnistCnn()
    (images,) = inputs((512, 1, 28, 28))
    (labels,) = inputs((512,), dtype=dtypes.int32)
    parameters = nn.state.get_parameters(model)
    for parameter in parameters:
        parameter.to_(PLANNED)
    optimizer = nn.optim.Adam(parameters)
    with Tensor.train():
        loss = model(images).sparse_categorical_crossentropy(labels).backward()
        return [loss, *optimizer.schedule_step()]


BF16 = dtypes.bfloat16
HEADS = (1, 8, 2048, 64)
SQUARE = (4096, 4096)

CONVOLUTION = of_one(
    "convolution", lambda x, w: x.conv2d(w, padding=1), (32, 64, 28, 28), (128, 64, 3, 3)
)
NARROW_CONVOLUTION = of_one(
    "convolution bf16",
    lambda x, w: x.conv2d(w, padding=1),
    *((32, 64, 28, 28), (128, 64, 3, 3)),
    dtype=BF16,
)


def symbolic_gradients() -> list[Tensor]:
    """The gradients of a causal attention of a symbolic length."""
    length = Variable("length", 1, 200).bind(100)
    q, k, v = (x[:, :, :length] for x in inputs(*[(2, 4, 200, 16)] * 3))
    for x in (q, k, v):
        x.requires_grad_()
    result = q.scaled_dot_product_attention(k, v, is_causal=True)
    return result.square().sum().gradient(q, k, v)


def attention_gradients(
    dtype: DType = BF16, shape: tuple[int, ...] = (1, 8, 4096, 64)
) -> list[Tensor]:
    """The result of a causal attention, and its gradients."""
    q, k, v, gradient = inputs(*[shape] * 4, dtype=dtype)
    for x in (q, k, v):
        x.requires_grad_()
    result = q.scaled_dot_product_attention(k, v, is_causal=True)
    return [result, *(result * gradient).sum().gradient(q, k, v)]


SYMBOLIC_GRADIENTS = GPUProgram("gradients of symbolic attention", symbolic_gradients)
GRADIENTS = GPUProgram("gradients of attention bf16", attention_gradients)
WIDE_ATTENTION = of_one("attention", Tensor.scaled_dot_product_attention, HEADS, HEADS, HEADS)
ATTENTION = of_one(
    "attention bf16", Tensor.scaled_dot_product_attention, HEADS, HEADS, HEADS, dtype=BF16
)

PROGRAMS = (
    product(1024),
    product(4096),
    product(4096, transposed=True),
    product(4096, allow_tf32=True),
    product(1000, allow_tf32=True),
    product(1024, BF16),
    product(8192, BF16),
    product(8192, BF16, transposed=True),
    product(1001, BF16),
    product(4096, dtypes.float16),
    of_one("linear gelu residual bf16", linear, (2048, 1024), (1024, 1024), (1024,), dtype=BF16),
    of_one("batched product", lambda a, b: a @ b, (16, 512, 256), (16, 256, 512), dtype=BF16),
    CONVOLUTION,
    NARROW_CONVOLUTION,
    of_one("softmax", lambda x: x.softmax(-1), SQUARE),
    of_one("layernorm", lambda x: x.layernorm(), SQUARE),
    of_one("rms norm", lambda x: x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt(), SQUARE),
    of_one("sum", lambda x: x.sum(), SQUARE),
    of_one("sum of columns", lambda x: x.sum(0), SQUARE),
    # sums of 64 bits
    of_one("mean of bytes", lambda x: x.mean(), (3, 4000, 3000), dtype=dtypes.uint8),
    of_one("copy", lambda x: x + 1, SQUARE),
    WIDE_ATTENTION,
    GPUProgram("attention tf32", WIDE_ATTENTION.build, allow_tf32=True),
    GPUProgram("gradients of attention", lambda: attention_gradients(dtypes.float32)),
    ATTENTION,
    GRADIENTS,
    of_one(
        "causal attention bf16",
        lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
        *[(1, 32, 4096, 128)] * 3,
        dtype=BF16,
    ),
    of_one(
        "attention f16 odd",
        Tensor.scaled_dot_product_attention,
        *[(1, 8, 1000, 80)] * 3,
        dtype=dtypes.float16,
    ),
    GPUProgram("MNIST step", mnist_step),
)
