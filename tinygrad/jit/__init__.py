"""`TinyJit`: capture the kernels of a function once, then replay them as one native call.

| file | concept |
|---|---|
| `tiny_jit` | the public class: run, capture, replay, capture again |
| `captured` | one capture: its items, its result, and a replay of it |
| `inputs` | the arguments of a call, and its signature |
| `substitution` | the buffers of captured inputs replaced by those of a call |
| `results` | what each call leaves behind: its result, and kept tensors |
| `made` | tensors that each call makes anew, and the values that they are views of |
| `lifetimes` | when captured items use each input, so that no result overwrites one too early |
| `code_names` | the names of globals, attributes and keys in a function's code |
| `survey` | the places that a function reaches by these names, and what is there |
| `links` | one such place, and its value |
| `inspection` | attributes and functions of objects, without running their code |
| `paths` | the check that these places hold what they held |
| `recording` | a call seen from outside: what was there before, and what it left behind |
| `written` | lazy values that read memory which a replay overwrites |
| `references` | whether anything but known tensors refers to some memory |
| `kept` | the places, such as attributes, in which the function leaves tensors |
| `closure` | tensors and values that the function uses without taking them as arguments |
| `launches` | captured items that may run at the same time |
| `random_draws` | the memory of random draws, which the host fills before each replay |
| `native_replay` | the native call that runs all launches |
| `prune` | the items that a replay need not run |
| `pickling` | captures as bytes |
| `verify` | the function run beside each replay |
| `counters` | what a replay adds to `GlobalCounters` and traces |
"""

from tinygrad.execution.capture import JitError
from tinygrad.jit.tiny_jit import TinyJit

__all__ = ["JitError", "TinyJit"]
