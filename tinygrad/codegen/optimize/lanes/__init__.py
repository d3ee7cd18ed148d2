"""All other nests: the loops that become vector lanes.

Before: plain loops. After: at most one VECTOR loop around every expression.

    vectorize.py           chooses the loops
    block_values.py            keeps scales of quantised blocks
    row_values.py              keeps exponentials of a row that a sum and the outputs need
    streaming.py           column reductions over long rows
    running.py             reductions of all prefixes, as cumulative sums
    transpose.py           transposes in square blocks
"""
