"""Storage: the memory of a tensor, which tensors see a write to it, and when it is computed.

A tensor is a mutable reference to an immutable node of the graph. It refers to another node only
after it was realized, assigned, replaced, or moved in place.

    live_tensors.py      tensors, the cells that a tensor and its views share, and all that live
    content.py           what is in some memory, whatever it is
    views.py             the memory that a node reads, and whether it needs any
    aliases.py           the whole value of a view, and who may write it
    shards.py            views of the shard of one device
    placement.py         canonical devices, and values moved to them
    assignment.py        `assign` and `x[...] = v`
    realization.py       tensors are computed into memory
    gate.py              memory that exists is overwritten; what happens at `c[1:3] += x`
    readers.py           lazy values that are computed before what they read is overwritten
    put_back.py          what a schedule that failed leaves behind
    pickling.py          pickles and copies of tensors that are views of each other
    dependents.py        which nodes are built on a node
    rebuild.py           graphs over other nodes
    files.py             tensors in files, and `element_layout.py`, where their elements are
    random_generator.py  the key and the position of the random number generator
    lock.py              one realization or assignment at a time
    host/                numpy arrays, lists and bytes; DLPack
    gradients/           what a gradient needs of values that were computed or overwritten

The rules:

**Versions.** A `BUFFER` node is one version of the content of some memory (`execution/buffers.py`):
a `Buffer`, or a `MultiBuffer` with one for each device of its `Sharding`. A version never changes,
so a lazy value keeps the content that it was built on. Memory knows its versions by weak references
(`execution/versions.py`).

**Cells.** A tensor is (cell, steps). A tensor and its views share a cell: movement methods,
`detach`, `bitcast`, `shards`, `replace` and `Tensor(x)` make views; all other methods make new
values. The cell has the node of the whole value: a version, a lazy value, or a pending write. Views
derive theirs when asked, and forget them when the cell gets another. A tensor gets its cell when it
has a view or is first written.

**Ownership.** One cell owns memory: the first that writes, exports or captures it, while a member
lives. Equal nodes are one object, so other tensors may read the same version; they have borrowed
it, and a write to them makes a value that gets memory of its own. Memory that code outside can
write is never borrowed: an equal value is a copy.

**Views.** A view is a chain of movement ops that reads the memory of a `BUFFER` in place: RESHAPE,
PERMUTE, EXPAND, SHRINK, FLIP, and DETACH and CONTIGUOUS_BACKWARD. PAD, WINDOW and UNWINDOW compute
new elements, so their results are not views. A shard of a tensor is a view too: an `MSELECT` of its
buffer. Only replicas cannot be written one by one.

**Writes.** `assign` builds `ASSIGN(target, value)` and runs nothing. `target` is a whole buffer; a
slice is written as a new value of the whole. `x[...] = v` runs an ASSIGN to a slice of memory at
once. Every write, also that of a replay, goes through the gate, which copies what can still be
read. Lazy values that read it are computed with the write, which is cheaper; `STATE_POLICY=0` does
not, and tests compute the same values with it.

**Realization.** Realizing a node computes it into a `BUFFER`. Every live tensor whose graph
contains the node is rebuilt over that `BUFFER`, so nothing is computed twice. So are those of a
value that the plan stores on the way, a CONTIGUOUS, COPY or ALLREDUCE, if it is the whole value of
a live tensor, and keeping it takes no other kernels and messages and little memory. Histories do
not keep such a value. `dependents` finds these tensors without walking the graphs of all others.

**Failures.** If a realization fails or is interrupted, what ran is kept, so no assignment runs
twice; Ctrl-C waits until no memory is half written. What can no longer be computed is lost, and its
use is an error. No other tensor fails.

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
