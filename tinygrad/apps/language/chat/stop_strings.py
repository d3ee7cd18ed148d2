"""Stop strings: texts that end a reply, found while it streams."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Passes text on up to the first stop string, which is left out.

    Text that may be the start of a stop string is held back until that is decided.

    >>> stops = StopStrings(["END"])
    >>> stops.push("text E"), stops.push("N"), stops.push("D more"), stops.found
    ('text ', '', '', True)
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.found = False

    def push(self, text: str) -> str:
        """The text that is certain to precede any stop string."""
        if self.found:
            return ""
        text = self._held + text
        # the one that ends first, so that the result does not depend on how text is divided
        ends = [(text.find(stop) + len(stop), -len(stop)) for stop in self._stops if stop in text]
        if ends:
            self.found, self._held = True, ""
            return text[: sum(min(ends))]
        keep = count_partial_marker(text, self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """The text that was held back, at the end of the reply."""
        held, self._held = self._held, ""
        return held


def count_partial_marker(text: str, markers: Sequence[str]) -> int:
    """The number of characters at the end of `text` that may be the start of a marker.

    >>> count_partial_marker("a <to", ["<tool>", "<think>"])
    3
    """
    longest = max(map(len, markers), default=1) - 1
    for count in range(min(longest, len(text)), 0, -1):
        end = text[len(text) - count :]
        if any(marker.startswith(end) for marker in markers):
            return count
    return 0
