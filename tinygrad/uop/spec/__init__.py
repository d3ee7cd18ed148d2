"""The forms of the graph, and their verification.

`verify(sink, TENSOR)` checks every node below a root. With `SPEC=2`, `check_replacement` checks
every rewrite.

    forms.py          the tables: for each form, its ops and their checks
    checks.py         checks of single nodes: sources, dtypes, shapes, pointers
    device_checks.py  and of their devices
    verify.py         applies them to graphs, lists and rewrites
"""

from tinygrad.uop.spec.forms import (
    IMPERATIVE_KERNEL,
    KERNEL,
    KERNEL_TENSOR,
    LINEAR,
    PER_DEVICE,
    SCHEDULED_KERNEL,
    TENSOR,
    VECTOR_KERNEL,
)
from tinygrad.uop.spec.verify import (
    MAY_CHANGE,
    Spec,
    SpecError,
    check_replacement,
    may_change,
    type_verify,
    verify,
)

__all__ = [
    "IMPERATIVE_KERNEL",
    "KERNEL",
    "KERNEL_TENSOR",
    "LINEAR",
    "MAY_CHANGE",
    "PER_DEVICE",
    "SCHEDULED_KERNEL",
    "TENSOR",
    "VECTOR_KERNEL",
    "Spec",
    "SpecError",
    "check_replacement",
    "may_change",
    "type_verify",
    "verify",
]
