"""Products and convolutions: contractions are tiled for registers and caches.

Before: a nest that is one `Contraction`. After: packed panels, register tiles and lanes.

    matrix_units.py        multiplies narrow numbers by matrix instructions, as AMX
    phases.py              splits loops of which operands take quotients
    micro_kernel.py        tiles a contraction, with
    tiling.py                  the tile, chosen by a cost model
    blocking.py                blocks of a long reduction
    footprint.py               sliding windows in scratch memory, padding included
    skinny_matmul.py       products of few rows, as in decoding
"""
