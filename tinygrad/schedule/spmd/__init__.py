"""Stage 2: from the tensor graph to the per-device graph: layouts become local shapes and messages.

    local.py               the block of a value that one device holds
    local_movement.py      movement and reduction on the block of one device
    local_assign.py        assignment to a slice of a sharded value
    transfer.py            every change of layout, as messages
    tile_messages.py           messages between layouts that cut an array into equal blocks
    local_messages.py          messages that a device of this process sends or receives
    collectives.py         ALLREDUCE: all-reduce, reduce-scatter or reduce of partial sums
    allreduce_algorithms.py    the algorithms of an all-reduce

`schedule/multi.py` applies them to a graph.
"""
