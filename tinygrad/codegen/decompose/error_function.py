"""The error function, by a polynomial near 0 and by its complement elsewhere.

In: expressions of float32 or float64, scalar or vector. Out: the same dtype, without branches.
`docs/numerics.md` states the maximum errors. Coefficients are fitted as those in `exponential.py`.
"""

from __future__ import annotations

from tinygrad.codegen.decompose.exponential import exp
from tinygrad.codegen.decompose.float_math import absolute, copy_sign, polynomial, subtract
from tinygrad.dtype import dtypes
from tinygrad.uop import Ops
from tinygrad.uop.ops import UOp

# erf(x) = x + x P(x**2) for |x| <= 1; relative error 2**-29.4 and 2**-55.9
ERF_COEFFICIENTS = {
    dtypes.float32: (
        *(0.12837916612625122, -0.3761262595653534, 0.11283578723669052),
        *(-0.026853347197175026, 0.005187162198126316, -0.0007997852517291903),
        7.806897338014096e-05,
    ),
    dtypes.float64: (
        *(0.12837916709551256, -0.3761263890318341, 0.11283791670942123),
        *(-0.026866170643087082, 0.005223977607708173, -0.0008548326064578785),
        *(0.00012055298816235223, -1.4924828242575953e-05, 1.6448685531804452e-06),
        *(-1.6218813463725204e-07, 1.3766593355009194e-08, -7.884797156944104e-10),
    ),
}

# float32: erf(x) = 1 - exp(Q(x)) for 1 <= x <= 4; error 2**-25.9
LOG_ERFC_COEFFICIENTS = (
    *(-0.0026720419991761446, -1.1174372434616089, -0.6544907093048096),
    *(-0.08863294869661331, 0.01477769948542118, -0.001150364289060235),
)

# float64: erf(x) = 1 - exp(-x**2) R(t) with t = (x - 3) / (x + 3), 1 <= x <= 6; error 2**-57.1
ERFC_COEFFICIENTS = (
    *(0.1790011511813538, -0.32623356004590187, 0.2456038016642716, -0.15011593634444387),
    *(0.07166585012185708, -0.02439232793737737, 0.00427035352594673, 0.0007131744429770912),
    *(-0.0005810939384064364, 7.639171470727174e-05, 0.00010295005908952274),
    1.5202692602868095e-05,
)


def erf(x: UOp) -> UOp:
    """The error function."""
    dtype = x.dtype.scalar()
    magnitude = absolute(x)
    z = x * x
    small = magnitude * polynomial(z, ERF_COEFFICIENTS[dtype]) + magnitude
    # the result rounds to 1 above it
    limit = 6 if dtype is dtypes.float64 else 4
    bounded = (magnitude > limit).where(x.const_like(limit), magnitude)
    if dtype is dtypes.float64:
        t = subtract(bounded, 3).alu(Ops.FDIV, bounded + 3)
        complement = exp(bounded * bounded * -1) * polynomial(t, ERFC_COEFFICIENTS)
    else:
        complement = exp(polynomial(bounded, LOG_ERFC_COEFFICIENTS))
    return copy_sign((magnitude < 1).where(small, subtract(1, complement)), x)
