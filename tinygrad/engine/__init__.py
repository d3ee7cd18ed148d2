"""The public paths of scheduling and running, as programs for tinygrad 0.12 import them."""

from tinygrad.execution import (
    CommRecord,
    CommTrace,
    run_schedule,
    schedule_uops,
)

__all__ = ["CommRecord", "CommTrace", "run_schedule", "schedule_uops"]
