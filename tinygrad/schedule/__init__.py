"""The first half of the compiler: from a tensor graph to a plan, and to the graph of each kernel.

`pipeline.py` lists every pass in order. A graph goes through these stages:

    canonical.py           numbers buffers and removes bound values: the key of the plan cache
    1. comm/               rewrites communication in the tensor graph
    2. spmd/, multi.py     lowers layouts: local shapes and messages, the per-device graph
    3. grouping/           groups it into kernels and transfers, an ordered `ExecutionPlan`
       execution_plan.py   the plan: items over storage entries; names no real buffer
    4. kernel/             lowers each kernel of the plan: index arithmetic and loops

`movement_chains.py` merges chains of reshapes or permutes, in the canonical form and in stage 1.
`storage_views.py` says which nodes are in memory, for stages 2 and 3. `execution/` binds buffers to
a plan and runs it; `codegen/` is the second half of the compiler. A stage imports no later one.
"""
