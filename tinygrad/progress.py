"""Progress bars: those of `tqdm`, and of several ranks that run one program, the first
shows them.

This imports `tqdm`, so only what shows a bar imports it.
"""

from __future__ import annotations

from typing import Any

import tqdm as package

from tinygrad.sharding import current_local_devices


class tqdm(package.tqdm):  # type: ignore[misc]  # the package has no types
    """A progress bar of `tqdm`, hidden by all ranks but the first.

    >>> list(tqdm([1, 2], disable=True))
    [1, 2]
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        rank = current_local_devices().rank
        if rank is not None and rank.number:
            options["disable"] = True
        super().__init__(*args, **options)


def trange(*args: int, **options: Any) -> tqdm:
    """A progress bar over `range(*args)`.

    >>> list(trange(3, disable=True))
    [0, 1, 2]
    """
    return tqdm(range(*args), **options)
