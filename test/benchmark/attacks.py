"""How long other users of the language model server wait while it is attacked.

`python -m test.benchmark.attacks [--rounds N] [--seconds S] [--pause P]` starts a server of the
default model, and one user of it, who asks short questions one after the other. Each round is a
time without attacks, and the same time with all of them at once, each in a loop: schemas and
patterns that take long to compile, bodies of 4 MB, deep nesting, random requests, and headers that
are never completed. It prints how long the user waited for replies and for the first and each
further token, and the status codes of the attacks. These run in a process of their own, from the
same address and on the same cores as the user and the server, and go on P seconds after a response.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import multiprocessing
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from random import Random
from typing import Any

from test.llm.bad_requests import CHAT, USER, called_with, junk, nested, with_schema
from test.llm.server_process import port_of

TIMEOUT_S = 120
TOKENS = 16
HALF_SENT = 64
Body = dict[str, Any]

ATTACKS: dict[str, Body] = {
    "schema that explodes": with_schema({"type": "integer", "multipleOf": 99999999}),
    "pattern that explodes": {"messages": [USER], "guided_regex": "^(a?){500}a{500}$"},
    "4 MB of one letter": {"messages": [{**USER, "content": "a" * 4_000_000}]},
    "nested schema": with_schema(nested(400)),
    "nested arguments": called_with("[" * 100_000),
}


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[int]:
    """The port of a server process."""
    command = [sys.executable, "-m", "tinygrad.apps.llm", "--serve", "0", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield port_of(process)
        finally:
            process.send_signal(signal.SIGTERM)


def ask(port: int, body: Any) -> int:
    """The status of the response to a request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    with contextlib.closing(connection):
        data = json.dumps(body).encode()
        connection.request("POST", CHAT, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        return answer.status


@dataclass
class Latencies:
    """Times in seconds: of requests, from a request to its first token, and between tokens."""

    replies: list[float] = field(default_factory=list)
    first_tokens: list[float] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)

    def measure(self, port: int, seconds: float, random: Random) -> None:
        """Add the times of one user."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            # no two prompts are equal, so each is read
            question = f"What is {random.randrange(10**6)} plus {random.randrange(10**6)}?"
            body = {"messages": [{"role": "user", "content": question}], "max_tokens": TOKENS}
            started = time.monotonic()
            times = [one - started for one in token_times(port, {**body, "stream": True})]
            self.replies.append(time.monotonic() - started)
            self.first_tokens.append(times[0])
            self.tokens += [after - before for before, after in itertools.pairwise(times)]


def token_times(port: int, body: Any) -> list[float]:
    """When the parts of a streamed reply came."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    with contextlib.closing(connection):
        data = json.dumps(body).encode()
        connection.request("POST", CHAT, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200
        times = [time.monotonic() for line in answer if b'"content": "' in line]
    # the first part has the role and no text
    return times[1:]


def attack(port: int, on: Event, ended: Event, results: Any, pause_s: float) -> None:
    """Run all attacks while `on`, until `ended`; each goes on `pause_s` after its response."""
    seen: Counter[tuple[str, int]] = Counter()

    def repeat(name: str, random: Random) -> None:
        while on.wait() and not ended.is_set():
            body = ATTACKS.get(name) or {"messages": [USER], random.choice(NAMES): junk(random)}
            seen[name, ask(port, body | {"max_tokens": 1})] += 1
            ended.wait(pause_s)

    def hold() -> None:
        while on.wait() and not ended.is_set():
            with contextlib.ExitStack() as closing:
                for number in range(HALF_SENT):
                    one = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
                    closing.enter_context(one).sendall(b"GET / HTTP/1.1\r\nHost: x"[:number])
                ended.wait(1)

    names = [*ATTACKS, "random request"]
    threads = [threading.Thread(target=repeat, args=(name, Random(name))) for name in names]
    threads.append(threading.Thread(target=hold))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put(dict(seen))


NAMES = ("response_format", "tools", "stop", "logit_bias", "messages", "seed", "unheard_of")


def summary(times: list[float]) -> str:
    return f"median {statistics.median(times):.4f} s, 95 % {percentile(times):.4f} s"


def percentile(times: list[float]) -> float:
    return statistics.quantiles(times, n=20)[-1]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m test.benchmark.attacks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--pause", type=float, default=0)
    options = parser.parse_args()
    processes = multiprocessing.get_context("spawn")
    random = Random(0)
    alone, attacked = Latencies(), Latencies()
    on, ended, results = processes.Event(), processes.Event(), processes.Queue()
    with serving() as port:
        Latencies().measure(port, 3, random)
        arguments = (port, on, ended, results, options.pause)
        attacker = processes.Process(target=attack, args=arguments)
        attacker.start()
        for _ in range(options.rounds):
            alone.measure(port, options.seconds, random)
            on.set()
            attacked.measure(port, options.seconds, random)
            on.clear()
            # requests that are under way, and the schema that is compiled, end
            time.sleep(2)
        ended.set()
        on.set()
        seen = results.get(timeout=TIMEOUT_S)
        attacker.join()
    for (name, status), count in sorted(seen.items()):
        print(f"  {name}: {count} times {status}")
    for name in ("replies", "first_tokens", "tokens"):
        before, after = getattr(alone, name), getattr(attacked, name)
        print(f"{name.replace('_', ' ')} of {len(before)} and {len(after)}")
        print(f"  alone:    {summary(before)}\n  attacked: {summary(after)}")
        median = statistics.median(after) / statistics.median(before)
        print(f"  times {median:.2f}, and {percentile(after) / percentile(before):.2f}")


if __name__ == "__main__":
    main()
