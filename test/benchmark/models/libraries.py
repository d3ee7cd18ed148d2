"""What the models need of a library, so that each is one program for ours and for torch.

Both have layers of the same names and tensors with the same methods; here is what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Protocol

import numpy

RATE = 1e-4
"""The learning rate: low, as rounding grows from step to step where batches are normalized."""

Array = numpy.ndarray[Any, Any]
Batch = Mapping[str, Array]


class Library(Protocol):
    """One of the two libraries; `nn` has its layers."""

    nn: Any
    Module: Any
    List: Any

    def attention(self, q: Any, k: Any, v: Any, causal: bool) -> Any: ...
    def cat(self, parts: list[Any], dim: int) -> Any: ...
    def cross_entropy(self, scores: Any, labels: Any) -> Any: ...
    def gelu(self, x: Any) -> Any: ...
    def lstm(self, size: int, layers: int) -> Any: ...
    def max_pool(self, x: Any) -> Any: ...
    def positions(self, count: int) -> Any: ...
    def silu(self, x: Any) -> Any: ...
    def sparse_embedding(self, rows: int, size: int) -> Any: ...
    def upsample(self, x: Any) -> Any: ...
    def weights(self, *shape: int) -> Any: ...

    def trainer(self, model: Any, batch: Batch, optimizer: str) -> Trainer:
        """Takes training steps on one batch."""


class Trainer(Protocol):
    """Training steps of one model."""

    def step(self) -> float:
        """Take a step. Returns the loss before it."""

    def kernels(self) -> int | None:
        """The kernels of a step, if the library counts them."""

    def load(self, weights: Mapping[str, Array]) -> None: ...
    def weights(self) -> dict[str, Array]: ...


def ours() -> Library:
    """This library."""
    from test.benchmark.recurrent import unrolled
    from tinygrad import Tensor, TinyJit, nn
    from tinygrad.nn.state import get_parameters, get_state_dict, load_state_dict

    class Module:
        def __call__(self, *args: Any, **named: Any) -> Any:
            return self.forward(*args, **named)  # type: ignore[attr-defined]

    class Lstm(Module):
        def __init__(self, size: int, layers: int) -> None:
            self.cells = [nn.LSTMCell(size, size) for _ in range(layers)]

        def forward(self, x: Tensor) -> Tensor:
            return unrolled(self.cells, x)

    class OurTrainer:
        def __init__(self, model: Any, batch: Batch, optimizer: str) -> None:
            self._model = model
            known = {k: Tensor(v).realize() for k, v in batch.items()}
            parameters = get_parameters(model)
            chosen: Any = (
                nn.optim.AdamW(parameters, lr=RATE)
                if optimizer == "AdamW"
                else nn.optim.SGD(parameters, lr=RATE, momentum=0.9 * (optimizer == "momentum"))
            )

            @TinyJit
            @Tensor.train()
            def step() -> Tensor:
                chosen.zero_grad()
                loss: Tensor = model(**known).backward()
                chosen.step()
                return loss

            self._step = step

        def step(self) -> float:
            return float(self._step().item())

        def kernels(self) -> int | None:
            return len(self._step.jit_cache)

        def load(self, weights: Mapping[str, Array]) -> None:
            state = {name: Tensor(array) for name, array in weights.items()}
            load_state_dict(self._model, state, verbose=False)

        def weights(self) -> dict[str, Array]:
            return {name: x.numpy() for name, x in get_state_dict(self._model).items()}

    return SimpleNamespace(
        nn=nn,
        Module=Module,
        List=list,
        attention=lambda q, k, v, causal: q.scaled_dot_product_attention(k, v, is_causal=causal),
        cat=lambda parts, dim: parts[0].cat(*parts[1:], dim=dim),
        cross_entropy=lambda scores, labels: scores.sparse_categorical_crossentropy(labels),
        gelu=lambda x: x.gelu(),
        lstm=Lstm,
        max_pool=lambda x: x.max_pool2d(3, stride=2, padding=1),
        positions=Tensor.arange,
        silu=lambda x: x.silu(),
        sparse_embedding=nn.Embedding,
        upsample=lambda x: x.interpolate((2 * x.shape[2], 2 * x.shape[3]), mode="nearest"),
        weights=lambda *shape: Tensor.normal(*shape, std=0.02),
        trainer=OurTrainer,
    )


def torch() -> Library:
    """PyTorch."""
    import torch as th

    functional = th.nn.functional

    class Lstm(th.nn.Module):
        def __init__(self, size: int, layers: int) -> None:
            super().__init__()
            self.layers = th.nn.LSTM(size, size, layers, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.layers(x)[0]

    class TorchTrainer:
        def __init__(self, model: Any, batch: Batch, optimizer: str) -> None:
            self._model, self._batch = model, {k: th.from_numpy(v) for k, v in batch.items()}
            parameters = model.parameters()
            self._optimizer: Any = (
                th.optim.AdamW(parameters, lr=RATE)
                if optimizer == "AdamW"
                else th.optim.SGD(parameters, lr=RATE, momentum=0.9 * (optimizer == "momentum"))
            )

        def step(self) -> float:
            self._optimizer.zero_grad()
            loss = self._model(**self._batch)
            loss.backward()
            self._optimizer.step()
            return float(loss.item())

        def kernels(self) -> int | None:
            return None

        def load(self, weights: Mapping[str, Array]) -> None:
            state = {}
            for name, array in weights.items():
                # the cells of our LSTM are the layers of torch's
                before, _, rest = name.partition("cells.")
                if rest:
                    layer, _, kind = rest.partition(".")
                    name = f"{before}layers.{kind}_l{layer}"
                state[name] = th.from_numpy(array)
            self._model.load_state_dict(state)

        def weights(self) -> dict[str, Array]:
            return {name: x.numpy(force=True) for name, x in self._model.state_dict().items()}

    return SimpleNamespace(
        nn=th.nn,
        Module=th.nn.Module,
        List=th.nn.ModuleList,
        attention=lambda q, k, v, causal: functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal
        ),
        cat=th.cat,
        cross_entropy=functional.cross_entropy,
        gelu=lambda x: functional.gelu(x, approximate="tanh"),
        lstm=Lstm,
        max_pool=lambda x: functional.max_pool2d(x, 3, stride=2, padding=1),
        positions=th.arange,
        silu=functional.silu,
        sparse_embedding=lambda rows, size: th.nn.Embedding(rows, size, sparse=True),
        upsample=lambda x: functional.interpolate(x, scale_factor=2, mode="nearest"),
        weights=lambda *shape: th.nn.Parameter(th.empty(shape)),
        trainer=TorchTrainer,
    )


LIBRARIES: dict[str, Callable[[], Library]] = {"ours": ours, "torch": torch}
