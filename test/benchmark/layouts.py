"""Matrix products of every layout and aspect in float32: GFLOP per CPU second, beside torch.

`CPU_COUNT=1 OMP_NUM_THREADS=1 python -m test.benchmark.layouts` prints a table; the first line is
the peak, the best rate of products that stay in the caches. Arguments are shapes, such as
1024x768x3072 (M, N, K). `--rank 200` instead prints the rank correlation of the predicted cost of
as many random products with their measured time.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from test.benchmark.measure import has_torch
from tinygrad import Tensor, TinyJit
from tinygrad.codegen.optimize.product import micro_kernel
from tinygrad.codegen.optimize.product.tiling import Tiling, choose_tiling

LAYOUTS = ("NN", "NT", "TN", "TT")
SHAPES = (
    (1024, 1024, 1024),
    (1024, 3072, 768),
    (3072, 768, 1024),
    (256, 256, 8192),
    (2048, 2048, 64),
    (8192, 64, 256),
    (64, 8192, 256),
    (64, 2048, 512),
    (32, 1024, 1024),
    (20, 650, 2600),
    (8, 4096, 1024),
    (4096, 8, 1024),
)
CACHED = (384, 384, 384)
Shape = tuple[int, int, int]


def cpu_seconds(function: Callable[[], object], work: float) -> float:
    """The least CPU seconds of a call with `work` GFLOP, of repeated runs of at least 10 ms."""
    calls = max(1, math.ceil(1.0 / max(work, 1e-3)))
    function()
    best = math.inf
    for _ in range(7):
        start = time.process_time()
        for _ in range(calls):
            function()
        best = min(best, (time.process_time() - start) / calls)
    return best


def work_of(shape: Shape) -> float:
    """The GFLOP of a product."""
    return 2e-9 * math.prod(shape)


def product(layout: str, a: Any, b: Any) -> Any:
    """The product of two matrices, each transposed if its letter in `layout` is T."""
    return (a.T if layout[0] == "T" else a) @ (b.T if layout[1] == "T" else b)


def operands(layout: str, shape: Shape) -> tuple[tuple[int, int], tuple[int, int]]:
    """The shapes in memory of the operands."""
    m, n, k = shape
    return (k, m) if layout[0] == "T" else (m, k), (n, k) if layout[1] == "T" else (k, n)


def ours(layout: str, shape: Shape) -> tuple[float, float | None]:
    """The CPU seconds of a product, and its predicted cost, None where no tile was chosen."""
    inputs = [Tensor.randn(*x).realize() for x in operands(layout, shape)]
    costs: list[float] = []

    def recorded(*args: Any) -> Tiling | None:
        tiling = choose_tiling(*args)
        costs.extend([] if tiling is None else [tiling.cost])
        return tiling

    step = TinyJit(lambda a, b: product(layout, a, b).realize())
    with patch.object(micro_kernel, "choose_tiling", recorded):
        for _ in range(3):
            step(*inputs)
    return cpu_seconds(lambda: step(*inputs), work_of(shape)), costs[-1] if costs else None


def theirs(layout: str, shape: Shape) -> float:
    """The CPU seconds of a product by torch."""
    import torch

    a, b = (torch.randn(*x) for x in operands(layout, shape))
    return cpu_seconds(lambda: product(layout, a, b), work_of(shape))


def table(shapes: list[Shape]) -> None:
    """Print the rates of products of all layouts."""
    compared = has_torch()
    peak = work_of(CACHED) / min(
        [ours("NT", CACHED)[0], *([theirs("NT", CACHED)] if compared else [])]
    )
    print(f"peak {peak:.0f} GFLOP per CPU second")
    print(f"{'M x N x K':>20}  " + "  ".join(f"{x + ': ours':>9} torch" for x in LAYOUTS))
    for shape in shapes:
        cells = []
        for layout in LAYOUTS:
            rate = work_of(shape) / ours(layout, shape)[0]
            other = f"{work_of(shape) / theirs(layout, shape):5.0f}" if compared else "    -"
            cells.append(f"{rate:9.0f} {other}")
        print(f"{' x '.join(map(str, shape)):>20}  " + "  ".join(cells), flush=True)


def ranks(values: list[float]) -> list[int]:
    """The position of each value in order."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0] * len(values)
    for position, i in enumerate(order):
        found[i] = position
    return found


def rank_correlation(left: list[float], right: list[float]) -> float:
    """Spearman's correlation."""
    pairs = zip(ranks(left), ranks(right), strict=True)
    count = len(left)
    return 1 - 6 * sum((x - y) ** 2 for x, y in pairs) / (count * (count**2 - 1))


def predict(count: int, seed: int = 0) -> None:
    """Print how far the predicted and the measured cost of random products of up to a GFLOP agree,
    and those of a multiply-add, of which the size of a product says nothing.
    """
    rng = random.Random(seed)
    predicted: list[float] = []
    measured: list[float] = []
    work: list[float] = []
    while len(work) < count:
        shape = (size(rng), size(rng), size(rng))
        if not 1e-3 < work_of(shape) < 1:
            continue
        seconds, cost = ours(rng.choice(LAYOUTS), shape)
        if cost is not None:
            predicted.append(cost)
            measured.append(seconds)
            work.append(work_of(shape))
    rates = [[x / y for x, y in zip(found, work, strict=True)] for found in (predicted, measured)]
    print(
        f"rank correlation of {count} products: {rank_correlation(predicted, measured):.2f}, "
        f"of a multiply-add {rank_correlation(*rates):.2f}"
    )


def size(rng: random.Random) -> int:
    """A size of 8 to 8192, evenly distributed by its logarithm."""
    return round(2 ** rng.uniform(3, 13))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("shapes", nargs="*", help="M, N and K, such as 1024x768x3072")
    parser.add_argument("--rank", type=int, metavar="N", help="products of the rank correlation")
    options = parser.parse_args()
    if options.rank:
        predict(options.rank)
        return
    shapes = [tuple(map(int, text.split("x"))) for text in options.shapes]
    table([(m, n, k) for m, n, k in shapes or SHAPES])


if __name__ == "__main__":
    main()
