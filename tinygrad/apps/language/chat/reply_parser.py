"""Streaming parser of replies: reasoning, content and tool calls.

Input: text in parts. Output: `Delta`s. Invariants: no text is lost; text that looks like a tool
call and is not valid comes out as content. Reasoning is between `<think>` and `</think>`, before
any content; `tool_calls` describes the formats of calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinygrad.apps.language.chat.stop_strings import count_partial_marker
from tinygrad.apps.language.chat.tool_calls import (
    CALL,
    END_CALL,
    MISTRAL,
    MISTRAL_ARGUMENTS,
    MISTRAL_ID,
    NO_MARK,
    PYTHON_TAG,
    CallReader,
    Tool,
    ToolCall,
)

THINK, END_THINK = "<think>", "</think>"
# calls inside of one another that the end of a reply cuts off are each read to that end
MAX_CUT_OFF = 16
# as models that reason write it
CLOSE_REASONING = f"\n{END_THINK}\n\n"
# control tokens in some vocabularies, which must be decoded as text to be found
MARKERS = frozenset(
    {THINK, END_THINK, CALL, END_CALL, MISTRAL, MISTRAL_ID, MISTRAL_ARGUMENTS, PYTHON_TAG}
)


@dataclass(frozen=True)
class Delta:
    """A part of a reply: of its content, of its reasoning, or a tool call."""

    content: str = ""
    reasoning: str = ""
    call: ToolCall | None = None

    def __repr__(self) -> str:
        shown = {name: value for name, value in vars(self).items() if value}
        return f"Delta({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class ReplyParser:
    """Parses one reply; it may call `tools`.

    `bare_json`: a reply that starts with a brace may be a tool call, so it is held until that is
    decided. `thinking`: the reply starts inside of reasoning, or, if it `is_begun`, continues a
    text.

    >>> parser = ReplyParser()
    >>> parser.push("<think>one"), parser.push("</thi"), parser.push("nk>two")
    ([Delta(reasoning='one')], [], [Delta(content='two')])
    """

    def __init__(
        self,
        tools: Sequence[Tool] = (),
        bare_json: bool = False,
        thinking: bool = False,
        is_begun: bool = False,
    ) -> None:
        self._tools = tools
        self._call_openers: Sequence[str] = (CALL, MISTRAL, PYTHON_TAG) if tools else ()
        self._bare_json = bare_json and bool(tools)
        self._thinking = thinking
        # what reads the calls of the current part, and the text of their mark, if they are none
        self._reader: CallReader | None = None
        self._opening = ""
        # the number of calls that the end of the reply cut off
        self._cut_off = 0
        self._buffer = ""
        self._has_content = is_begun and not thinking
        self._fresh = thinking and not is_begun

    def push(self, text: str) -> list[Delta]:
        """The parts that are decided after `text`."""
        self._buffer += text
        return self._parts(is_whole=False)

    def finish(self) -> list[Delta]:
        """The parts that were held back, at the end of the reply."""
        found = self._parts(is_whole=True)
        rest, self._buffer = self._buffer, ""
        if rest:
            found.append(Delta(reasoning=rest) if self._thinking else Delta(content=rest))
        return found

    def _parts(self, is_whole: bool) -> list[Delta]:
        found: list[Delta] = []
        while (parts := self._next(is_whole)) is not None:
            found += parts
        return found

    def _next(self, is_whole: bool) -> list[Delta] | None:
        """The deltas of the next step; None if it needs more text."""
        if self._thinking:
            return self._reasoning()
        if self._reader is not None:
            return self._calls(self._reader, is_whole)
        return self._content()

    def _reasoning(self) -> list[Delta] | None:
        if self._fresh:
            self._buffer = self._buffer.lstrip("\r\n")
        text, mark, rest = self._buffer.partition(END_THINK)
        if mark:
            self._thinking, self._buffer, self._fresh = False, rest, True
            text = text.rstrip()
            return [Delta(reasoning=text)] if text else []
        return self._release([END_THINK], is_content=False)

    def _calls(self, reader: CallReader, is_whole: bool) -> list[Delta] | None:
        end = reader.end(self._buffer, is_whole)
        if end is None:
            return None
        self._reader = None
        if reader.calls:
            self._buffer, self._fresh = self._buffer[end:], True
            return [Delta(call=call) for call in reader.calls]
        # the mark is content, and what follows it is read on
        self._has_content = True
        self._cut_off += is_whole
        if self._cut_off == MAX_CUT_OFF:
            self._call_openers = ()
        return [Delta(content=self._opening)] if self._opening else []

    def _content(self) -> list[Delta] | None:
        if self._fresh:
            # line breaks between parts belong to neither
            self._buffer = self._buffer.lstrip("\r\n")
        text = self._buffer
        if self._bare_json and not self._has_content and text.lstrip().startswith("{"):
            self._reader, self._opening = CallReader(NO_MARK, self._tools), ""
            return []
        # reasoning comes before any content
        reasons = not self._has_content and THINK.startswith(text.lstrip()[: len(THINK)])
        openers = [THINK] if reasons else self._call_openers
        places = [(text.find(mark), mark) for mark in openers if mark in text]
        if places:
            place, mark = min(places)
            before = text[:place].rstrip()
            end = place + len(mark)
            self._opening, self._buffer = text[len(before) : end], text[end:]
            self._fresh = self._thinking = mark == THINK
            self._reader = None if mark == THINK else CallReader(mark, self._tools)
            self._has_content |= bool(before)
            return [Delta(content=before)] if before else []
        return self._release([THINK, *openers], is_content=True)

    def _release(self, markers: Sequence[str], is_content: bool) -> list[Delta] | None:
        """All of the buffer except a possible start of a marker, and the white space before it."""
        text = self._buffer[
            : len(self._buffer) - count_partial_marker(self._buffer, markers)
        ].rstrip()
        if not text:
            return None
        self._buffer = self._buffer[len(text) :]
        self._fresh = False
        self._has_content |= is_content
        return [Delta(content=text) if is_content else Delta(reasoning=text)]
