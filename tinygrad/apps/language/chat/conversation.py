"""A conversation with a model in this process.

Input: a loaded model, and messages. Output: `Delta`s, as they are generated. Invariants: the prefix
that the KV cache holds is not computed again; an interrupted reply is part of the conversation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tinygrad.apps.language.chat.reply_parser import Delta
from tinygrad.apps.language.chat.reply_reader import BegunReply, ReplyReader, reply_parser_for
from tinygrad.apps.language.chat.template import ChatError, ChatTemplate
from tinygrad.apps.language.generation.generate import LanguageModel, generate
from tinygrad.apps.language.generation.grammar import Grammar
from tinygrad.apps.language.generation.kv_cache import ContextOverflowError
from tinygrad.apps.language.generation.sampling import Sampling
from tinygrad.apps.language.tokenizer.tokenizer import SimpleTokenizer


@dataclass(frozen=True)
class LoadedModel:
    """A model with its tokenizer, chat template (None for a model without one), and sampling."""

    name: str
    model: LanguageModel
    tokenizer: SimpleTokenizer
    template: ChatTemplate | None
    sampling: Sampling = field(default_factory=Sampling)

    def required_template(self) -> ChatTemplate:
        """The template. Raises ChatError if there is none."""
        if self.template is None:
            raise ChatError(
                f"{self.name} has no chat template: it continues texts; use --raw --prompt TEXT"
            )
        return self.template


@dataclass
class ReplyOptions:
    """Sampling parameters, and when replies end: at a stop string, a length, or a grammar's end.

    With `drops_oldest`, a conversation goes on without its oldest messages when it is too long.
    """

    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None
    stops: tuple[str, ...] = ()
    grammar: Grammar | None = None
    drops_oldest: bool = False


class Conversation:
    """Messages and replies, and the KV cache for them."""

    def __init__(
        self, loaded: LoadedModel, options: ReplyOptions, system: str | None = None
    ) -> None:
        self.loaded, self.options, self.system = loaded, options, system
        self.messages: list[dict[str, Any]] = []
        self._cache = loaded.model.new_cache()

    def reply(self, text: str) -> Iterator[Delta]:
        """The reply to a message. Raises ChatError, ContextOverflowError."""
        template, tokenizer = self.loaded.required_template(), self.loaded.tokenizer
        question = {"role": "user", "content": text}
        prompt, tokens = self._prompt(question)
        while self.options.drops_oldest and self.messages and not self._has_room(tokens):
            # a message and its reply
            del self.messages[:2]
            prompt, tokens = self._prompt(question)
        begun = BegunReply.of_message(prompt, {"content": ""}, tokenizer.as_plain)
        parser = reply_parser_for(template, begun)
        content: list[str] = []
        try:
            for delta in self._generate(tokens, ReplyReader(tokenizer, self.options.stops, parser)):
                content.append(delta.content)
                yield delta
        finally:
            if content:
                self.messages += [question, {"role": "assistant", "content": "".join(content)}]

    def _prompt(self, question: dict[str, Any]) -> tuple[str, list[int]]:
        """The text and tokens of the conversation with another message."""
        tokenizer = self.loaded.tokenizer
        system = [{"role": "system", "content": self.system}] if self.system else []
        prompt = self.loaded.required_template().render([*system, *self.messages, question])
        return prompt, tokenizer.encode_template(prompt, add_bos=tokenizer.adds_bos)

    def _has_room(self, tokens: list[int]) -> bool:
        """Whether a reply fits after a prompt: its maximum length, or a quarter of the context."""
        context = self.loaded.model.max_context
        reply = context // 4
        if self.options.max_tokens is not None:
            reply = min(reply, self.options.max_tokens)
        return len(tokens) + reply <= context

    def continuation(self, text: str) -> Iterator[Delta]:
        """The continuation of a text."""
        tokenizer = self.loaded.tokenizer
        tokens = tokenizer.encode(text, add_bos=tokenizer.adds_bos)
        return self._generate(tokens, ReplyReader(tokenizer, self.options.stops))

    def _generate(self, tokens: list[int], reader: ReplyReader) -> Iterator[Delta]:
        ends = self.loaded.tokenizer.end_ids
        count = 0
        options = self.options
        generated = generate(
            self.loaded.model, tokens, options.sampling, self._cache, options.grammar
        )
        cut = False
        try:
            for found in generated:
                if found.token in ends:
                    break
                # a token past the limit only shows that the reply was cut off
                cut = count == options.max_tokens
                if cut:
                    break
                yield from reader.push(found)
                count += 1
                if reader.stopped or (count == options.max_tokens and options.grammar is None):
                    break
        except ContextOverflowError:
            # a reply ends at a full context; a prompt that is too long is an error
            if not count:
                raise
            cut = True
        yield from reader.finish()
        if cut and options.grammar is not None:
            raise ChatError(
                f"the reply was cut off after {count} tokens, so it is not complete; "
                "raise --max-tokens or --max-context"
            )
