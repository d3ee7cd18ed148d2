"""Sample kernels with everything that needs care: barriers, bounds, waits, fragments of a warp.

Each statement that must not be left out has a line of its own, and tests find it by its comment.
"""

from __future__ import annotations

from pathlib import Path

SAMPLES = Path(__file__).parent / "samples"
ROW_SUM = (SAMPLES / "row_sum.cu").read_text()
DOUBLE = (SAMPLES / "double_it.cu").read_text()
PRODUCT = (SAMPLES / "product.cu").read_text()
PRODUCT_SHARED_BYTES = 2 * (2 * 64 * 40 + 2 * 32 * 72)


def without(source: str, comment: str) -> str:
    """The text without the line that ends in a comment."""
    lines = source.splitlines(keepends=True)
    kept = [line for line in lines if not line.rstrip().endswith(f"// {comment}")]
    assert len(kept) == len(lines) - 1
    return "".join(kept)
