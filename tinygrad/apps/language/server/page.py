"""The chat page: one HTML file that loads nothing from other hosts."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from importlib import resources


@functools.cache
def page() -> str:
    """The page as HTML."""
    return resources.files("tinygrad.apps.language.server").joinpath("page.html").read_text("utf-8")


@functools.cache
def security_policy() -> str:
    """The Content-Security-Policy: only the page's own script and style, and its own server.

    >>> "default-src 'none'" in security_policy()
    True
    """
    scripts, styles = (
        " ".join(map(_source, re.findall(f"<{tag}>(.*?)</{tag}>", page(), re.DOTALL)))
        for tag in ("script", "style")
    )
    return (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _source(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
