"""Planning: which layouts the tensors of a step should have on a mesh.

In: a function that builds tensors lazily, its inputs, a mesh, a limit of memory. Out: layouts, and
what a step costs with them. It builds graphs and counts; it runs nothing.
"""

from tinygrad.planner.cost import Cost
from tinygrad.planner.plan import Plan, plan, predict

__all__ = ["Cost", "Plan", "plan", "predict"]
