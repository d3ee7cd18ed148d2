"""Placement rules: sharding propagation for opaque ops, such as custom kernels.

Input: a rule such as `"b m k, b k n -> b m n"`, which names every axis of every operand. Output: a
layout for each operand. Invariants: axes of one name are sharded alike; an operand without that
axis is replicated along it, and a result without it is partial.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tinygrad.sharding.common_layout import common_layout
from tinygrad.sharding.layout import Sharding
from tinygrad.sharding.placement import Partial, Placement, ShardingError
from tinygrad.sharding.sizes import Shape

_AXIS = re.compile(r"\[([A-Za-z_]\w*)\]|([A-Za-z_]\w*)")


@dataclass(frozen=True)
class PlacementRule:
    """The names of each operand's axes, and the names of the axes that stay unsharded."""

    outputs: tuple[tuple[str, ...], ...]
    inputs: tuple[tuple[str, ...], ...]
    unsharded: frozenset[str]

    @property
    def operands(self) -> tuple[tuple[str, ...], ...]:
        """The axes of all operands, the outputs first."""
        return (*self.outputs, *self.inputs)


def parse_rule(text: str) -> PlacementRule:
    """Read `"inputs -> outputs"`: operands by commas, axes by spaces; `[k]` is never sharded.

    `()` is an operand without axes; an empty side has no operands.

    Raises ShardingError for text that is not a rule.

    >>> parse_rule("m [k], [k] n -> m n").inputs
    (('m', 'k'), ('k', 'n'))
    """
    sides = text.split("->")
    if len(sides) != 2:
        raise ShardingError(
            f"rule {text!r} has {len(sides) - 1} arrows; write 'inputs -> outputs', as in "
            "'m k, k n -> m n'"
        )
    unsharded: set[str] = set()
    inputs, outputs = (
        tuple(_operand(part, text, unsharded) for part in side.split(",")) if side.strip() else ()
        for side in sides
    )
    return PlacementRule(outputs, inputs, frozenset(unsharded))


def _operand(part: str, text: str, unsharded: set[str]) -> tuple[str, ...]:
    names: list[str] = []
    if part.strip() == "()":
        return ()
    if not part.strip():
        raise ShardingError(
            f"rule {text!r} has nothing between two commas, or around one; write () for an "
            "operand without axes"
        )
    for word in part.split():
        found = _AXIS.fullmatch(word)
        if found is None:
            raise ShardingError(
                f"rule {text!r}: {word!r} is not the name of an axis; name axes by words "
                "between spaces, as in 'm k', and put one that must not be sharded in brackets: "
                "'m [k]'"
            )
        name = found[1] or found[2]
        if name in names:
            raise ShardingError(
                f"rule {text!r}: {part.strip()!r} names the axis {name!r} twice; give each axis "
                "of one operand its own name"
            )
        names.append(name)
        if found[1]:
            unsharded.add(name)
    return tuple(names)


def check_rule(rule: PlacementRule, shapes: Sequence[Shape]) -> dict[str, int]:
    """The size of each axis. Raises ShardingError where `shapes`, outputs first, do not fit."""
    operands = rule.operands
    if len(operands) != len(shapes):
        raise ShardingError(
            f"the rule has {len(rule.outputs)} outputs and {len(rule.inputs)} inputs for "
            f"{len(shapes)} tensors; it names them all, and the tensors stand outputs first"
        )
    sizes: dict[str, int] = {}
    for number, (names, shape) in enumerate(zip(operands, shapes, strict=True)):
        if len(names) != len(shape):
            raise ShardingError(
                f"the rule names {len(names)} axes ({' '.join(names)}) of tensor {number}, which "
                f"has the shape {shape}; name each of its axes"
            )
        for name, size in zip(names, shape, strict=True):
            if sizes.setdefault(name, size) != size:
                raise ShardingError(
                    f"the axis {name!r} of the rule is {sizes[name]} long and, in tensor {number} "
                    f"of shape {shape}, {size}; axes of different size need different names"
                )
    return sizes


def rule_layouts(
    rule: PlacementRule,
    shapes: Sequence[Shape],
    layouts: Sequence[Sharding | None],
    nbytes: Sequence[int],
    op: str = "ADD",
) -> tuple[Sharding, ...]:
    """The layout of each operand, outputs first, that moves the fewest bytes.

    `layouts` are the operands' current ones, None for a value without a device. An output without a
    sharded axis is `Partial(op)`. Such an axis is sharded only if it divides evenly, as a kernel
    would reduce the padding too. Raises ShardingError where the operands live on different devices.
    """
    sizes = check_rule(rule, shapes)
    names = list(sizes)
    reduced = {name for name in names if any(name not in own for own in rule.outputs)}
    unsharded = rule.unsharded
    while True:
        common = _common(rule, sizes, layouts, nbytes, unsharded)
        sharded = {names[axis]: common.shards(axis) for axis in common.split_axes}
        uneven = {name for name in sharded.keys() & reduced if sizes[name] % sharded[name]}
        if not uneven:
            break
        unsharded = unsharded | uneven
    count = len(rule.outputs)
    return tuple(
        common.with_axes(
            [_axis(p, names, own, Partial(op) if i < count else None) for p in common.axes]
        )
        for i, own in enumerate(rule.operands)
    )


def _common(
    rule: PlacementRule,
    sizes: dict[str, int],
    layouts: Sequence[Sharding | None],
    nbytes: Sequence[int],
    unsharded: frozenset[str],
) -> Sharding:
    """The layout of an array with all named axes, unsharded along those in `unsharded`."""
    names = list(sizes)
    placed = [
        (
            _by_name(layout, own, names, unsharded),
            size,
            tuple(sizes[n] if n in own else 1 for n in names),
        )
        for layout, size, own in zip(layouts, nbytes, rule.operands, strict=True)
        if layout is not None
    ]
    return common_layout(
        [layout for layout, _, _ in placed],
        [size for _, size, _ in placed],
        [shape for _, _, shape in placed],
    )


def _by_name(
    layout: Sharding, own: tuple[str, ...], names: list[str], unsharded: frozenset[str]
) -> Sharding:
    """The layout in terms of the axes of all names."""
    return layout.with_axes(
        [
            names.index(own[p]) if isinstance(p, int) and own[p] not in unsharded else None
            for p in layout.axes
        ]
    )


def _axis(
    placement: Placement, names: list[str], own: tuple[str, ...], absent: Placement
) -> Placement:
    """The position of a sharded axis in an operand; `absent` if the operand has no such axis."""
    if not isinstance(placement, int):
        return None
    name = names[placement]
    return own.index(name) if name in own else absent
