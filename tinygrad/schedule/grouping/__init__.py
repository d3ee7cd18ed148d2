"""Stage 3: group the per-device graph into kernels and transfers, and put these in order.

    prepare.py             rules: what must be in memory is materialised, large reductions are split
    phases.py              one of these rules: reductions over strided windows, phase by phase
    place_constants.py     gives reductions of constants the device of their uses
    fuse.py                chooses the values to materialise; all others are fused into their uses,
    segments.py                as parts of limited size,
    kernel_budget.py           as long as the work and size of the kernel stay within bounds
    hazards.py             adds assigned expressions that would overwrite their own operands
    make_plan.py           makes the plan, by way of
    storage_map.py             the memory of each of these values
    make_units.py, unit.py     a unit of work for each: one kernel or one transfer
    order.py                   an order in which no assignment overwrites what is still read
    regions.py                 alias analysis: views of one buffer that do not overlap
    merge.py                   horizontal fusion: kernels of several outputs
    rebase.py                  arguments are narrowed to the rows that a kernel reads
    rematerialize.py       gathers replicated values again where that lowers the peak of memory

Input: the per-device graph. Output: an `ExecutionPlan`.
"""
