"""Pipeline parallelism: a model in stages on different devices, trained on microbatches.

Input: stages, their devices, and a schedule. Output: the gradients of the whole batch, as without a
pipeline.
"""

from tinygrad.nn.pipeline.stages import Pipeline
from tinygrad.nn.pipeline.timetable import Task, Timetable, make_timetable

__all__ = ["Pipeline", "Task", "Timetable", "make_timetable"]
