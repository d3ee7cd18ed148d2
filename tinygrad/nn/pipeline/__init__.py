"""Models in stages on devices of their own, trained on microbatches that follow each other.

In: stages, where each lives, and a schedule. Out: the gradients of the whole batch, as without a
pipeline.
"""

from tinygrad.nn.pipeline.stages import Pipeline
from tinygrad.nn.pipeline.timetable import Task, Timetable, make_timetable

__all__ = ["Pipeline", "Task", "Timetable", "make_timetable"]
