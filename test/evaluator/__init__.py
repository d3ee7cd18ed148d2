"""The semantics of each form of the graph, evaluated with numpy: the oracle of other tests.

`arithmetic.py` defines elementwise ops and reductions once. `tensor_graph.py`, `kernel_graph.py`
and `expression.py` add the leaves and memory accesses of their form; `plan.py` executes a plan.
Nothing here is fast, and nothing here calls the code generators.
"""
