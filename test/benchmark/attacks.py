"""How long other users of the language model server wait while it is attacked.

`python -m test.benchmark.attacks [--rounds N] [--seconds S]` starts a server of the default model,
and one user of it, who asks short questions one after the other. Each round is a time without
attacks, and the same time with all of them at once: schemas and patterns that take long to compile,
bodies of 4 MB, deep nesting, random requests, and headers that are never completed. It prints the
latency of the user, and the status codes of the attacks. Each attack is repeated `--pause` seconds
after its response. The attacks run in a process of their own, and use the same cores as the server.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import multiprocessing
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from random import Random
from typing import Any

from test.llm.bad_requests import CHAT, USER, called_with, junk, nested, with_schema

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
        assert process.stderr is not None
        try:
            found = None
            while found is None:
                line = process.stderr.readline()
                assert line, "the server ended"
                found = re.search(r"http://[^:]+:(\d+)/", line)
            yield int(found[1])
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


def latencies(port: int, seconds: float, random: Random) -> list[float]:
    """The times of the requests of one user."""
    found = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        # no two prompts are equal, so each is read
        question = f"What is {random.randrange(10**6)} plus {random.randrange(10**6)}?"
        body = {"messages": [{"role": "user", "content": question}], "max_tokens": TOKENS}
        started = time.monotonic()
        assert ask(port, body) == 200
        found.append(time.monotonic() - started)
    return found


def attack(port: int, ended: Event, results: Any, pause_s: float) -> None:
    """Run all attacks until `ended`; each is repeated `pause_s` after its response."""
    seen: Counter[tuple[str, int]] = Counter()

    def repeat(name: str, random: Random) -> None:
        while not ended.is_set():
            body = ATTACKS.get(name) or {"messages": [USER], random.choice(NAMES): junk(random)}
            seen[name, ask(port, body | {"max_tokens": 1})] += 1
            ended.wait(pause_s)

    def hold() -> None:
        while not ended.is_set():
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
    quantiles = statistics.quantiles(times, n=20)
    return f"median {statistics.median(times):.3f} s, 95 % {quantiles[-1]:.3f} s of {len(times)}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m test.benchmark.attacks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--pause", type=float, default=0.2)
    options = parser.parse_args()
    processes = multiprocessing.get_context("spawn")
    random = Random(0)
    alone: list[float] = []
    attacked: list[float] = []
    seen: Counter[tuple[str, int]] = Counter()
    with serving() as port:
        latencies(port, 3, random)
        for _ in range(options.rounds):
            alone += latencies(port, options.seconds, random)
            ended, results = processes.Event(), processes.Queue()
            attacker = processes.Process(target=attack, args=(port, ended, results, options.pause))
            attacker.start()
            time.sleep(1)
            attacked += latencies(port, options.seconds, random)
            ended.set()
            seen.update(results.get(timeout=TIMEOUT_S))
            attacker.join()
    for (name, status), count in sorted(seen.items()):
        print(f"  {name}: {count} times {status}")
    print(f"alone:    {summary(alone)}\nattacked: {summary(attacked)}")
    print(f"median latency times {statistics.median(attacked) / statistics.median(alone):.2f}")


if __name__ == "__main__":
    main()
