"""Compiles LLVM IR text to object files, and links object files into this process.

`compile_llvm` returns an object file for this machine's CPU and keeps it in the disk cache; `link`
maps an object file and returns the addresses of its functions. Invariants: equal text, flags, CPU
and LLVM version give equal object files; linked code stays mapped while its `LinkedCode` lives, and
during interpreter exit. LLVM itself is locked by llvmlite: one thread at a time.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import llvmlite
import llvmlite.binding as llvm
from llvmlite.binding.newpassmanagers import NewPassManager

from tinygrad import diskcache
from tinygrad.device import CompileError
from tinygrad.renderer.host_cpu import host_cpu
from tinygrad.runtime.support import native
from tinygrad.runtime.support.address_space import require_headroom
from tinygrad.runtime.support.compile_workers import compile_workers
from tinygrad.settings import CACHELEVEL


@dataclass(frozen=True)
class Flags:
    """Options of LLVM's optimizer. Kernels are vectorized and tiled already: SLP is off."""

    speed_level: int = 2
    loop_vectorize: bool = True
    slp_vectorize: bool = False
    unroll: bool = True
    is_vectorized: bool = False
    """Run only `VECTORIZED_PASSES`: the module has explicit vectors, and its loops are hoisted."""


DEFAULT_FLAGS = Flags()
VECTORIZED_FLAGS = Flags(is_vectorized=True)

# A vectorized module needs its marked loops unrolled and its arrays promoted to registers, in half
# the time of a full pipeline. Common subexpressions are left to instruction selection: NewGVN, the
# only value numbering pass that llvmlite offers, miscompiles.
VECTORIZED_PASSES = (
    "simplify_cfg",
    "loop_unroll",
    "sroa",
    "instruction_combine",
    "simplify_cfg",
)


# LLVM 22 stores a lane of a truncated vector with the width that it had before, if the lane is the
# only one of a constant mask and the CPU has AVX-512 (llvm/llvm-project#179489, mended in LLVM 23)
_MASKED_INTEGER_STORE = re.compile(r"@llvm\.masked\.store\.v\d+i(8|16|32)\.")
_CONSTANT_MASK_STORE = re.compile(
    r"call void @llvm\.masked\.store\.v\d+i\d+\.p0\("
    r"<\d+ x (?P<kind>i\d+)> (?P<value>%[\w.]+), ptr align \d+ (?P<address>%[\w.]+), "
    r"<\d+ x i1> <(?P<mask>i1 [^>]*)>\)"
)


@dataclass(frozen=True)
class HostTarget:
    """The CPU of this process in LLVM's terms."""

    triple: str
    cpu: str
    features: str
    machine: Any
    data_layout: str

    @property
    def key(self) -> str:
        """A cache key: everything that an object file depends on besides source and flags."""
        version = ".".join(map(str, llvm.llvm_version_info))
        return f"{llvmlite.__version__}|{version}|{self.triple}|{self.cpu}|{self.features}"


@functools.cache
def host_target() -> HostTarget:
    """The CPU that kernels are compiled for, with all of its features."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    triple = llvm.get_process_triple()
    cpu = host_cpu()
    # Position independent, small code model: constants are within 2 GiB of their code, and the
    # linker emits stubs for calls to functions beyond 2 GiB.
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu.name, features=cpu.features, opt=2, reloc="pic", codemodel="small"
    )
    return HostTarget(triple, cpu.name, cpu.features, machine, str(machine.target_data))


def compile_llvm(source: str, flags: Flags = DEFAULT_FLAGS) -> bytes:
    """Compiles an LLVM IR module to an object file, or reads it from the disk cache.

    Raises CompileError, which shows the offending line, if the text is not a valid module, and
    OutOfMemoryError if there is no address space left.
    """
    key = _cache_key(source, flags)
    cached = diskcache.get("llvm", key) if CACHELEVEL else None
    if cached is not None:
        return cached
    code = compile_workers.take(key) or emit_object(source, flags)
    if CACHELEVEL:
        diskcache.put("llvm", key, code)
    return code


def compile_llvm_ahead(source: str, flags: Flags = DEFAULT_FLAGS) -> None:
    """Lets a worker process compile what `compile_llvm` is going to be asked for, if that is not in
    the disk cache.
    """
    key = _cache_key(source, flags)
    if not (CACHELEVEL and diskcache.has("llvm", key)):
        compile_workers.submit(key, emit_object, source, flags)


def _cache_key(source: str, flags: Flags) -> bytes:
    passes = VECTORIZED_PASSES if flags.is_vectorized else ()
    text = f"{host_target().key}|{flags}|{passes}|scalar stores|{source}"
    return hashlib.sha256(text.encode()).digest()


def emit_object(source: str, flags: Flags = DEFAULT_FLAGS) -> bytes:
    """Compiles an LLVM IR module to an object file, bypassing the cache.

    Raises CompileError, and OutOfMemoryError if there is no address space left.
    """
    require_headroom("compile a kernel")
    target = host_target()
    module = _optimize(source, flags)
    code = target.machine.emit_object(module)
    assert isinstance(code, bytes)
    return code


def emit_assembly(source: str, flags: Flags = DEFAULT_FLAGS) -> str:
    """The assembly text of an LLVM IR module, for debugging. Raises CompileError."""
    return str(host_target().machine.emit_assembly(_optimize(source, flags)))


def _optimize(source: str, flags: Flags) -> Any:
    target = host_target()
    # a new context: types and metadata would accumulate in the global one
    try:
        module = llvm.parse_assembly(source, llvm.create_context())
        module.verify()
    except RuntimeError as error:
        raise CompileError(_describe_error(str(error), source)) from None
    module.triple = target.triple
    module.data_layout = target.data_layout
    builder = _pass_builder(flags)
    if flags.is_vectorized:
        passes = llvm.create_new_module_pass_manager()
        for name in VECTORIZED_PASSES:
            getattr(passes, f"add_{name}_pass")()
    else:
        passes = builder.getModulePassManager()
    try:
        passes.run(module, builder)
    finally:
        # detach() alone does not free it: an empty method overrides the one that does
        NewPassManager._dispose(passes)
        passes.detach()
    if _MASKED_INTEGER_STORE.search(source):
        text = str(module)
        if (mended := with_scalar_stores(text)) != text:
            module = llvm.parse_assembly(mended, llvm.create_context())
    return module


def with_scalar_stores(text: str) -> str:
    """The text of a module with a scalar store in place of each masked store of one lane."""
    numbers = itertools.count()

    def scalar_store(store: re.Match[str]) -> str:
        lanes = [mask == "i1 true" for mask in store["mask"].split(", ")]
        if sum(lanes) != 1:
            return store[0]
        lane, kind, name = lanes.index(True), store["kind"], f"%lane{next(numbers)}"
        return (
            f"{name} = extractelement <{len(lanes)} x {kind}> {store['value']}, i64 {lane}\n"
            f"  {name}.at = getelementptr {kind}, ptr {store['address']}, i64 {lane}\n"
            f"  store {kind} {name}, ptr {name}.at, align 1"
        )

    return _CONSTANT_MASK_STORE.sub(scalar_store, text)


@functools.cache
def _pass_builder(flags: Flags) -> Any:
    """The builder of pass pipelines. Cached because LLVM leaks its memory."""
    options = llvm.create_pipeline_tuning_options(speed_level=flags.speed_level)
    options.loop_vectorization = flags.loop_vectorize
    options.loop_interleaving = flags.loop_vectorize
    options.slp_vectorization = flags.slp_vectorize
    options.loop_unrolling = flags.unroll
    return llvm.create_pass_builder(host_target().machine, options)


def _describe_error(message: str, source: str) -> str:
    """LLVM's message, with the line that it names and the two before it."""
    found = re.search(r"<string>:(\d+):", message)
    if found is None:
        return f"LLVM rejects the kernel: {message.strip()}\n{source}"
    number = int(found.group(1))
    lines = source.splitlines()[:number][-3:]
    first = number - len(lines) + 1
    excerpt = "\n".join(f"{first + i:5d} | {line}" for i, line in enumerate(lines))
    reason = message.split("error:", 1)[-1].strip().splitlines()[0]
    return f"LLVM rejects the kernel at line {number}: {reason}\n{excerpt}"


class LinkedCode:
    """Machine code in this process, mapped as long as this object lives."""

    def __init__(self, trackers: tuple[Any, ...], names: Sequence[str]) -> None:
        self._trackers = trackers
        self.addresses: dict[str, int] = {name: int(trackers[0][name]) for name in names}

    def __getitem__(self, name: str) -> int:
        """The address of a function."""
        return self.addresses[name]


# A linker never frees some memory per library. So a new linker replaces it after this many, and it
# is freed with the last of its libraries.
LIBRARIES_PER_LINKER = 64
_library_numbers = itertools.count()


@functools.lru_cache(maxsize=1)
def _linker(number: int) -> tuple[Any, Any]:
    """Creates linker number `number`, with `native/half.c` linked.

    JITLink maps an object in one piece. LLVM's older linker, the default, maps each section alone:
    they may end up more than 2 GiB apart, out of reach of a relocation, and LLVM aborts.
    """
    host_target()  # registers the target
    linker = llvm.create_lljit_compiler(use_jit_link=True)
    library = llvm.JITLibraryBuilder().add_object_img(compile_llvm(native.load_ir("half")))
    library.add_current_process().export_symbol("__truncsfhf2")
    return linker, library.link(linker, "half")


def link(code: bytes, *names: str) -> LinkedCode:
    """Links an object file into this process and looks up the functions `names`.

    The C library, libm and `native/half.c` resolve. Raises CompileError if the bytes are not an
    object file for this machine, or if a symbol is missing, and OutOfMemoryError if there is no
    address space left.
    """
    require_headroom("load a kernel")
    library_number = next(_library_numbers)
    linker, half = _linker(library_number // LIBRARIES_PER_LINKER)
    library = llvm.JITLibraryBuilder().add_object_img(code)
    library.add_jit_library("half").add_current_process()
    for name in names:
        library.export_symbol(name)
    try:
        tracker = library.link(linker, f"library{library_number}")
    except RuntimeError as error:
        raise CompileError(f"cannot link {', '.join(names)}: {str(error).strip()}") from None
    return LinkedCode((tracker, half), names)
