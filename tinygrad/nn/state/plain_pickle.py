"""Pickles of plain data, read without running anything.

Input: a pickle, and the few globals that it may name. Output: dictionaries, lists, tuples, sets,
strings, numbers, and results of the given functions. Invariants: nothing is imported, no attribute
is set, and only those functions are called; time and memory are linear in the length of the pickle.
`pickletools` of the standard library decodes the opcodes; this module interprets them.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from tinygrad.dtype import DType
from tinygrad.nn.state.file_bytes import FileFormatError, shown

PUSHED = frozenset(
    {
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE"),
        *("BINUNICODE8", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    }
)
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
EMPTY = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": set, "EMPTY_TUPLE": tuple}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
MEMO_PUT = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
MEMO_GET = frozenset({"GET", "BINGET", "LONG_BINGET"})
# no checkpoint has larger ones, and formatting them would be slow
MAX_INTEGER_BITS = 8192
MAX_KEY_PARTS = 64
SCALARS = (str, bytes, int, float, DType, type(None))


@dataclass(frozen=True)
class Constructor:
    """A function that a pickle may call, with the tuple of its arguments."""

    function: Callable[[tuple[Any, ...]], Any]


Globals = Mapping[tuple[str, str], Any]


def load_plain(file: BinaryIO, names: Globals, persistent: Callable[[Any], Any]) -> Any:
    """Load the pickle at the position of `file`, and advance past it.

    `names` are the globals that it may name, by module and name; `persistent` maps a persistent id
    to an object. Raises FileFormatError if the pickle is damaged or names anything else.
    """
    return _Machine(names, persistent).run(_operations(file))


def _operations(file: BinaryIO) -> Iterator[tuple[str, Any]]:
    """The names and arguments of a pickle's opcodes."""
    try:
        for operation, argument, _ in pickletools.genops(file):
            yield operation.name, argument
    except (ValueError, OverflowError, IndexError) as error:
        raise FileFormatError(f"the pickle is damaged or was cut off: {error}") from error


class _Machine:
    """The stack, the stacks below the marks, and the memo of a pickle that is being read."""

    def __init__(self, names: Globals, persistent: Callable[[Any], Any]) -> None:
        self.names = names
        self.persistent = persistent
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def run(self, operations: Iterator[tuple[str, Any]]) -> Any:
        """The top of the stack when the pickle stops."""
        for name, argument in operations:
            self.step(name, argument)
        result = self.pop()
        if self.stack or self.below:
            raise FileFormatError("the pickle is damaged: it stops in the middle of an object")
        return result

    def step(self, name: str, argument: Any) -> None:
        """Interpret one opcode."""
        if name in PUSHED:
            self.stack.append(_checked_constant(argument))
        elif name in CONSTANTS:
            self.stack.append(CONSTANTS[name])
        elif name in EMPTY:
            self.stack.append(EMPTY[name]())
        elif name in TUPLES:
            self.stack.append(self.pop_many(TUPLES[name]))
        elif name in MEMO_PUT:
            self.memo[argument] = self.top()
        elif name in MEMO_GET:
            if argument not in self.memo:
                raise FileFormatError(f"the pickle is damaged: it has no object {argument}")
            self.stack.append(self.memo[argument])
        elif name in OPERATIONS:
            OPERATIONS[name](self)
        elif name == "GLOBAL":
            self.stack.append(self.find(*argument.partition(" ")[::2]))
        elif name == "PERSID":
            self.stack.append(self.persistent(argument))
        elif name not in {"PROTO", "FRAME", "STOP"}:
            raise FileFormatError(f"the pickle uses {name}, which plain data has no need of")

    # ---- the stack ----

    def top(self) -> Any:
        if not self.stack:
            raise FileFormatError("the pickle is damaged: it takes an object that is not there")
        return self.stack[-1]

    def pop(self) -> Any:
        found = self.top()
        self.stack.pop()
        return found

    def pop_many(self, count: int) -> tuple[Any, ...]:
        return tuple(reversed([self.pop() for _ in range(count)]))

    def mark(self) -> None:
        self.below.append(self.stack)
        self.stack = []

    def pop_mark(self) -> list[Any]:
        """The objects above the last mark."""
        if not self.below:
            raise FileFormatError("the pickle is damaged: it takes a mark that is not there")
        found, self.stack = self.stack, self.below.pop()
        return found

    def pop_or_pop_mark(self) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self.pop_mark()

    def memoize(self) -> None:
        self.memo[len(self.memo)] = self.top()

    # ---- containers ----

    def collect(self, container: Callable[[list[Any]], Any]) -> None:
        values = self.pop_mark()
        self.stack.append(container(values))

    def append(self, values: list[Any]) -> None:
        target = self.top()
        if type(target) is not list:
            raise FileFormatError(f"the pickle appends to {shown(target)}, which is not a list")
        target.extend(values)

    def set_items(self, values: list[Any]) -> None:
        target = self.top()
        if type(target) is not dict:
            raise FileFormatError(f"the pickle sets items of {shown(target)}, which has none")
        target.update(_pairs(values))

    def add_items(self) -> None:
        values = self.pop_mark()
        target = self.top()
        if type(target) is not set:
            raise FileFormatError(f"the pickle adds to {shown(target)}, which is not a set")
        target.update(map(checked_key, values))

    # ---- globals ----

    def find(self, module: Any, name: Any) -> Any:
        """A global, if it is allowed."""
        if not isinstance(module, str) or not isinstance(name, str):
            raise FileFormatError(f"the pickle names the global {shown(module)}.{shown(name)}")
        if (module, name) not in self.names:
            raise FileFormatError(
                f"the pickle names {shown(f'{module}.{name}')}, which is not loaded: it could run "
                "code; save tensors, numbers, strings and plain containers alone"
            )
        return self.names[module, name]

    def find_on_stack(self) -> None:
        self.stack.append(self.find(*self.pop_many(2)))

    def call(self) -> None:
        function, arguments = self.pop_many(2)
        if not isinstance(function, Constructor) or type(arguments) is not tuple:
            raise FileFormatError(
                f"the pickle calls {shown(function)}, which is not a known function"
            )
        self.stack.append(function.function(arguments))

    def find_persistent(self) -> None:
        self.stack.append(self.persistent(self.pop()))


# attributes of container subclasses and of tensors are not plain data, and are dropped
OPERATIONS: dict[str, Callable[[_Machine], Any]] = {
    "MARK": _Machine.mark,
    "POP": _Machine.pop_or_pop_mark,
    "POP_MARK": _Machine.pop_mark,
    "DUP": lambda machine: machine.stack.append(machine.top()),
    "MEMOIZE": _Machine.memoize,
    "LIST": lambda machine: machine.collect(list),
    "TUPLE": lambda machine: machine.collect(tuple),
    "DICT": lambda machine: machine.collect(_as_dict),
    "FROZENSET": lambda machine: machine.collect(_as_frozenset),
    "APPEND": lambda machine: machine.append([machine.pop()]),
    "APPENDS": lambda machine: machine.append(machine.pop_mark()),
    "SETITEM": lambda machine: machine.set_items(list(machine.pop_many(2))),
    "SETITEMS": lambda machine: machine.set_items(machine.pop_mark()),
    "ADDITEMS": _Machine.add_items,
    "STACK_GLOBAL": _Machine.find_on_stack,
    "REDUCE": _Machine.call,
    "NEWOBJ": _Machine.call,
    "BUILD": _Machine.pop,
    "BINPERSID": _Machine.find_persistent,
}


def checked_key(value: Any) -> Any:
    """A dictionary key or a set element. Raises FileFormatError unless it is flat.

    Hashing a tuple of tuples of the same tuples takes time that doubles with every level.
    """
    parts = value if type(value) is tuple else (value,)
    if len(parts) > MAX_KEY_PARTS or not all(isinstance(part, SCALARS) for part in parts):
        raise FileFormatError(
            f"the pickle has {shown(value)} for a key; keys are strings, numbers and tuples of them"
        )
    return value


def _pairs(values: list[Any]) -> Iterator[tuple[Any, Any]]:
    if len(values) % 2:
        raise FileFormatError("the pickle is damaged: it has a key without a value")
    return zip(map(checked_key, values[::2]), values[1::2], strict=True)


def _as_dict(values: list[Any]) -> dict[Any, Any]:
    return dict(_pairs(values))


def _as_frozenset(values: list[Any]) -> frozenset[Any]:
    return frozenset(map(checked_key, values))


def _checked_constant(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
        raise FileFormatError(f"the pickle has an integer of {value.bit_length()} bits")
    return value
