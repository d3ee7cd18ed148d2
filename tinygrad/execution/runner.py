"""A compiled kernel, loaded on the devices on which it runs.

In: the program of a kernel and a device of its kind. Out: what launches it on buffers.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.device import Buffer, Device, LoadedProgram
from tinygrad.renderer import ProgramSpec
from tinygrad.uop.ops import UOp, sym_infer


class CompiledRunner:
    """A kernel, compiled for one kind of device, and loaded on each device on which it runs."""

    def __init__(self, spec: ProgramSpec, device: str) -> None:
        self.spec = spec
        opened = Device[device]
        self.code = opened.compile(spec.source, spec.is_vectorized)
        self.shared = opened.runtime(spec.function, self.code) if opened.shares_programs else None
        self._loaded: dict[str, LoadedProgram] = {}
        self._launch = None if isinstance(spec.launch.grid, UOp) else spec.launch
        self.variable_names = tuple(v.arg[0] for v in spec.variables)

    def accepts(self, buffers: Sequence[Buffer]) -> bool:
        """Whether the addresses of all buffers are aligned as the kernel needs it."""
        alignment = self.spec.alignment
        return alignment == 1 or not any(b.offset % alignment for b in buffers)

    @property
    def display_name(self) -> str:
        """The kernel's name for people."""
        return self.spec.name

    def program(self, device: str) -> LoadedProgram:
        """The kernel loaded on a device; one for all devices if they share programs."""
        program = self.shared or self._loaded.get(device)
        if program is None:
            loaded = Device[device].runtime(self.spec.function, self.code)
            program = self._loaded.setdefault(device, loaded)
        return program

    def grid(self, values: dict[str, int]) -> int:
        """The number of work items."""
        return sym_infer(self.spec.launch.grid, values)

    def __call__(
        self, device: str, buffers: Sequence[Buffer], values: dict[str, int], wait: bool = False
    ) -> float | None:
        """Run on a device with `buffers[i]` as PARAM number i; with `wait`, return the seconds it
        took.
        """
        arguments = [buffers[slot] for slot in self.spec.slots]
        names = self.variable_names
        numbers = tuple([values[name] for name in names]) if names else ()
        launch = self._launch or self.spec.launch.resolve(values)
        program = self.shared or self.program(device)
        return program(*arguments, launch=launch, values=numbers, wait=wait)
