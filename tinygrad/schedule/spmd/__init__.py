"""Stage 2: from the tensor graph to the per-device graph: layouts become local shapes and messages.

    local.py               the block of a value that one device holds
    local_movement.py      movement and reduction on the block of one device
    local_assign.py        assignment to a slice of a sharded value
    transfer.py            every change of layout, as messages
    tile_messages.py           those of layouts that cut an array into equal blocks
    local_messages.py          the messages of which a device of this process is an end
    collectives.py         ALLREDUCE: a transfer of partial sums, and their reduction

`schedule/multi.py` applies them to a graph.
"""
