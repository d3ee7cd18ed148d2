"""The final report of the sharding examples."""

from tinygrad.engine import CommTrace


def report(
    losses: dict[str, list[float]], trace: CommTrace, bound: int, tolerance: float = 1e-3
) -> None:
    """Print the losses of two runs, by name, and the bytes of a step next to their lower bound.

    Exits with an error if the losses of the runs differ.
    """
    print(f"{'step':>4} " + " ".join(f"{name:>12}" for name in losses))
    steps = list(zip(*losses.values(), strict=True))
    for number, (loss, expected) in enumerate(steps):
        if number % 5 == 0 or number == len(steps) - 1:
            print(f"{number:4} {loss:12.6f} {expected:12.6f}")
        if abs(loss - expected) > tolerance * expected:
            raise SystemExit(f"step {number}: {loss} is not {expected}, the loss on one device")
    print(trace)
    ratio = f"{trace.nbytes / bound:.3f} times {bound:,}" if bound else "none is needed"
    print(f"{trace.nbytes:,} bytes a step, {ratio}")
