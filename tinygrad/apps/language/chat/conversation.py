"""A conversation with a model in this process: a message in, a reply out as it is written.

In: a loaded model, and messages. Out: `Delta`s. What stays true: what the model has read of the
conversation it does not read again; a reply that was broken off is part of the conversation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tinygrad.apps.language.chat.reply_parser import Delta
from tinygrad.apps.language.chat.reply_reader import ReplyReader, parser_for
from tinygrad.apps.language.chat.template import ChatError, ChatTemplate
from tinygrad.apps.language.generation.engine import Model
from tinygrad.apps.language.generation.generate import generate
from tinygrad.apps.language.generation.grammar import Grammar
from tinygrad.apps.language.generation.kv_cache import ContextOverflowError
from tinygrad.apps.language.generation.sampling import Sampling
from tinygrad.apps.language.tokenizer.tokenizer import SimpleTokenizer


@dataclass(frozen=True)
class Loaded:
    """A model with what it takes to talk to it. `template` is None if it only continues text."""

    name: str
    model: Model
    tokenizer: SimpleTokenizer
    template: ChatTemplate | None

    def needs_template(self) -> ChatTemplate:
        """The template. Raises ChatError if there is none."""
        if self.template is None:
            raise ChatError(
                f"{self.name} has no chat template: it continues texts; use --raw --prompt TEXT"
            )
        return self.template


@dataclass
class Wishes:
    """How replies are written: until a stop comes, or so many tokens, or a grammar ends."""

    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None
    stops: tuple[str, ...] = ()
    grammar: Grammar | None = None


class Conversation:
    """Messages and replies, with one model."""

    def __init__(self, loaded: Loaded, wishes: Wishes, system: str | None = None) -> None:
        self.loaded, self.wishes, self.system = loaded, wishes, system
        self.messages: list[dict[str, Any]] = []
        self._cache = loaded.model.new_cache()

    def reply(self, text: str) -> Iterator[Delta]:
        """What the model says to a message. Raises ChatError, and ContextOverflowError."""
        template = self.loaded.needs_template()
        system = [{"role": "system", "content": self.system}] if self.system else []
        question = {"role": "user", "content": text}
        prompt = template.render([*system, *self.messages, question])
        tokenizer = self.loaded.tokenizer
        tokens = tokenizer.encode_template(prompt, add_bos=tokenizer.adds_bos)
        parser = parser_for(template, prompt, has_tools=False)
        said: list[str] = []
        try:
            for delta in self._write(tokens, ReplyReader(tokenizer, self.wishes.stops, parser)):
                said.append(delta.content)
                yield delta
        finally:
            if said:
                self.messages += [question, {"role": "assistant", "content": "".join(said)}]

    def continuation(self, text: str) -> Iterator[Delta]:
        """What the model adds to a text."""
        tokenizer = self.loaded.tokenizer
        tokens = tokenizer.encode(text, add_bos=tokenizer.adds_bos)
        return self._write(tokens, ReplyReader(tokenizer, self.wishes.stops))

    def _write(self, tokens: list[int], reader: ReplyReader) -> Iterator[Delta]:
        ends = self.loaded.tokenizer.end_ids
        count = 0
        wishes = self.wishes
        generated = generate(
            self.loaded.model, tokens, wishes.sampling, self._cache, wishes.grammar
        )
        try:
            for found in generated:
                if found.token in ends:
                    break
                yield from reader.push(found)
                count += 1
                if reader.stopped or count == wishes.max_tokens:
                    break
        except ContextOverflowError:
            # a reply that fills the context ends there; a prompt that does is an error
            if not count:
                raise
        yield from reader.finish()
