"""Stage 3: group the per-device graph into kernels and transfers, and put these in order.

Input: the per-device graph. Output: an `ExecutionPlan`. `schedule/pipeline.py` lists the passes.

    rewrite/     prepares the graph: what must be in memory is materialised, reductions are split
    softmax/     softmaxes between products, as in attention
    fusion/      chooses the values to materialise
    plan/        makes and improves the plan
    values.py    the size and memory of a value, and what it computes
    targets.py   the machine that computes a node
"""
