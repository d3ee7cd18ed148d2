"""`TinyJit`: capture the kernels of a function once, then replay them as one native call.

    tiny_jit.py         the public class: run, capture, replay, capture again
    captured.py         one capture: its items, its result, and a replay of it
    inputs.py           the arguments of a call, and its signature
    slices.py           arguments that are contiguous slices of memory

What the function uses besides its arguments, checked before each replay:

    code_names.py       the names of globals, attributes and keys in a function's code
    survey.py           the places that a function reaches by these names, and what is there
    links.py            one such place, and its value
    inspection.py       attributes and functions of objects, without running their code
    closure.py          tensors and values that the function uses without taking them as arguments
    paths.py            the check that these places hold what they held

What a call leaves behind:

    recording.py        a call seen from outside: what was there before, and what it left behind
    stored.py           where a tensor in memory was when a call began
    kept.py             the places, such as attributes, in which the function leaves tensors
    results.py          the results of each call, and the tensors that it keeps elsewhere
    lasting.py          results that are the same tensors in each call
    made.py             tensors that each call makes anew, and the values that they are views of
    python_sources.py   iterators and random generators, whose next values a replay lacks
    written.py          lazy values that read memory which a replay overwrites
    references.py       whether anything but known tensors refers to some memory

How the items of a capture are replayed:

    substitution.py     the buffers of captured inputs replaced by those of a call
    lifetimes.py        when items use each input, so that no result overwrites one too early
    prune.py            the items that a replay need not run
    copy_elision.py     the copies within a device that a replay need not make
    launches.py         captured items that may run at the same time
    random_draws.py     the memory of random draws, which the host fills before each replay
    native_replay.py    the native call that runs all launches
    rank_replay.py      the same in several processes: native segments between messages
    counters.py         what a replay adds to `GlobalCounters` and traces
    verify.py           the function run beside each replay
    pickling.py         captures as bytes
"""

from tinygrad.execution.capture import JitError
from tinygrad.jit.tiny_jit import TinyJit

__all__ = ["JitError", "TinyJit"]
