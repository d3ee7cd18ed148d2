"""The tokens of one reply to what it says, as they come.

In: `Generated` tokens and, at the end, why there are no more. Out: `Delta`s, the tokens with their
log-probabilities, and a finish reason as OpenAI's interface has them. What stays true: no character
is split, and nothing of a stop, or behind it, comes out.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinygrad.apps.language.chat.reply_parser import (
    CALL,
    MARKERS,
    MISTRAL,
    THINK,
    Delta,
    ReplyParser,
)
from tinygrad.apps.language.chat.stop_strings import StopTexts
from tinygrad.apps.language.chat.template import ChatTemplate
from tinygrad.apps.language.generation.engine import Reason
from tinygrad.apps.language.generation.sampling import Generated
from tinygrad.apps.language.tokenizer.tokenizer import SimpleTokenizer


class ReplyReader:
    """Reads one reply; without `parser`, all of it is content.

    >>> reader = ReplyReader(SimpleTokenizer({"a": 0, "b": 1}, {}), stops=["b"])
    >>> reader.push(Generated(0, -0.5)), reader.push(Generated(1, -0.1)), reader.stopped
    ([Delta(content='a')], [], True)
    """

    def __init__(
        self,
        tokenizer: SimpleTokenizer,
        stops: Sequence[str] = (),
        parser: ReplyParser | None = None,
    ) -> None:
        shown = MARKERS if parser else frozenset[str]()
        self._stream = tokenizer.stream(special=shown)
        self._stops = StopTexts(stops)
        self._parser = parser
        self._called = False

    @property
    def stopped(self) -> bool:
        """Whether a stop came, so that no more tokens are needed."""
        return self._stops.found

    def push(self, generated: Generated) -> list[Delta]:
        """What came with a token."""
        return self._parsed(self._stops.push(self._stream.push(generated.token)))

    def finish(self) -> list[Delta]:
        """What was held back."""
        rest = self._stops.push(self._stream.finish()) + self._stops.finish()
        deltas = self._parsed(rest)
        if self._parser:
            deltas += self._parser.finish()
        self._called |= any(delta.call for delta in deltas)
        return deltas

    def finish_reason(self, reason: Reason) -> str:
        """`stop`, `length` or `tool_calls`; to be asked after `finish`."""
        if self._called and reason != Reason.LENGTH:
            return "tool_calls"
        return "stop" if self.stopped else str(reason)

    def _parsed(self, text: str) -> list[Delta]:
        if self._parser is None:
            return [Delta(content=text)] if text else []
        deltas = self._parser.push(text)
        self._called |= any(delta.call for delta in deltas)
        return deltas


def parser_for(template: ChatTemplate, prompt: str, has_tools: bool) -> ReplyParser:
    """The parser for replies to a prompt, as its template asks for."""
    other_ways = CALL in template.source or MISTRAL in template.source
    return ReplyParser(
        tools=has_tools,
        bare_json=not other_ways,
        thinking=prompt.rstrip().endswith(THINK),
    )
