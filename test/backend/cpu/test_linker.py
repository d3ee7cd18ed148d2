"""Linking in a process with little or fragmented address space, where plain JITLink aborts."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from test.devices import only_cpu

pytestmark = [
    only_cpu,
    pytest.mark.skipif(sys.platform != "linux", reason="mmap and limits behave differently"),
]

# `KERNEL` stores entry `begin` of a table of constants: code and constants are two sections.
PRELUDE = """
import ctypes, mmap, resource
from tinygrad.device.allocator import OutOfMemoryError
from tinygrad.runtime.support import llvm

numbers = ", ".join(f"double {i}.0" for i in range(3000))
KERNEL = llvm.emit_object(f'''
@table = private unnamed_addr constant [3000 x double] [{numbers}]
define void @entry(ptr %buffers, ptr %values, i64 %begin, i64 %end) {{
  %out = load ptr, ptr %buffers
  %place = getelementptr double, ptr @table, i64 %begin
  %number = load double, ptr %place
  store double %number, ptr %out
  ret void
}}''')

def call(code):
    result = (ctypes.c_double * 1)()
    buffers = (ctypes.c_void_p * 1)(ctypes.addressof(result))
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    kernel = ctypes.CFUNCTYPE(None, pointer, pointer, integer, integer)(code["entry"])
    kernel(ctypes.addressof(buffers), None, 7, 8)
    return result[0]

libc = ctypes.CDLL(None)
address, size = ctypes.c_void_p, ctypes.c_size_t
libc.mmap.argtypes = (address, size, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
libc.mmap.restype = address
libc.mprotect.argtypes = (address, size, ctypes.c_int)
libc.munmap.argtypes = (address, size)

def reserve(nbytes):
    return libc.mmap(None, nbytes, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)

assert call(llvm.link(KERNEL, "entry")) == 7.0
"""


def run_script(body: str) -> str:
    """Runs a program after the prelude in another process; returns its output."""
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(body)],
        env={"PYTHONPATH": str(root), "PATH": "", "HOME": str(Path.home())},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_code_is_linked_where_small_holes_are_far_from_large_ones():
    # Memory is full above 5 GiB of other memory, except for one page, in which only the code fits.
    output = run_script(
        """
        holes = []
        for nbytes in (1 << 20, 1 << 16, 1 << 14, 1 << 12):
            consecutive, last = 0, 0
            while consecutive < 200:
                holes.append(reserve(nbytes))
                consecutive = consecutive + 1 if holes[-1] == last - nbytes else 0
                last = holes[-1]
        far = reserve(5 << 30)
        for nbytes in (20 << 10, 8 << 10):
            while (place := reserve(nbytes)) > far:
                pass
        libc.munmap(holes[0], mmap.PAGESIZE)
        print(call(llvm.link(KERNEL, "entry")))
        """
    )
    assert output == "7.0\n"


@pytest.mark.slow
def test_a_limit_on_address_space_is_an_out_of_memory_error():
    output = run_script(
        """
        pages = int(open("/proc/self/statm").read().split()[0])
        used = pages * mmap.PAGESIZE
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        for extra in (0, 1 << 20, 32 << 20, 96 << 20):
            resource.setrlimit(resource.RLIMIT_AS, (used + extra, hard))
            linked = []
            try:
                while True:
                    linked.append(llvm.link(KERNEL, "entry"))
            except OutOfMemoryError as error:
                print(error)
        try:
            llvm.emit_object("define void @k() { ret void }")
        except OutOfMemoryError as error:
            print(error)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        del linked
        print(call(llvm.link(KERNEL, "entry")))
        """
    )
    *errors, result = output.splitlines()
    assert len(errors) == 5
    assert all("no address space left to load a kernel" in error for error in errors[:4])
    assert "no address space left to compile a kernel" in errors[4]
    assert result == "7.0"


def map_limit() -> int:
    path = Path("/proc/sys/vm/max_map_count")
    return int(path.read_text()) if path.is_file() else 1 << 62


@pytest.mark.slow
@pytest.mark.skipif(map_limit() > 1 << 18, reason="this system allows too many mappings to use up")
def test_a_limit_on_mappings_is_an_out_of_memory_error():
    output = run_script(
        """
        pages = 1 << 19
        start = reserve(pages * mmap.PAGESIZE)
        for page in range(1, pages, 2):
            if libc.mprotect(start + page * mmap.PAGESIZE, mmap.PAGESIZE, mmap.PROT_READ):
                break
        try:
            llvm.link(KERNEL, "entry")
        except OutOfMemoryError as error:
            print(error)
        libc.munmap(start, pages * mmap.PAGESIZE)
        print(call(llvm.link(KERNEL, "entry")))
        """
    )
    error, result = output.splitlines()
    assert "no address space left to load a kernel" in error
    assert result == "7.0"
