"""Where a reply ends before the model ends it: texts that stop it, found as it streams."""

from __future__ import annotations

from collections.abc import Sequence


class StopTexts:
    """Passes text on until one of `stops` comes; that one, and what follows, is left out.

    What may be the start of a stop is held back until it is clear.

    >>> stops = StopTexts(["END"])
    >>> stops.push("text E"), stops.push("N"), stops.push("D more"), stops.found
    ('text ', '', '', True)
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.found = False

    def push(self, text: str) -> str:
        """What is certain to come before any stop."""
        if self.found:
            return ""
        text = self._held + text
        # the one that is complete first, so that it does not matter in what parts the text comes
        ends = [(text.find(stop) + len(stop), -len(stop)) for stop in self._stops if stop in text]
        if ends:
            self.found, self._held = True, ""
            return text[: sum(min(ends))]
        keep = held_back(text, self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """What was held back, now that nothing more comes."""
        held, self._held = self._held, ""
        return held


def held_back(text: str, markers: Sequence[str]) -> int:
    """How many characters at the end of `text` may be the start of a marker.

    >>> held_back("a <to", ["<tool>", "<think>"])
    3
    """
    longest = max(map(len, markers), default=1) - 1
    for count in range(min(longest, len(text)), 0, -1):
        end = text[len(text) - count :]
        if any(marker.startswith(end) for marker in markers):
            return count
    return 0
