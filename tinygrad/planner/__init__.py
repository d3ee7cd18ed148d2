"""The layout planner: layouts on a mesh for the tensors of a step.

Input: a function that builds tensors lazily, its inputs, a mesh, a memory limit. Output: layouts,
and the cost of a step with them. It builds graphs and plans them; it runs nothing.

    plan.py                `plan()` and `predict()`, the public functions
    search.py              compares choices of layouts
    layers.py              groups tensors that share a layout; shortens lists of equal layers
    optimizers.py          the state of optimizers among the inputs
    trial.py               builds the graph of a step with tensors in given layouts
    cost.py                the cost of such a graph
    communication.py       the cost of its communication, node by node
    device_program.py      what one device computes and stores, planned by the scheduler itself
"""

from tinygrad.planner.cost import Cost
from tinygrad.planner.plan import Plan, plan, predict

__all__ = ["Cost", "Plan", "plan", "predict"]
