"""Counts and times of requests, in the text format of Prometheus.

Input: requests as they end, and the engine. Output: the text of `/metrics`. Invariant: there is
nothing of the content of requests in it.
The format: https://prometheus.io/docs/instrumenting/exposition_formats
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tinygrad.apps.language.generation.engine import Engine
    from tinygrad.apps.language.server.service import ChoiceStream

TIMES_S = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)


class Metrics:
    """The metrics of one server. Raises ImportError without prometheus_client."""

    def __init__(self, engine: Engine) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
        except ImportError as error:
            raise ImportError(
                "the server needs prometheus-client: pip install 'tinygrad-sharding[llm]'"
            ) from error
        self._registry = registry = CollectorRegistry()
        self._responses = Counter(
            "llm_responses", "Responses by path and status.", ("path", "status"), registry=registry
        )
        self._tokens = Counter(
            "llm_tokens",
            "Tokens of prompts, those of them that were cached, and of replies.",
            ("kind",),
            registry=registry,
        )
        self._first_token = Histogram(
            "llm_first_token_seconds",
            "From the request to its first token.",
            buckets=TIMES_S,
            registry=registry,
        )
        self._duration = Histogram(
            "llm_request_seconds",
            "From the request to the end of its reply.",
            buckets=TIMES_S,
            registry=registry,
        )
        gauges = {
            "llm_running": ("Sequences that are generated.", lambda: engine.load[0]),
            "llm_waiting": ("Requests in the queue.", lambda: engine.load[1]),
            "llm_cached_tokens": ("Tokens in the KV caches.", lambda: engine.cache_use[0]),
            "llm_spilled_bytes": (
                "Host memory for KV caches without a slot.",
                lambda: engine.spilled_bytes,
            ),
            "llm_cache_capacity": ("Tokens that the KV caches hold.", lambda: engine.cache_use[1]),
        }
        for name, (meaning, value) in gauges.items():
            Gauge(name, meaning, registry=registry).set_function(value)

    def count_response(self, path: str, status: int) -> None:
        """Count a response."""
        self._responses.labels(path, str(status)).inc()

    def count_reply(self, choices: ChoiceStream) -> None:
        """Count the tokens and times of a request that has ended."""
        usage = choices.usage
        for kind, count in (
            ("prompt", usage.prompt),
            ("cached", usage.cached),
            ("reply", usage.completion),
        ):
            self._tokens.labels(kind).inc(count)
        self._duration.observe(time.monotonic() - choices.started)
        if choices.first_token is not None:
            self._first_token.observe(choices.first_token - choices.started)

    def text(self) -> bytes:
        """All metrics."""
        from prometheus_client import generate_latest

        return generate_latest(self._registry)
