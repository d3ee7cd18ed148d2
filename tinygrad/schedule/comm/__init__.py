"""Stage 1: rewrite the communication of the tensor graph, before layouts are lowered.

    halo.py                sinks halo exchanges below the ops where they send fewer bytes
    sink_into_scatter.py   sinks cheap producers below scatters: shards are computed in place
    sink_reshard.py        sinks resharding below elementwise ops whose sources take fewer bytes
    simplify.py            rules: merges copies and all-reduces, hoists all-reduces over movement
    dynamic_slice.py       one of these rules: a slice at a symbolic offset becomes a gather
    merge_allreduces.py    does one of several all-reduces of views of one value
    reduce_first.py        sinks all-reduces below movement and sums that leave fewer elements
    narrow_allreduces.py   casts partial sums before they are reduced, by a setting
    gather_scattered.py    gathers scattered values, where that sends less than their all-reduce

Input and output: the tensor graph. Invariant: every value keeps its shape, dtype and device.
"""
