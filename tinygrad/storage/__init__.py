"""Storage: which memory a tensor is in, who else sees it, and when it changes.

A tensor is a mutable reference to an immutable node of the graph. It refers to another node only
after it was realized, assigned, replaced, or moved in place. The rules:

**Ownership** (`execution/buffers.py`). A `BUFFER` node owns memory: one `Buffer`, or a
`MultiBuffer` with one `Buffer` per device of its `Sharding`. Memory is freed with the last
reference to its node, and allocated when it is first used.

**Views** (`views`). A view is a chain of movement ops that reads the memory of a `BUFFER` in
place: RESHAPE, PERMUTE, EXPAND, SHRINK, FLIP, and DETACH and CONTIGUOUS_BACKWARD. PAD, WINDOW and
UNWINDOW compute new elements, so what they give is not a view.

**Aliases** (`aliases`, `live_tensors`). A tensor and its views are an `AliasGroup`: the node of the
whole value, and for each member the steps to its view. Movement methods, `detach`, `bitcast`,
`shards`, `replace` and `Tensor(x)` make aliases; all other methods make new values. A write to a
member gives the group a new node, from which every live member is derived at once. So aliases see
each other's writes, whether they were computed or not; no other tensors do.

**Shards** (`shards`). A shard of a tensor is an `MSELECT` of its buffer, on one device. It is a
view like any other; only replicas cannot be written one by one.

**Copy on write** (`copy_on_write`). Equal nodes are one object, so tensors that are no aliases
may share a buffer. `_shared` records such buffers; the first write to one of them gives every
tensor that is no alias a copy. Without sharing, a write costs nothing.

**Pending writes** (`assignment`, `pending_writes`). `assign` builds `ASSIGN(target, value)` and
runs nothing. `target` is a whole buffer; a slice is written as a new value of the whole. The write
runs when an alias of the tensor, or a tensor that reads the new content, is realized.
`write_now` runs an ASSIGN to a slice of memory at once, which no tensor ever refers to.
Live tensors that read older content of the same buffer are realized together with the write, so
each tensor keeps the value that it had when it was built.

**Realization** (`realization`, `dependents`, `rebuild`). Realizing a node computes it into a
`BUFFER`. Every live tensor whose graph contains the node is rebuilt over that `BUFFER`, so nothing
is computed twice. `dependents` finds these tensors without walking the graphs of all others.

**Failures** (`older_content`). If a realization fails or is interrupted, what ran is kept, so no
assignment runs twice. A value that cannot be computed, and that reads content about to be
overwritten, reads a copy from then on; if the content was overwritten already, the value is lost,
and its use is an error. No other tensor fails.

**Live tensors** (`live_tensors`). A tensor is live as long as Python refers to it. The registry
holds weak references in the order of creation. Those that are a BUFFER are found by it, so that
realizing and writing search the lazy ones alone.

**Placement** (`placement`). A device is a name or a `Sharding`; names have one canonical spelling.
A layout that shards an axis that the shape lacks, or has with size 1, is replaced by the
replicated layout.

**Host memory** (`host_arrays`, `host_values`, `host_shards`, `dlpack`). numpy arrays, lists and
bytes become `BUFFER`s on the device "NPY" over a private copy, and files `BUFFER`s on "DISK:path".
Realized values are read back as numpy arrays. An array that goes to several devices is sharded on
the host. Other libraries share memory by DLPack.

**Files** (`files`, `file_layout`). A tensor on "DISK:path" is a file, or a view of one. Writes to
it are carried out at once, after the lazy values that read the older content are computed. What is
computed from it is on another device.

**Histories** (`history`, `stored_values`, `wanted_nodes`, `leaves`, `backward`, `grad_mode`). A
BUFFER with a value that requires a gradient has a definition beside the graph, the node that was
stored there. Gradients go through it, so that storing a value changes none. A definition reads the
content that its value was computed from: BUFFERs that are overwritten are replaced in it by
placeholders without memory. Leaves, and values that require no gradient, keep no history;
`backward()` ends those that it goes through.

**Partial gradients** (`partial_gradients`). In `Tensor.accumulate_gradients()`, a gradient that is
an all-reduce is stored as its partial sums; the all-reduce runs where the gradient is read.

**Random numbers** (`random_generator`). The key and the position of the generator are on the host.
Each draw has a small `BUFFER` that holds both as they were; nothing writes it, so a draw is pure.

**Threads** (`lock`). Realization, assignment and custom kernels hold one reentrant lock, so threads
may build, realize and assign tensors of their own, and read tensors that they share. A tensor that
one thread writes in place must not be used by others meanwhile, nor an equal value, which may share
its memory.

Module-level state: `live_tensors.live_tensors`, `copy_on_write._shared`, `pending_writes._pending`,
`dependents.dependents`, `history.histories` and `host_arrays._host_buffers` hold weak references.
They change under the lock, but for the registration of live tensors and host arrays, which are
single insertions and deletions, atomic under the GIL; iteration is over snapshots.
`random_generator.random_generator` has a lock of its own, and its records belong to a thread.
`partial_gradients._depth` is a context variable.
"""
