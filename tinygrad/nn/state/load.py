"""Load a state dictionary into a model."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from tinygrad.nn.state.collect import get_state_dict
from tinygrad.nn.state.sharded_load import compute_sharded
from tinygrad.sharding import Sharding
from tinygrad.tensor import Tensor
from tinygrad.uop.device_value import is_file

LISTED_NAMES = 20


class StateDictError(ValueError):
    """A state dictionary does not fit the model. The message lists every mismatched name."""


def load_state_dict(
    model: Any,
    state_dict: dict[str, Tensor],
    strict: bool = True,
    verbose: bool = True,
    consume: bool = False,
    realize: bool = True,
) -> list[Tensor]:
    """Assign the values of `state_dict` to the tensors of `model`; return the assigned tensors.

    Each tensor keeps its own device or layout and dtype. With `strict`, a name that is missing in
    the dictionary is an error and one that is missing in the model a warning; without, both are
    ignored. `verbose` shows progress on a terminal. `consume` removes entries from `state_dict`
    once they are loaded, so that their memory is freed early. `realize=False` loads lazily. Each
    device reads only its own shard of a tensor in a file, quantised or not. Raises StateDictError,
    before anything is changed, for missing names and different shapes.

    >>> model = {"weight": Tensor.zeros(2)}
    >>> loaded = nn.state.load_state_dict(model, {"weight": Tensor([1.0, 2.0])}, verbose=False)
    >>> model["weight"].tolist()
    [1.0, 2.0]
    """
    targets = get_state_dict(model)
    _check(targets, state_dict, strict)
    # the imports and the progress bar are only needed on a terminal
    from tinygrad.progress import tqdm

    names = [name for name in targets if name in state_dict]
    for name in tqdm(names, desc="loading", disable=None if verbose else True):
        _load(targets[name], state_dict[name], realize)
        if consume:
            del state_dict[name]
    return [targets[name] for name in names]


def _check(targets: dict[str, Tensor], state_dict: dict[str, Tensor], strict: bool) -> None:
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"load_state_dict takes a dict of tensors, not {type(state_dict).__name__}")
    for name, value in state_dict.items():
        if not isinstance(value, Tensor) and name in targets:
            raise TypeError(f"{name} is of type {type(value).__name__}; give a Tensor of it")
    missing = [name for name in targets if name not in state_dict]
    unexpected = [name for name in state_dict if name not in targets]
    misshapen = [
        f"{name} is {state_dict[name].shape}, the model's {target.shape}"
        for name, target in targets.items()
        if name in state_dict and not _fits(state_dict[name], target)
    ]
    problems = _listed("of another shape", misshapen)
    if strict:
        problems += _listed("missing", missing)
    if problems:
        problems += _listed("unexpected", unexpected)
        raise StateDictError(
            f"the state does not fit the model of {len(targets)} tensors: {'; '.join(problems)}"
            + ("" if misshapen else ". strict=False leaves missing ones as they are")
        )
    if strict and unexpected:
        warnings.warn("; ".join(_listed("unexpected and not loaded", unexpected)), stacklevel=3)


def _fits(value: Tensor, target: Tensor) -> bool:
    """Whether the shapes agree; one element may be of shape () or (1,)."""
    return value.shape == target.shape or {value.shape, target.shape} == {(), (1,)}


def _listed(what: str, names: list[str]) -> list[str]:
    """[] or one line with the number of names and the first ones."""
    if not names:
        return []
    more = f" and {len(names) - LISTED_NAMES} more" if len(names) > LISTED_NAMES else ""
    return [f"{len(names)} {what}: {', '.join(names[:LISTED_NAMES])}{more}"]


def _load(target: Tensor, value: Tensor, realize: bool) -> None:
    value = value.reshape(target.shape)
    layout = target.device
    if is_file(layout):
        target.assign(value.cast(target.dtype))
        return
    # each device reads its shard of a file; the graph would read the whole file
    in_parts = compute_sharded(value, layout) if realize and isinstance(layout, Sharding) else None
    # a clone, as training the model must not change the dictionary
    own = value.to(layout).clone() if in_parts is None else in_parts.to(layout)
    # into the model's memory if it has any, so that a captured step sees it
    target.assign(own.cast(target.dtype))
    if realize:
        target.realize()
