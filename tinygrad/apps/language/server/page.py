"""The chat page: one HTML file that loads nothing, with its scripts inside.

Files: `page.html` has the elements and the style, `markdown.js` turns replies into elements, and
`chat.js` is the conversation.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from importlib import resources


@functools.cache
def page() -> str:
    """The page as HTML."""

    def script(tag: re.Match[str]) -> str:
        return f"<script>\n{page_file(tag[1])}</script>"

    return re.sub(r'<script src="(\w+\.js)"></script>', script, page_file("page.html"))


def page_file(name: str) -> str:
    """The text of a file of the page."""
    return resources.files("tinygrad.apps.language.server").joinpath(name).read_text("utf-8")


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
