"""Every setting of the library, declared once.

Input: the process environment, read here and nowhere else. Output: one `ContextVar` a setting, the
`Context` manager that changes them for a block, and `getenv` for the programs built on the library.
Invariants: a setting's value has the type of its default and is one of its choices. A change is
seen by the thread that made it, and by threads that are started in a copy of its context.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

T = TypeVar("T", int, str)


class SettingError(ValueError):
    """A setting that does not exist, or a value that the setting cannot take."""


class ContextVar(Generic[T]):
    """A setting: an `int` or `str` that comes from the environment and that `Context` can change.

    It compares and tests like its value (`DEBUG >= 2`, `if JIT`); `.value` is the value itself.
    Declaring a name a second time gives the first object back, so a program may be re-run in one
    process. Raises SettingError if the environment holds something the setting cannot take.

    >>> BEAM.value, BEAM > 5
    (0, False)
    """

    declared: ClassVar[dict[str, ContextVar[Any]]] = {}
    key: str
    default: T
    meaning: str
    choices: tuple[T, ...]
    get: Callable[[], T]
    """Returns the value, in half the time of `value`."""
    _current: contextvars.ContextVar[T]

    def __new__(
        cls, key: str, default: T, meaning: str = "", choices: tuple[T, ...] = ()
    ) -> ContextVar[T]:
        if key in cls.declared:
            return cls.declared[key]
        self = super().__new__(cls)
        self.key, self.default, self.meaning, self.choices = key, default, meaning, choices
        text = os.environ.get(key, "")
        initial = self.check(_parse(key, text, default)) if text else default
        self._current = contextvars.ContextVar(key, default=initial)
        self.get = self._current.get
        cls.declared[key] = self
        return self

    @property
    def value(self) -> T:
        """The value that this thread sees. Setting it changes the value for this thread."""
        return self._current.get()

    @value.setter
    def value(self, value: T) -> None:
        self._current.set(self.check(value))

    def check(self, value: T) -> T:
        """The value, unchanged. Raises SettingError unless it fits the type and the choices.

        >>> BEAM.check(7)
        7
        """
        if not isinstance(value, type(self.default)):
            raise SettingError(
                f"{self.key}={value!r} is a {type(value).__name__}; "
                f"{self.key} takes {_type_name(self.default)}"
            )
        if self.choices and value not in self.choices:
            allowed = ", ".join(repr(choice) for choice in self.choices)
            raise SettingError(f"{self.key}={value!r} is not a choice; {self.key} takes {allowed}")
        return value

    def __repr__(self) -> str:
        return f"ContextVar({self.key}={self.value!r})"

    def __bool__(self) -> bool:
        return bool(self._current.get())

    def __int__(self) -> int:
        return int(self.value)

    # equal by value and yet changeable, so it must not be a dictionary key
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return bool(self._current.get() == other)

    def __lt__(self, other: T) -> bool:
        return self._current.get() < other

    def __le__(self, other: T) -> bool:
        return self._current.get() <= other

    def __gt__(self, other: T) -> bool:
        return self._current.get() > other

    def __ge__(self, other: T) -> bool:
        return self._current.get() >= other


class Context(contextlib.ContextDecorator):
    """Changes settings of this thread for a `with` block or the calls of a function.

    `with Context(DEBUG=2, BEAM=0): ...` or `@Context(DEBUG=2)`. Raises SettingError for a name that
    is not a setting and for a value that the setting cannot take; then nothing is changed.

    >>> with Context(BEAM=2):
    ...     BEAM.value
    2
    >>> BEAM.value
    0
    """

    def __init__(self, **values: int | str) -> None:
        for name, value in values.items():
            find_setting(name).check(value)
        self.values = values
        self._saved: list[dict[str, int | str]] = []

    def _recreate_cm(self) -> Self:
        # a decorated function may run in several threads at a time, each with values to restore
        return type(self)(**self.values)

    def __enter__(self) -> Context:
        self._saved.append({name: ContextVar.declared[name].value for name in self.values})
        for name, value in self.values.items():
            ContextVar.declared[name].value = value
        return self

    def __exit__(self, *exception: object) -> None:
        for name, value in self._saved.pop().items():
            ContextVar.declared[name].value = value


def find_setting(name: str) -> ContextVar[Any]:
    """The setting called `name`. Raises SettingError, naming the nearest settings, if none is."""
    if name in ContextVar.declared:
        return ContextVar.declared[name]
    import difflib

    near = difflib.get_close_matches(name.upper(), ContextVar.declared, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "docs/settings.md lists them all"
    raise SettingError(f"{name} is not a setting; {hint}")


def _type_name(default: object) -> str:
    return "text" if isinstance(default, str) else "a whole number"


def _parse(key: str, text: str, default: Any) -> Any:
    """`text` in the type of `default`."""
    if isinstance(default, str):
        return text
    kind = int if isinstance(default, bool) else type(default)
    try:
        return type(default)(kind(text))
    except ValueError as error:
        wanted = "a number" if isinstance(default, float) else "a whole number"
        raise SettingError(f"{key}={text!r} in the environment is not {wanted}") from error


@overload
def getenv(key: str) -> int: ...
@overload
def getenv(key: str, default: bool) -> bool: ...
@overload
def getenv(key: str, default: int) -> int: ...
@overload
def getenv(key: str, default: float) -> float: ...
@overload
def getenv(key: str, default: str) -> str: ...
def getenv(key: str, default: Any = 0) -> Any:
    """A program's own variable (`GPUS`, `BS`, ...), in the type of `default`; read once.

    An empty or missing variable gives `default`. Raises SettingError if the text is no such number.

    >>> getenv("EXAMPLE_BATCH", 64)
    64
    """
    return cached_getenv(key, default)


@functools.lru_cache(maxsize=None, typed=True)
def cached_getenv(key: str, default: Any) -> Any:
    text = os.environ.get(key, "")
    return _parse(key, text, default) if text else default


NO_EFFECT = "Accepted for compatibility; no effect."

DEBUG = ContextVar(
    "DEBUG",
    0,
    "How much to print: 2 each kernel and transfer as it runs, 3 also how a kernel "
    "was optimized, 4 also its source, 5 also the result of every compiler pass.",
)
DEV = ContextVar(
    "DEV",
    "",
    "The default device (`DEV=CPU`; `CPU=1` means the same). `CPU:LLVM` and `CPU:CLANG` set "
    "`CPU_LLVM` too.",
)
CPU_RENDERERS = {"LLVM": True, "CLANG": False}
"""What may stand after `DEV=CPU:`, and whether it is LLVM."""
CPU_COUNT = ContextVar(
    "CPU_COUNT", 0, "Worker threads of all CPU devices together; 0 is one for each available core."
)
RANKS = ContextVar(
    "RANKS", "", "`mpi` joins the processes of an MPI launcher when the package is imported."
)
RANK_DEVICES = ContextVar(
    "RANK_DEVICES", 1, "The devices of each kind that a rank has, if `RANKS` is set."
)
RANK_HOST = ContextVar(
    "RANK_HOST", "", "The name of the host of this rank; empty is the name that MPI gives."
)
RANKS_TIMEOUT = ContextVar(
    "RANKS_TIMEOUT",
    10,
    "The seconds that a rank waits for another before it compares what both did.",
)
CPU_ARCH = ContextVar(
    "CPU_ARCH",
    "",
    "The level of x86-64 that CPU kernels are compiled for; empty is this machine's processor.",
    choices=("", "x86-64-v2", "x86-64-v3", "x86-64-v4"),
)
CPU_LLVM = ContextVar(
    "CPU_LLVM", 1, "1 compiles CPU kernels in-process with LLVM, 0 with the system's C compiler."
)
DEVICES_PER_GPU = ContextVar(
    "DEVICES_PER_GPU",
    1,
    "Logical devices on each GPU: with 4, `CUDA:0` to `CUDA:3` share the first one, to try a "
    "program for several GPUs on one.",
)
DEFAULT_FLOAT = ContextVar("DEFAULT_FLOAT", "float32", "The dtype of Python floats and of `rand`.")

JIT = ContextVar("JIT", 1, "0 turns `TinyJit` off, 1 replays a captured step as one call.")
JIT_VERIFY = ContextVar(
    "JIT_VERIFY",
    0,
    "1 also runs the function for each replay of `TinyJit`, and raises JitError if they differ.",
)
STATE_POLICY = ContextVar(
    "STATE_POLICY",
    1,
    "0 computes no lazy value before what it reads is overwritten, but copies the older content: "
    "for tests of that.",
)
BEAM = ContextVar(
    "BEAM",
    0,
    "On GPUs, how many other mappings of a kernel to threads are timed when it is first compiled. "
    "The fastest is kept in the disk cache.",
)
NOOPT = ContextVar("NOOPT", 0, "1 leaves kernels as plain loops.")
WINO = ContextVar("WINO", 0, "1 computes 3x3 convolutions by Winograd's algorithm.")
ALLOW_TF32 = ContextVar(
    "ALLOW_TF32",
    0,
    "1 lets matrix units of GPUs round factors of float32 products to 11 significant bits.",
)
TC = ContextVar(
    "TC",
    1,
    "0 computes products by multiply-adds, also where the device has matrix instructions: tensor "
    "cores, or AMX and AVX512-BF16 of a CPU.",
)
TRANSCENDENTAL = ContextVar("TRANSCENDENTAL", 1, NO_EFFECT)
SPLIT_REDUCEOP = ContextVar("SPLIT_REDUCEOP", 1, "1 splits large reductions into two kernels.")
FUSE_OPTIM = ContextVar("FUSE_OPTIM", 0, "1 updates all parameters of an optimizer as one tensor.")
IMAGE = ContextVar("IMAGE", 0, NO_EFFECT)

SHARDING = ContextVar(
    "SHARDING",
    "",
    "`strict` makes implicit resharding an error.",
    choices=("", "strict"),
)
RING = ContextVar(
    "RING", 0, "1 all-reduces large tensors around a ring; 0 does so only if ALL2ALL is 0 too."
)
ALL2ALL = ContextVar(
    "ALL2ALL",
    1,
    "1 all-reduces large tensors in two all-to-all rounds, and with several nodes inside of each "
    "node first; 2 ignores nodes.",
)
ALLREDUCE_CAST = ContextVar(
    "ALLREDUCE_CAST",
    0,
    "1 rounds partial sums to the narrower float dtype that their sum is cast to, such as that of "
    "bfloat16 gradients, before they are all-reduced or reduce-scattered: half the bytes.",
)

SPEC = ContextVar(
    "SPEC", 0, "Checks graphs: 1 before and after each compiler pass, 2 after every rewrite too."
)
PROFILE = ContextVar("PROFILE", 0, NO_EFFECT)
VIZ = ContextVar("VIZ", 0, NO_EFFECT)
MEMORY_PLANNER = ContextVar("MEMORY_PLANNER", 1, "1 lets buffers with disjoint lives share memory.")
SCHEDULE_CACHE = ContextVar("SCHEDULE_CACHE", 1, "1 schedules graphs of the same structure once.")
CACHE_MB = ContextVar(
    "CACHE_MB",
    256,
    "The memory in MiB of cached plans and compiled kernels, by estimate; at most 1/16 of the "
    "memory that the process may use. The least recently used are dropped.",
)
CACHELEVEL = ContextVar(
    "CACHELEVEL",
    2,
    "What the disk cache keeps: 0 nothing, 1 the machine code of a kernel's source, 2 also the "
    "source of its graph, so that a kernel that was compiled before needs no code generation.",
)
CACHEDIR = ContextVar("CACHEDIR", "", "The folder of caches; empty is the user's cache folder.")
LLM_API_KEY = ContextVar(
    "LLM_API_KEY", "", "The API key of the language model server; empty is none."
)
LLM_EXACT = ContextVar(
    "LLM_EXACT",
    0,
    "1 computes language models in float32; 0 rounds what is multiplied by a quantised matrix in a "
    "prompt, and the matrix, to bfloat16 where the device has matrix instructions for it, and "
    "keeps KV caches in float16.",
)
NO_COLOR = ContextVar("NO_COLOR", "", "Anything but empty prints without colours.")

_OFF = """
AMD_LLVM AMX ASM_GEMM ASSERT_MIN_STEP_TIME BEAM_DEBUG BEAM_ESTIMATE BLOCK_REORDER
CAPTURE_PROCESS_REPLAY CHECK_OOB CORRECT_DIVMOD_FOLDING CPU_CC CPU_LVP CUDA_CC CUDA_PTX
DEBUG_LINEARIZE DEBUG_RANGEIFY DISABLE_COMPILER_CACHE DISABLE_FAST_IDIV DISALLOW_BROADCAST
DONT_GROUP_REDUCES DONT_REALIZE_EXPAND FLOAT16 FUSE_ARANGE FUSE_ATTENTION FUSE_CONV_BW
GRAPH_ONE_KERNEL IGNORE_BEAM_CACHE IGNORE_OOB JITBEAM JIT_DEVICE_ONLY MAX_KERNEL_BUFFERS NOLOCALS
NO_MEMORY_PLANNER NV_CC NV_PTX PCONTIG PICKLE_BUFFERS PMC PRINT_MATCH_STATS QUANTIZE RANGEIFY
REAL_SUBSTITUTE SQTT TC_OPT TRACK_MATCH_STATS TUPLE_ORDER USE_ATOMICS VALIDATE_WITH_CPU
"""
_ON = "CAPTURING DEVECTORIZE LRU SCACHE TRACEMETA USE_TC"

COMPATIBLE: dict[str, int | str] = {
    **dict.fromkeys(_OFF.split(), 0),
    **dict.fromkeys(_ON.split(), 1),
    "EMULATE": "",
    "EMULATED_DTYPES": "",
    "JIT_BATCH_SIZE": 32,
    "TC_SELECT": -1,
}
"""Settings of tinygrad 0.12 that mean nothing here, and their defaults: programs may set them."""
for _name, _default in COMPATIBLE.items():
    ContextVar[Any](_name, _default)


def cache_directory() -> Path:
    """The folder of all caches; not created here."""
    if CACHEDIR:
        return Path(CACHEDIR.value)
    # the XDG Base Directory Specification, and Apple's File System Programming Guide
    default = Path.home() / ("Library/Caches" if OSX else ".cache")
    return Path(os.environ.get("XDG_CACHE_HOME") or default, "tinygrad-sharding")


ENVIRONMENT = os.environ
"""The variables of the process, for captured functions that read them."""
CI = bool(os.environ.get("CI"))
"""Whether this runs in continuous integration: its services set CI."""
OSX = sys.platform == "darwin"
"""Whether this machine runs macOS."""
WIN = sys.platform == "win32"
"""Whether this machine runs Windows."""


def thread_count() -> int:
    """How many threads the CPU devices share: CPU_COUNT, or every core this process may use."""
    if CPU_COUNT > 0:
        return CPU_COUNT.value
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _with_renderer(device: str) -> tuple[str, str]:
    """A device and its renderer, of a name like CPU:LLVM; no renderer in any other name."""
    kind, _, renderer = device.upper().partition(":")
    return (kind, renderer) if kind == "CPU" and renderer in CPU_RENDERERS else (device, "")


def compiles_with_llvm() -> bool:
    """Whether LLVM compiles CPU kernels: as `DEV=CPU:LLVM` or `DEV=CPU:CLANG` says, or CPU_LLVM."""
    return CPU_RENDERERS.get(_with_renderer(DEV.value)[1], bool(CPU_LLVM))


def requested_device(known: Iterable[str]) -> str:
    """The device the user asks for by `DEV=NAME` or by `NAME=1`, or "" if none is asked for.

    `known` are the names that may stand in `NAME=1`. Raises SettingError if two of them do.
    """
    if DEV:
        return _with_renderer(DEV.value)[0]
    asked = [name for name in known if os.environ.get(name) == "1"]
    if len(asked) > 1:
        raise SettingError(f"{' and '.join(asked)} are both set to 1; set one, or DEV={asked[0]}")
    return asked[0] if asked else ""


def settings_table() -> str:
    """All documented settings as a Markdown table, in the order of their declaration."""
    rows = ["| Name | Type | Default | Meaning |", "| --- | --- | --- | --- |"]
    for setting in ContextVar.declared.values():
        if setting.meaning:
            default = f"`{setting.default}`" if setting.default != "" else "empty"
            kind = type(setting.default).__name__
            rows.append(f"| `{setting.key}` | {kind} | {default} | {setting.meaning} |")
    return "\n".join(rows) + "\n"


def settings_page() -> str:
    """The text of docs/settings.md."""
    import textwrap

    return f"""# Settings

A setting is an environment variable that is read when the library is imported, for example in
`DEBUG=2 python program.py`.
`with Context(DEBUG=2):` changes it for a block of code in the current thread, except `DEV`,
`CPU_ARCH`, `CPU_COUNT`, `CPU_LLVM` and `DEFAULT_FLOAT`, which are read once.
This page is made from `tinygrad/settings.py` by `python docs/generate_settings.py`.

{settings_table()}
These settings of tinygrad 0.12 are accepted, in the environment and by `Context`, without effect:

{textwrap.fill(", ".join(f"`{name}`" for name in sorted(COMPATIBLE)), 100)}.
"""
