"""Generated tokens of one reply to its parts, as they stream.

Input: `Generated` tokens and, at the end, the reason why generation finished. Output: `Delta`s and
a finish reason of OpenAI's API. Invariants: no character is cut in two, and neither a stop string
nor text after it is passed on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinygrad.apps.language.chat.reply_parser import (
    CLOSE_REASONING,
    END_THINK,
    MARKERS,
    THINK,
    Delta,
    ReplyParser,
)
from tinygrad.apps.language.chat.stop_strings import StopStrings
from tinygrad.apps.language.chat.template import ChatTemplate
from tinygrad.apps.language.chat.tool_calls import NO_MARK, Tool
from tinygrad.apps.language.generation.engine import FinishReason
from tinygrad.apps.language.generation.sampling import Generated
from tinygrad.apps.language.tokenizer.tokenizer import SimpleTokenizer


class ReplyReader:
    """Detokenizes one reply and cuts it at stop strings; without `parser`, all of it is content.

    With `single_call`, the reply ends with its first tool call.

    >>> reader = ReplyReader(SimpleTokenizer({"a": 0, "b": 1}, {}), stops=["b"])
    >>> reader.push(Generated(0, -0.5)), reader.push(Generated(1, -0.1)), reader.stopped
    ([Delta(content='a')], [], True)
    """

    def __init__(
        self,
        tokenizer: SimpleTokenizer,
        stops: Sequence[str] = (),
        parser: ReplyParser | None = None,
        single_call: bool = False,
    ) -> None:
        shown = MARKERS if parser else frozenset[str]()
        self._stream = tokenizer.stream(special=shown)
        self._stops = StopStrings(stops)
        self._parser = parser
        self._single_call = single_call
        self._called = False

    @property
    def stopped(self) -> bool:
        """Whether a stop string, or the only call, was found, so that no more tokens are needed."""
        return self._stops.found or (self._called and self._single_call)

    def push(self, generated: Generated) -> list[Delta]:
        """The parts that are decided with a token."""
        return self._parsed(self._stops.push(self._stream.push(generated.token)))

    def finish(self) -> list[Delta]:
        """The parts that were held back, at the end of the reply."""
        rest = self._stops.push(self._stream.finish()) + self._stops.finish()
        deltas = self._parsed(rest)
        if self._parser:
            deltas += self._cut(self._parser.finish())
        return deltas

    def finish_reason(self, reason: FinishReason) -> str:
        """`stop`, `length` or `tool_calls`; valid after `finish`."""
        if self._called and reason != FinishReason.LENGTH:
            return "tool_calls"
        return "stop" if self.stopped else str(reason)

    def _parsed(self, text: str) -> list[Delta]:
        if self._parser is None:
            return [Delta(content=text)] if text else []
        return self._cut(self._parser.push(text))

    def _cut(self, deltas: list[Delta]) -> list[Delta]:
        """The deltas up to the first call, if there can be one only."""
        kept = []
        for delta in deltas:
            if self._called and self._single_call:
                break
            kept.append(delta)
            self._called |= delta.call is not None
        return kept


@dataclass(frozen=True)
class BegunReply:
    """The text at which a reply starts, at the end of the prompt, and whether that is inside of
    reasoning.
    """

    text: str = ""
    thinking: bool = False

    @classmethod
    def of_message(
        cls, prompt: str, message: Mapping[str, Any], plain: Callable[[str], str]
    ) -> BegunReply:
        """The reply that a message begins after `prompt`; `plain` protects its texts.

        A content continues what follows reasoning, unless it begins with reasoning itself.

        >>> BegunReply.of_message("<think>", {"content": "I"}, str).text.split()
        ['</think>', 'I']
        """
        opened = prompt.rstrip().endswith(THINK)
        opening = "" if opened else f"{THINK}\n"
        content, reasoning = message["content"], message.get("reasoning_content", "")
        inline = content.strip()
        if inline.startswith(THINK) or (opened and END_THINK in inline):
            reasoning, closed, rest = content.lstrip().removeprefix(THINK).partition(END_THINK)
            text = opening + plain(reasoning.lstrip("\n")) + closed + plain(rest)
            return cls(text, thinking=not closed)
        if reasoning and not content:
            return cls(opening + plain(reasoning), thinking=True)
        if reasoning:
            return cls(opening + plain(reasoning) + CLOSE_REASONING + plain(content))
        if content and opened:
            return cls(CLOSE_REASONING + plain(content))
        return cls(plain(content), thinking=opened)


def reply_parser_for(
    template: ChatTemplate, begun: BegunReply, tools: Sequence[Tool] = ()
) -> ReplyParser:
    """The parser for the rest of a reply, in the format of its template."""
    bare = template.call_mark == NO_MARK
    return ReplyParser(tools, bare, begun.thinking, is_begun=bool(begun.text))
