"""A server in a process of its own."""

from __future__ import annotations

import re
import subprocess


def port_of(process: subprocess.Popen[str]) -> int:
    """The port that a server process says it listens on, in its standard error."""
    assert process.stderr is not None
    found = None
    while found is None:
        line = process.stderr.readline()
        assert line, "the server ended"
        found = re.search(r"http://[^:]+:(\d+)/", line)
    return int(found[1])
