"""Stage 3: group the per-device graph into kernels and transfers, and put these in order.

    prepare.py             rules: what must be in memory is materialised, large reductions are split
    phases.py              one of these rules: reductions over strided windows, phase by phase
    place_constants.py     gives reductions of constants the device of their uses
    fuse.py                chooses the values to materialise; all others are fused into their uses
    make_plan.py           makes a unit of work for each of these values
    unit.py                a unit of work: one kernel or one transfer
    order.py               orders units, so that no assignment overwrites what is still read
    regions.py             proves that two views of one buffer do not overlap
    merge.py               merges units over the same elements into one kernel of several outputs
    rematerialize.py       gathers replicated values again where that lowers the peak of memory

Input: the per-device graph. Output: an `ExecutionPlan`.
"""
