"""Stage 3: group the per-device graph into kernels and transfers, and put these in order.

Input: the per-device graph. Output: an `ExecutionPlan`. `pipeline.py` lists the passes. Rewrites of
the graph:

    preserve.py            materialises overwritten content that is still needed
    prepare.py             rules: what must be in memory is materialised, large reductions are split
    phases.py                  reductions over strided windows, phase by phase
    split_product.py           products with few outputs and a long reduction (split-K)
    sharded_softmax.py     a softmax over a sharded axis uses each device's own maximum
    softmax_gradient.py    the sum in the gradient of a softmax, from the product after the softmax
    own_outputs.py         outputs get memory of their own
    place_constants.py     gives reductions of constants the device of their uses
    replace_everywhere.py  replaces nodes, also below replacements

The choice of what is materialised:

    fuse.py                chooses the values to materialise; all others are fused into their uses
    segments.py                parts of limited size
    kernel_budget.py           bounds of the work and size of a kernel
    softmax_chains.py          softmaxes between products, whose scores are never materialised
    score_axes.py              the axes of their scores: rows, keys and batches
    linear_steps.py            the steps by which a value is a multiple of another one
    product_loops.py           products that one register tile adds
    row_chains.py              reductions of rows that one kernel computes
    targets.py                 the machine that computes a node
    hazards.py             adds assigned expressions that would overwrite their own operands

The plan:

    make_plan.py           makes the plan, by way of
    storage_map.py             the memory of each materialised value
    make_units.py, unit.py     a unit of work for each: one kernel or one transfer
    order.py                   an order in which no assignment overwrites what is still read
    regions.py                 alias analysis: views of one buffer that do not overlap
    kernel_loops.py            the loops of a kernel, which tell whether two kernels can be one
    merge.py                   horizontal fusion: kernels of several outputs
    rebase.py                  arguments are narrowed to the rows that a kernel reads
    rematerialize.py       gathers replicated values again where that lowers the peak of memory
    reuse_arguments.py     stores results in place of arguments that nothing reads later
"""
