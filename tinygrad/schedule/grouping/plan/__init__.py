"""From materialised values to a plan: kernels and transfers, their order and their memory.

Input: a per-device graph and its materialised nodes. Output: an `ExecutionPlan`.

    make_plan.py           makes the plan, by way of
    storage_map.py             the memory of each materialised value
    make_units.py, unit.py     a unit of work for each: one kernel or one transfer
    order.py                   an order in which no assignment overwrites what is still read
    regions.py                 alias analysis: views of one buffer that do not overlap
    kernel_loops.py            the loops of a kernel, which tell whether two kernels can be one
    merge.py                   horizontal fusion: kernels of several outputs
    rebase.py                  arguments are narrowed to the rows that a kernel reads
    rematerialize.py       rematerialises replicated values where that lowers the peak of memory
    free_early.py          runs kernels that free memory as soon as they can run
    reuse_arguments.py     stores results in place of arguments that nothing reads later
"""
