"""Storage: the memory of a tensor, which tensors see a write to it, and when it is computed.

A tensor is a mutable reference to an immutable node of the graph. It refers to another node only
after it was realized, assigned, replaced, or moved in place.

    live_tensors.py      the base class of `Tensor`, and weak references to all tensors
    views.py             the memory that a node reads, and whether it needs any
    aliases.py           a tensor and its views, which see each other's writes
    shards.py            views of the shard of one device
    placement.py         canonical devices, and values moved to them
    assignment.py        `assign` and `x[...] = v`
    pending_writes.py    writes that have not run, and the lazy values that they would change
    older_content.py     lazy values that cannot be computed before their memory is overwritten
    copy_on_write.py     memory that several tensors share until one is written
    realization.py       tensors are computed into memory
    dependents.py        which nodes are built on a node
    rebuild.py           graphs over other nodes
    files.py             tensors in files, and `file_layout.py`, where their elements are
    random_generator.py  the key and the position of the random number generator
    lock.py              one realization or assignment at a time
    host/                numpy arrays, lists and bytes; DLPack
    gradients/           what a gradient needs of values that were computed or overwritten

The rules:

**Ownership.** A `BUFFER` node owns memory (`execution/buffers.py`): one `Buffer`, or a
`MultiBuffer` with one `Buffer` for each device of its `Sharding`. Memory is allocated when it is
first used, and freed with the last reference to the node.

**Views.** A view is a chain of movement ops that reads the memory of a `BUFFER` in place: RESHAPE,
PERMUTE, EXPAND, SHRINK, FLIP, and DETACH and CONTIGUOUS_BACKWARD. PAD, WINDOW and UNWINDOW compute
new elements, so their results are not views. A shard of a tensor is a view too: an `MSELECT` of its
buffer. Only replicas cannot be written one by one.

**Aliases.** A tensor and its views are an `Cell`: the node of the whole value, and for each
member the steps to its view. Movement methods, `detach`, `bitcast`, `shards`, `replace` and
`Tensor(x)` make aliases; all other methods make new values. A write to a member gives the group a
new node, from which every live member is derived at once. So aliases see each other's writes,
whether they were computed or not; no other tensors do.

**Copy on write.** Equal nodes are one object, so tensors that are no aliases may share a buffer.
Shared buffers are recorded; the first write to one copies it for every tensor that is no alias.
Without sharing, a write costs nothing.

**Pending writes.** `assign` builds `ASSIGN(target, value)` and runs nothing. `target` is a whole
buffer; a slice is written as a new value of the whole. The write runs when an alias of the tensor,
or a tensor that reads the new content, is realized. Live tensors that read older content of the
buffer are realized together with it, so each tensor keeps the value that it had when it was built.
`write_now` runs an ASSIGN to a slice of memory at once, which no tensor ever refers to.

**Realization.** Realizing a node computes it into a `BUFFER`. Every live tensor whose graph
contains the node is rebuilt over that `BUFFER`, so nothing is computed twice. `dependents` finds
these tensors without walking the graphs of all others.

**Failures.** If a realization fails or is interrupted, what ran is kept, so no assignment runs
twice. A value that cannot be computed, and that reads content about to be overwritten, reads a copy
from then on. If the content was overwritten already, the value is lost, and its use is an error. No
other tensor fails.

**Files.** A tensor on "DISK:path" is a file, or a view of one. A write to it runs at once, after
the lazy values that read the older content are computed. What is computed from it is on another
device.

**Random numbers.** Each draw has a small `BUFFER` with the key and the position of the generator at
that time. Nothing writes it, so a draw is a pure function of it.

**Threads.** Realization, assignment and custom kernels hold one reentrant lock. Threads may build,
realize and assign tensors of their own, and read tensors that they share. While one thread writes a
tensor in place, no other may use it, nor an equal value, which may share its memory. The
module-level tables of this package hold weak references and change under the lock. Only live
tensors and host arrays are registered without it: single insertions and deletions, atomic under the
GIL, iterated over snapshots.
"""
