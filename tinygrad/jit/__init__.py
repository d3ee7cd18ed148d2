"""`TinyJit`: capture the kernels of a function once, then replay them as one native call.

tiny_jit.py    the public class: run, capture, replay, capture again
captured.py    one capture: its items, its result, and a replay of it
containers.py  lists, dicts, dataclasses and the like: their leaves, and copies of them
inputs.py      the arguments of a call, and its signature
slices.py      arguments that are contiguous slices of memory
environment/   what the function reaches besides its arguments, and guards of it
closure.py     which of that a capture used, and whether a later call may replay it
effects/       what a call leaves behind: results, kept tensors, writes
replay/        how captured items run again, with the inputs of another call
verify.py      `JIT_VERIFY=1`: the function run beside each replay
pickling.py    captures as bytes
"""

from tinygrad.execution.capture import JitError
from tinygrad.jit.containers import register_container
from tinygrad.jit.effects.python_state import RecaptureWarning
from tinygrad.jit.tiny_jit import TinyJit

__all__ = ["JitError", "RecaptureWarning", "TinyJit", "register_container"]
