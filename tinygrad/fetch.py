"""Downloads that are kept: from a URL, or a file of a package's wheel."""

from __future__ import annotations

from pathlib import Path


def fetch(
    url: str,
    name: str | None = None,
    subdir: str | None = None,
    gunzip: bool = False,
    allow_caching: bool = True,
    sha256: str | None = None,
) -> Path:
    """Placeholder until the download code lands."""
    raise NotImplementedError(f"cannot fetch {url} yet")
