"""Rewrites of the per-device graph that prepare it for the choice of what is materialised.

Input and output: a per-device graph.

    preserve.py            materialises overwritten content that is still needed
    prepare.py             rules: what must be in memory is materialised, large reductions are split
    phases.py                  reductions over strided windows, phase by phase
    split_product.py           products with few outputs and a long reduction (split-K)
    add_rows.py                rows that are added to a table, as an embedding's step, in place
    sum_products.py        the gradient of a weight that is used often: a contraction for each use
    stack_products.py      products of a few rows with one operand become one
    own_outputs.py         outputs get memory of their own
    place_constants.py     gives reductions of constants the device of their uses
"""
