"""Replays: captured items, rewritten at the capture, and run with the inputs of another call.

At the capture, in order:

    random_draws.py      random numbers read memory that the host fills before each replay
    prune.py             items with the same work in each replay are dropped
    copy_elision.py      copies within a device are dropped
    launches.py          independent items are grouped into launches
    input_lifetimes.py   when items last use each input, and first write other memory

In each replay:

    substitution.py      the buffers of captured inputs replaced by those of the call
    native_replay.py     all launches as one native call
    rank_replay.py       the same in several processes: native segments between messages
    counters.py          what a replay adds to `GlobalCounters` and traces
"""
