"""Training steps on any number of devices, with constant work per device."""

from __future__ import annotations

from collections.abc import Sequence

from test.models.transformer import Transformer
from tinygrad import Tensor, nn
from tinygrad.nn.optim import AdamW
from tinygrad.nn.state import get_parameters

SEQ, VOCAB = 16, 64


class Mlp:
    """(batch, dim) to (batch, dim) by two linear layers."""

    def __init__(self, dim: int) -> None:
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def __call__(self, x: Tensor) -> Tensor:
        return self.down(self.up(x).gelu())


def training_step(model: Mlp | Transformer, x: Tensor) -> list[Tensor]:
    """The lazy loss and all tensors that one AdamW step updates; optimizer states are realized."""
    for parameter in get_parameters(model):
        parameter.requires_grad_()
    optimizer = AdamW(get_parameters(model))
    Tensor.realize(x, *get_parameters(model), *get_parameters(optimizer))
    with Tensor.train():
        out = model(x)
        is_text = isinstance(model, Transformer)
        loss = out.sparse_categorical_crossentropy(x) if is_text else out.square().mean()
        loss.backward()
        return [loss, *optimizer.schedule_step()]


def batch(count: int, width: int, *, text: bool) -> Tensor:
    """(count, width) tokens, or numbers."""
    return Tensor.randint(count, width, high=VOCAB) if text else Tensor.randn(count, width)


def data_parallel(devices: Sequence[str], *, text: bool) -> list[Tensor]:
    """A data-parallel step of a transformer or an MLP, with two rows of a batch per device."""
    model = Transformer(vocab=VOCAB, dim=32, layers=2, seq=SEQ) if text else Mlp(32)
    for parameter in get_parameters(model):
        parameter.shard_(tuple(devices))
    rows = batch(2 * len(devices), SEQ if text else 32, text=text)
    return training_step(model, rows.shard(tuple(devices), 0))


def tensor_parallel(devices: Sequence[str], *, text: bool) -> list[Tensor]:
    """A tensor-parallel step with one head, or 64 hidden units, per device."""
    names, count = tuple(devices), len(devices)
    dim = 8 * count
    model = Transformer(VOCAB, dim, layers=2, heads=count, seq=SEQ) if text else Mlp(dim)
    by_row: list[Tensor] = []
    by_column: list[Tensor] = []
    for layer in model.layers if isinstance(model, Transformer) else [model]:
        assert layer.up.bias is not None
        by_row += [layer.up.weight, layer.up.bias]
        by_column += [layer.down.weight]
        if not isinstance(layer, Mlp):
            by_row += [x.weight for x in (layer.attention.wq, layer.attention.wk)]
            by_row += [layer.attention.wv.weight]
            by_column += [layer.attention.wo.weight]
    for parameter in get_parameters(model):
        split = [axis for axis, some in enumerate((by_row, by_column)) if _is_in(parameter, some)]
        parameter.shard_(names, split[0] if split else None)
    return training_step(model, batch(2, SEQ if text else dim, text=text).shard(names))


def _is_in(parameter: Tensor, some: list[Tensor]) -> bool:
    return any(parameter is x for x in some)
