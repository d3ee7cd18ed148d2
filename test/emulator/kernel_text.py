"""The text of a kernel, CUDA, HIP or Metal, as C++.

Definitions in assembly are dropped, and those of barriers and shuffles, of which each use has a
place in the text that errors name: the headers of the emulator define the same names. All else is
compiled as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from test.emulator import compiler, metal_text

HEADERS = {
    "cuda": '#include "cuda.h"',
    "hip": '#include "hip.h"',
    "metal": "#define __HAVE_BFLOAT__",
}
"""What comes before a text of each dialect; Metal's includes its header itself."""
MAX_THREADS = 1024
UNBOUND_METAL_THREADS = 384
"""Threads of a kernel that does not say how many: so few where each takes many registers."""

_KERNEL = re.compile(
    r"__global__\s+(?:void\s+)?(?:__cluster_dims__\((?P<cluster>\d+), 1, 1\)\s*)?"
    r"(?:__launch_bounds__\s*\(\s*(?P<bound>\d+)[^)]*\)\s*)?(?:void\s+)?"
    r"(?P<name>\w+)\s*\("
)
_DYNAMIC_SHARED = re.compile(
    r"extern\s+__shared__\s+(?:__align__\s*\(\s*\d+\s*\)\s*)?(?P<type>[\w\s]+?)\s*(?P<name>\w+)\s*\[\s*\]"
)
# the declaration of an array; elsewhere `threadgroup` says where a pointer points to
_THREADGROUP_ARRAY = re.compile(r"\bthreadgroup\b(?=[^;(){}*&]*\[)")
_ASSEMBLY = re.compile(r"\b(asm|__asm__|__asm)\b")
_MEETING = re.compile(r"\b(block_barrier|warp_shuffle|matrix_descriptor)\s*\([^()]*\)\s*\{")
# these too, and what HIP's prelude says of clang's attributes, types and instructions
_OWN = re.compile(
    r"\b(block_barrier|warp_shuffle|half_of_bits|bits_of_half|half_to_float|float_to_half"
    r"|bfloat16_of_bits|bits_of_bfloat16|bfloat16_to_float|float_to_bfloat16)\s*\([^()]*\)\s*\{"
    r"|#define __(global|device|shared|launch_bounds)__|typedef (_Float16|__bf16)"
    r"|ext_vector_type|__builtin_amdgcn_w?m(fma|ma)"
)


@dataclass(frozen=True)
class Kernel:
    """A kernel, and the function whose parameters are those of launches."""

    name: str
    max_threads: int = MAX_THREADS
    cluster: int = 1
    """Blocks that run together."""
    caller: str = ""
    """The text of that function, if it is not the kernel itself."""

    @property
    def function(self) -> str:
        return f"{self.name}__caller" if self.caller else self.name


def find_kernels(source: str, dialect: str) -> list[Kernel]:
    """The kernels that a text defines."""
    if dialect == "metal":
        return [
            Kernel(kernel.name, kernel.max_threads or UNBOUND_METAL_THREADS, caller=kernel.caller)
            for kernel in metal_text.find_kernels(source)
        ]
    return [
        Kernel(found["name"], int(found["bound"] or MAX_THREADS), int(found["cluster"] or 1))
        for found in _KERNEL.finditer(source)
    ]


def definitions(source: str) -> Iterator[str]:
    """The text cut into definitions at file scope and directives of the preprocessor."""
    start = depth = position = 0
    while position < len(source):
        character = source[position]
        if character == "#" and depth == 0:
            position = _end_of_directive(source, position)
        elif source.startswith(("//", "/*"), position):
            position = _end_of_comment(source, position)
            continue
        elif character in "\"'":
            position = _end_of_literal(source, position)
            continue
        else:
            position += 1
            depth += {"{": 1, "}": -1}.get(character, 0)
            is_end = depth == 0 and character in "};"
            if not is_end or _continues(source, position, character):
                continue
        yield source[start:position]
        start = position
    yield source[start:]


def _continues(source: str, position: int, last: str) -> bool:
    """Whether a `;` or a declarator follows a brace: of a struct or an initialiser."""
    return last == "}" and re.match(r"\s*[;\w]*\s*;", source[position:]) is not None


def _end_of_directive(source: str, position: int) -> int:
    while (end := source.find("\n", position)) >= 0:
        if source[end - 1] != "\\":
            return end + 1
        position = end + 1
    return len(source)


def _end_of_comment(source: str, position: int) -> int:
    end = "\n" if source[position + 1] == "/" else "*/"
    found = source.find(end, position + 2)
    return len(source) if found < 0 else found + len(end)


def _end_of_literal(source: str, position: int) -> int:
    quote = source[position]
    position += 1
    while position < len(source) and source[position] != quote:
        position += 2 if source[position] == "\\" else 1
    return position + 1


def without_own_names(source: str, dialect: str) -> str:
    """The text without what the emulator defines; lines keep their numbers."""

    def is_own(part: str) -> bool:
        own = _OWN if dialect == "hip" else _MEETING
        return bool(_ASSEMBLY.search(part) or own.search(part))

    return "".join(
        "\n" * part.count("\n") if is_own(part) else part for part in definitions(source)
    )


def to_cpp(source: str, dialect: str, *, warp: int = 32, checked: bool = False) -> str:
    """The translation unit of a kernel's text. Raises KernelError if it has no kernel."""
    text = without_own_names(source, dialect)
    kernels = find_kernels(text, dialect)
    if not kernels:
        raise compiler.KernelError(f"no kernel in the text:\n{source[:1000]}")
    text = re.sub(r'extern\s+"C"\s+__global__', "__global__", text)
    text = _DYNAMIC_SHARED.sub(
        r"\g<type> *const \g<name> = (\g<type> *)emulator::dynamic_shared()", text
    )
    if dialect == "metal":
        text = _THREADGROUP_ARRAY.sub("EMULATOR_SHARED", text)
    lines = [HEADERS[dialect], '#line 1 "kernel"', text]
    if checked:
        lines.insert(0, '#include "checked_access.h"')
    for kernel in kernels:
        arguments = (kernel.name, kernel.function, kernel.max_threads, kernel.cluster)
        arguments += (warp, int(checked))
        lines += [kernel.caller, f"EMULATOR_KERNEL({', '.join(map(str, arguments))});"]
    return "\n".join(lines) + "\n"


def compile_kernel(
    source: str,
    dialect: str = "cuda",
    *,
    warp: int = 32,
    checked: bool = False,
    contracted: bool = False,
) -> bytes:
    """The module of a text, for `cuModuleLoadData`. Raises KernelError, NoCompilerError."""
    text = to_cpp(source, dialect, warp=warp, checked=checked)
    return compiler.compile_module(text, checked=checked, contracted=contracted)
