"""Rules of simplification, each from an expression to an equal, simpler one.

`uop/symbolic.py` composes rule sets of them.

    identities.py   constants, repeated operands and known bounds, for all dtypes
    logic.py        comparisons, AND, OR, negation, WHERE; casts
    fold.py         constants, exactly as the dtype computes
    elementary.py   elementary functions of constants
    affine.py       sums of multiples, the form of index expressions
    compare.py      comparisons of index expressions
    divmod.py       integer division and remainder
    valid.py        conditions of loads and stores, and indices under them
"""
