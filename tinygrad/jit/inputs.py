"""Inputs of a captured call: its tensors, bound Variables and other Python values.

Input: arguments, with tensors also in containers. Output: `Inputs`. Invariant: a function runs the
same kernels for two calls with equal `signature` and `fixed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from inspect import Parameter, Signature, signature
from types import MappingProxyType
from typing import Any

from tinygrad.device import Buffer, Device, RemoteBuffer, copy_buffer
from tinygrad.dtype import dtypes
from tinygrad.execution.buffers import bind_buffers, device_buffers, storage_of, tokens_of
from tinygrad.execution.capture import JitError
from tinygrad.execution.versions import Base, bases_of, owner_of, set_owner
from tinygrad.helpers import all_int
from tinygrad.jit.containers import leaves
from tinygrad.jit.slices import ContiguousSlice, contiguous_slice
from tinygrad.schedule.canonical import canonicalize
from tinygrad.storage.aliases import (
    has_own_memory,
    is_written_in_place,
    whole_tensor,
    whole_value,
)
from tinygrad.storage.content import Content
from tinygrad.storage.gradients.grad_mode import Leaf
from tinygrad.storage.live_tensors import Cell
from tinygrad.storage.realization import own_memory, realize_all, store_constant
from tinygrad.storage.views import is_constant, view_base
from tinygrad.tensor import Tensor
from tinygrad.uop import Ops
from tinygrad.uop.float_variables import argument_of
from tinygrad.uop.ops import UOp


class InputMemory:
    """The memory of a BUFFER that an argument, `tensor`, is in."""

    __slots__ = ("arg", "dtype", "known", "memory", "parts", "tensor", "tokens")

    def __init__(self, tensor: Tensor | None, node: UOp) -> None:
        self.tensor = tensor
        self.arg = node.arg
        self.dtype = node.dtype
        self.parts = device_buffers(node)
        self.tokens = tokens_of(node)
        self.memory = node.memory
        self.known = [*[b.base or b for b in self.parts], *self.tokens]
        """The base buffers, and the tokens."""

    def is_borrowed(self) -> bool:
        """Whether another tensor, which is no alias of the argument, writes the memory."""
        owner = owner_of(self.memory)
        return owner is not None and self.tensor is not None and self.tensor._cell is not owner


class Inputs:
    """The arguments of a call, and the gradients of its tensors."""

    apart: Sequence[tuple[int, Sequence[Base]]] = ()
    """Views in memory of their own: its number, and the memory that the tensor is a view of."""
    containers: Sequence[tuple[Any, int]] = ()
    """The containers among the arguments, with the number of values in each."""
    leaves: Sequence[bool] = ()
    """For each tensor that requires a gradient, whether it is a leaf, at which gradients end."""
    outline: Sequence[tuple[type, int]] = ()
    """Their types and numbers of values."""
    ranges: Mapping[Buffer, tuple[int, int]] = MappingProxyType({})
    """The bytes that the tensors of a captured call are in, by base buffer."""

    def __init__(self) -> None:
        self.given: list[Tensor] = []
        """The tensors of the caller, in order."""
        self.tensors: list[Tensor] = []
        """The same tensors, or copies of those that the replay would overwrite too early."""
        self.memories: list[InputMemory] = []
        """The memory that the tensors are in, each once."""
        self.buffers: list[Buffer] = []
        """The buffers of `memories`; of a contiguous slice, the part that begins where it does."""
        self.shared: list[int] = []
        """For each memory that a tensor is in, its number among `memories`."""
        self.places: list[tuple[int, tuple[Any, ...]] | None] = []
        """Of a contiguous slice, its first element and the shape of its memory; else None."""
        self.values: dict[str, int] = {}
        """The values of the bound Variables, by name."""
        self.signature: list[Any] = []
        """What a replay requires of tensors and Variables."""
        self.fixed: list[Any] = [Tensor.training, Device.DEFAULT, dtypes.default_float]
        """The Python values that the captured kernels depend on."""
        self.objects: list[Any] = []
        """The arguments that are neither tensors nor Variables, and the classes of containers."""
        # by the number of the memory
        self._slices: dict[int, ContiguousSlice] = {}

    @cached_property
    def numbers(self) -> dict[Buffer, int]:
        """The number of each input, by its base buffer."""
        return {b.base or b: i for i, b in enumerate(self.buffers)}

    @cached_property
    def tokens(self) -> frozenset[RemoteBuffer]:
        """What stands for their memory in all processes."""
        return frozenset(token for x in self.memories for token in x.tokens)

    @property
    def memory(self) -> set[Buffer]:
        """Their base buffers, and their tokens."""
        return {*self.numbers, *self.tokens}

    def add_tensor(self, name: str, x: Tensor) -> None:
        """Add a tensor in memory. A view is added as the BUFFER below it."""
        node = x.uop
        self.tensors.append(x)
        self.given.append(x)
        if x._steps and has_own_memory(x):
            whole = view_base(whole_value(x))
            known = (*bases_of(whole.memory), *tokens_of(whole))
            self.apart = [*self.apart, (len(self.memories), known)]
        arg = node.arg
        if node.op is Ops.BUFFER and all_int(arg.shape):
            kind: tuple[Any, ...] = (node.dtype, arg.shape, arg.device)
            number = self._add_memory(x, node)
            if number in self._slices:
                kind = (*kind, -self._slices[number].first)
            self.places.append(None)
            self.signature.append((name, kind))
            return
        found = contiguous_slice(node)
        if found is not None:
            self._add_slice(name, x, found)
            return
        canonical = canonicalize(node)
        numbers = [self._add_memory(x, memory) for memory in canonical.buffers]
        for variable, value in canonical.values.items():
            self.add_value(variable, value)
        starts = [self._slices[i].first for i in numbers if i in self._slices]
        kind = (node.dtype, node.shape, node.device, canonical.sink, starts)
        self.signature.append((name, kind if starts else canonical.sink))

    def _add_slice(self, name: str, x: Tensor, found: ContiguousSlice) -> None:
        """Add a view. That of memory that was added before keeps its distance to the first one."""
        node, known = x.uop, len(self.memories)
        kind: tuple[Any, ...] = (node.dtype, node.shape, node.device)
        number = self._add_memory(x, found.memory, found)
        if number < known:
            first = self._slices.get(number)
            kind = (*kind, found.first - (first.first if first is not None else 0))
        self.places.append((found.first, found.memory.arg.shape))
        self.signature.append((name, kind))

    def note_ranges(self) -> None:
        """Note the bytes that the tensors are in, by base buffer."""
        ranges: dict[Buffer, tuple[int, int]] = {}
        for x in self.tensors:
            part = contiguous_slice(x.uop)
            below = [node for node in x.uop.toposort() if node.op is Ops.BUFFER]
            for buffer in (b for node in below for b in device_buffers(node)):
                start, size = buffer.offset, buffer.nbytes
                if part is not None:
                    start += part.first * buffer.dtype.itemsize
                    size = part.size * buffer.dtype.itemsize
                base = buffer.base or buffer
                low, high = ranges.get(base, (start, start + size))
                ranges[base] = min(low, start), max(high, start + size)
        self.ranges = ranges

    def copy_memory(self, number: int) -> None:
        """Let this call read, and write, a copy of some memory."""
        old = self.memories[number]
        parts = [Buffer(b.device, b.size, b.dtype).allocate() for b in old.parts]
        for copy, part in zip(parts, old.parts, strict=True):
            copy_buffer(copy, part)
        new = bind_buffers(UOp.new_buffer(old.arg.device, old.arg.shape, old.dtype), parts)
        self._set_memory(number, new)
        cells: dict[Cell, Cell] = {}
        for i, x in enumerate(self.tensors):
            node = view_base(x.uop)
            if node.op is Ops.BUFFER and node.memory is old.memory:
                own = x._own_cell()
                if own not in cells:
                    cells[own] = Cell.over(Content(own.uop.substitute({node: new})))
                    set_owner(new.memory, tokens_of(new), cells[own])
                self.tensors[i] = Tensor._member(cells[own], x._steps, x._requires_grad and True)

    def own(self, numbers: Iterable[int]) -> bool:
        """Let some arguments be in memory that no other tensor writes. Returns whether one was
        copied, so that the inputs must be found again.
        """
        tensors = [self.memories[i].tensor for i in numbers if i < len(self.memories)]
        borrowed = [x for x in tensors if x is not None and not is_written_in_place(x)]
        for x in borrowed:
            own_memory(x)
        return bool(borrowed)

    def find_memory(self) -> None:
        """Find the memory of tensors again, some of which moved to a copy."""
        for number, x in enumerate(self.memories):
            tensor = x.tensor
            if tensor is None or tensor._node is None:
                continue
            base = view_base(tensor._node)
            if base.op is Ops.BUFFER and base.memory is not x.memory:
                self._set_memory(number, base)
                tensor._own_memory()

    def _set_memory(self, number: int, node: UOp) -> None:
        self.memories[number] = InputMemory(self.memories[number].tensor, node)
        self.buffers = [b for i in range(len(self.memories)) for b in self._buffers_of(i)]

    def is_whole(self, number: int) -> bool:
        """Whether an argument may be all of some memory, and not a slice that begins anywhere."""
        return number not in self._slices

    def let_go(self) -> None:
        """Keep no node of the tensors."""
        for i, part in self._slices.items():
            self._slices[i] = replace(part, memory=None)

    def forget_tensors(self) -> None:
        """Keep no tensor of the call."""
        self.let_go()
        self.tensors.clear()
        self.given.clear()
        for x in self.memories:
            x.tensor = None

    def _add_memory(self, tensor: Tensor, node: UOp, part: ContiguousSlice | None = None) -> int:
        memory = storage_of(node)
        for number, known in enumerate(self.memories):
            if known.memory is memory:
                self.shared.append(number)
                return number
        number = len(self.memories)
        self.shared.append(number)
        self.memories.append(InputMemory(tensor, node))
        if part is not None:
            self._slices[number] = part
        self.buffers.extend(self._buffers_of(number))
        return number

    def _buffers_of(self, number: int) -> Sequence[Buffer]:
        buffers, part = self.memories[number].parts, self._slices.get(number)
        if part is None or part.first == 0:
            return buffers
        return [b.view(part.size, b.dtype, part.first * b.dtype.itemsize) for b in buffers]

    def add_value(self, name: str, argument: int) -> None:
        """Add the value of a Variable. Raises JitError if it has another one."""
        if self.values.setdefault(name, argument) != argument:
            raise JitError(
                f"Variable {name} is bound to two values in one call; give one of them another name"
            )

    def add_object(self, name: str, x: Any) -> None:
        """Add a Python value."""
        self.fixed.append((name, comparable(x)))
        self.objects.append(x)


class CallForms:
    """Calls of a function, each in one form: arguments are given by position where they can be, and
    numbers and texts that are defaults are given, too.

    The first `skipped` parameters are not among the arguments. Of a function whose signature is
    unknown, calls stay as they are.
    """

    def __init__(self, function: Callable[..., Any] | None, skipped: int = 0) -> None:
        self._function = function
        self._skipped = skipped
        # by the number of positional arguments and the names of others
        self._forms: dict[int | tuple[Any, ...], _Form | None] = {}
        self.unchanged: set[int] = set()
        """The numbers of positional arguments with which a call without others stays as it is."""

    def __getstate__(self) -> tuple[Any, ...]:
        return (self._signature,)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        (self._signature,) = state
        self._forms = {}
        self.unchanged = set()

    @cached_property
    def _signature(self) -> Signature | None:
        """The signature, without annotations, and without defaults that are no numbers or texts."""
        if self._function is None:
            return None
        try:
            given = list(signature(self._function).parameters.values())[self._skipped :]
        except (TypeError, ValueError):
            return None
        for i, x in enumerate(given):
            is_plain = x.default is Parameter.empty or isinstance(x.default, _PLAIN)
            default = x.default if is_plain else ...
            given[i] = x.replace(annotation=Parameter.empty, default=default)
        return Signature(given)

    def canonical(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call in this form."""
        key = (len(args), *kwargs) if kwargs else len(args)
        try:
            form = self._forms[key]
        except KeyError:
            form = self._forms[key] = self._form_of(len(args), tuple(kwargs))
            if form is None and not kwargs:
                self.unchanged.add(len(args))
        return (args, kwargs) if form is None else form.of(args, kwargs)

    def _form_of(self, count: int, names: tuple[str, ...]) -> _Form | None:
        """How to change calls with `count` positional arguments and others with these `names`; None
        if they stay as they are.
        """
        if self._signature is None:
            return None
        try:
            bound = self._signature.bind(*map(_Position, range(count)), **{x: x for x in names})
        except TypeError:
            # the function raises a better one
            return None
        form = _Form([], {})
        is_prefix = True
        for name, x in self._signature.parameters.items():
            value = bound.arguments.get(name, x.default)
            is_given = name in bound.arguments
            if x.kind is Parameter.VAR_POSITIONAL:
                form.args += bound.arguments.get(name, ())
            elif x.kind is Parameter.VAR_KEYWORD:
                form.kwargs |= bound.arguments.get(name, {})
            elif not is_given and not isinstance(x.default, _PLAIN):
                is_prefix = False
            elif is_prefix and x.kind is not Parameter.KEYWORD_ONLY:
                form.args.append(value if is_given else _Default(value))
            else:
                form.kwargs[name] = value if is_given else _Default(value)
        is_same = form.args == list(map(_Position, range(count))) and list(form.kwargs) == [*names]
        return None if is_same else form


_PLAIN = (type(None), bool, int, float, complex, str, bytes)


@dataclass(frozen=True)
class _Position:
    """An argument that is given by position."""

    index: int


@dataclass(frozen=True)
class _Default:
    """An argument that is not given."""

    value: Any


@dataclass
class _Form:
    """Where the arguments are: positions, names, or defaults."""

    args: list[Any]
    kwargs: dict[str, Any]

    def of(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call in another form."""

        def find(source: _Position | _Default | str) -> Any:
            if isinstance(source, str):
                return kwargs[source]
            return args[source.index] if isinstance(source, _Position) else source.value

        return tuple(map(find, self.args)), {name: find(x) for name, x in self.kwargs.items()}


def find_inputs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Inputs:
    """Collect the tensors, Variables and Python values of a call; tensors are realized.

    Raises:
        JitError: two tensors share memory other than as views of one tensor, or one Variable is
            bound to two values.
    """
    if not args and not kwargs:
        return _no_inputs(Tensor.training, Device.DEFAULT, dtypes.default_float)
    containers: list[tuple[Any, int]] = []
    found: list[tuple[str, Any]] = []
    for name, x in (*enumerate(args), *sorted(kwargs.items())) if kwargs else enumerate(args):
        if x.__class__ is Tensor:
            found.append((str(name), x))
        else:
            found += [(str(name), leaf) for leaf in leaves(x, containers)]
    tensors: list[tuple[str, Tensor]] = []
    graded, lazy = [], []
    for name, x in found:
        if not isinstance(x, Tensor):
            continue
        tensors.append((name, x))
        # a function may leave a gradient in these, or find one there
        if x._requires_grad or x.grad is not None:
            graded.append((name, x))
        if x._steps or x.uop.op is not Ops.BUFFER:
            lazy.append(x)
    if graded:
        gradients = [(f"{name}.grad", x.grad) for name, x in graded if x.grad is not None]
        found += gradients
        tensors += gradients
        lazy += [x for _, x in gradients if x._steps or x.uop.op is not Ops.BUFFER]
    if lazy:
        _realize_wholes(lazy)
        _realize([x for x in lazy if x.uop.op is not Ops.BUFFER])
    if len(tensors) > 1:
        _separate([x for _, x in tensors])
    inputs = Inputs()
    if containers:
        inputs.containers = containers
        inputs.outline = [(type(x), size) for x, size in containers]
        # code of these classes may run, too
        inputs.objects += {type(x): None for x, _ in containers}
    if graded:
        inputs.fixed += [(name, x.requires_grad, x.grad is None) for name, x in graded]
        inputs.leaves = [isinstance(x._requires_grad, Leaf) for _, x in graded]
    for name, leaf in found:
        if isinstance(leaf, Tensor):
            inputs.add_tensor(name, leaf)
        elif _is_bound(leaf):
            variable, value = leaf.unbind()
            inputs.add_value(variable.arg[0], argument_of(variable, value))
            inputs.signature.append((name, variable))
        else:
            inputs.add_object(name, leaf)
    if len(inputs.memories) > 1 and _share_memory(inputs):
        raise JitError("two arguments share one buffer; pass a .clone() of one of them")
    return inputs


def _separate(tensors: list[Tensor]) -> None:
    """Give arguments that share memory, but are no aliases, memory of their own."""
    known: dict[int, Tensor] = {}
    for x in tensors:
        base = view_base(x.uop)
        other = known.setdefault(id(base.memory), x)
        if other is not x and base.op is Ops.BUFFER and other._own_cell() is not x._own_cell():
            own_memory(other)
            own_memory(x)


def _share_memory(inputs: Inputs) -> bool:
    """Whether two of the memories are the same, in this process or another."""
    known = [b.base or b for b in inputs.buffers]
    tokens = [token for x in inputs.memories for token in x.tokens]
    return len(set(known)) < len(known) or len(set(tokens)) < len(tokens)


@lru_cache
def _no_inputs(*fixed: Any) -> Inputs:
    """The inputs of all calls without arguments, under these values that kernels depend on."""
    return Inputs()


def _realize_wholes(views: list[Tensor]) -> None:
    """Realize what views are views of, so that writes to either are seen by the other."""
    for x in views:
        group = x._cell
        if group is None or not x._steps:
            continue
        if view_base(group.uop).op is Ops.BUFFER or group.leave(x):
            continue
        whole = whole_tensor(x)
        if is_constant(whole.uop):
            store_constant(whole)
        realize_all((whole,))


def _realize(tensors: list[Tensor]) -> None:
    for x in tensors:
        if is_constant(x.uop):
            # a constant is stored, so that another call may pass another value
            store_constant(whole_tensor(x))
    if tensors:
        realize_all(tensors)


def _is_bound(x: Any) -> bool:
    return isinstance(x, UOp) and x.op is Ops.BIND


@dataclass(frozen=True, eq=False)
class _ById:
    """An object compared by identity, and kept alive so that its id is not reused."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def comparable(x: Any) -> Any:
    """A key that is equal for values that a function cannot tell apart: type and text of a number,
    content of an array, identity of anything else.
    """
    if x is None or isinstance(x, (int, float, complex, str, bytes, range)):
        # Python says 1 == True == 1.0, 0.0 == -0.0, and nan != nan; a function may differ
        return type(x), repr(x)
    try:
        content = memoryview(x)
    except (TypeError, ValueError, BufferError):
        return _ById(x)
    return type(x), content.format, content.shape, content.tobytes()


def differs_in_views(old: list[Any], new: list[Any]) -> bool:
    """Whether two signatures differ only in which view of its memory a tensor is."""
    kinds = [[(name, _kind(found)) for name, found in signature] for signature in (old, new)]
    return old != new and kinds[0] == kinds[1]


def difference(old: list[Any], new: list[Any]) -> str:
    """An error text that says how two unequal signatures differ."""
    if len(old) != len(new):
        return f"captured with {len(old)} tensors and Variables, called with {len(new)}"
    names = [", ".join(dict.fromkeys(name for name, _ in found)) for found in (old, new)]
    if names[0] != names[1]:
        return (
            f"captured with tensors and Variables in arguments {names[0]}, called with {names[1]}; "
            "give arguments by position or by name as in the captured call"
        )
    name, a, b = next((x[0], x[1], y[1]) for x, y in zip(old, new, strict=True) if x != y)
    if _kind(a) == _kind(b):
        return (
            f"argument {name} is {_describe(a)}, but another view of its memory than the captured "
            "one; pass .contiguous() of it"
        )
    return (
        f"argument {name} was captured as {_describe(a)}, and is now {_describe(b)}; make another "
        "TinyJit for that, or reset() this one"
    )


def _kind(found: Any) -> Any:
    """A Variable, or the dtype, shape and device of a tensor."""
    if isinstance(found, UOp) and found.op is not Ops.DEFINE_VAR:
        return found.dtype, found.shape, found.device
    return found[:3] if isinstance(found, tuple) else found


def _describe(found: Any) -> str:
    kind = _kind(found)
    if isinstance(kind, UOp):
        return str(kind.expr)
    dtype, shape, device = kind
    return f"{dtype} {shape} on {device}"
