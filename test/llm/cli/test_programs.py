"""End-to-end tests with a real model, SmolLM2-135M: on a terminal, and with many clients."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from test.llm.server_process import port_of
from tinygrad.apps.llm import ChatTemplate, SimpleTokenizer, Transformer, locate
from tinygrad.fetch import DownloadError

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
MODEL = "smollm2:135m"
CLIENTS, DISTURBERS, DURATION_S = 64, 8, 60
PROGRAM = [sys.executable, "-m", "tinygrad.apps.llm", "-m", MODEL, "--temperature", "0"]
CITIES = ("Paris", "London", "Rome", "Berlin", "Madrid", "Vienna", "Oslo", "Lisbon")
TIMEOUT_S = 240


@pytest.fixture(scope="module", autouse=True)
def model_file() -> Path:
    pytest.importorskip("jinja2")
    try:
        return locate(MODEL)
    except DownloadError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", autouse=True)
def interrupts() -> Iterator[None]:
    """Restores Control-C, which background processes of a shell, and so these programs, ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def run(*arguments: str) -> str:
    command = [*PROGRAM, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_and_two_devices_answer_a_question() -> None:
    for layout in ([], ["--shard", "2"], ["--mesh", "dp=2"]):
        assert "Paris" in run("--prompt", "What is the capital of France?", *layout)


def test_a_program_generates_tokens(model_file: Path) -> None:
    model, metadata = Transformer.from_gguf(model_file, max_context=256)
    tokenizer = SimpleTokenizer.from_gguf_kv(metadata)
    template = ChatTemplate.from_gguf_kv(metadata, tokenizer)
    prompt = template.encode([{"role": "user", "content": "What is the capital of France?"}])
    reply = []
    for generated in model.generate(prompt):
        if generated.token in tokenizer.end_ids:
            break
        reply.append(generated.token)
    assert tokenizer.decode(reply) == "The capital of France is Paris."


def test_chat_on_a_terminal() -> None:
    pty = pytest.importorskip("pty")
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(ROOT)
        os.execv(sys.executable, PROGRAM)

    def read_until(text: bytes) -> bytes:
        found = b""
        until = time.monotonic() + TIMEOUT_S
        while text not in found:
            ready, _, _ = select.select([terminal], [], [], until - time.monotonic())
            assert ready, f"no {text!r} in {found!r}"
            found += os.read(terminal, 4096)
        return found

    read_until(b"you> ")
    os.write(terminal, b"Write a long essay about Rome.\n")
    read_until(b"Rome.\r\n")
    read_until(b" ")
    os.write(terminal, b"\x03")
    assert b"(stopped)" in read_until(b"you> ")
    os.write(terminal, b"/new\n")
    read_until(b"you> ")
    os.write(terminal, b"What is the capital of France?\n")
    assert b"Paris" in read_until(b"you> ")
    # lines that are pasted together are one message
    os.write(terminal, b"\x1b[200~/system be brief\nand polite\x1b[201~\n")
    read_until(b"you> ")
    os.write(terminal, b"/system\n")
    assert b"be brief\r\nand polite" in read_until(b"you> ")
    os.write(terminal, b"What is the capital of France?\n")
    read_until(b"you> ")
    os.write(terminal, b"\x1b[A")  # the previous line, by the arrow key
    read_until(b"capital of France?")
    os.write(terminal, b"\x15\x04")
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[tuple[str, int]]:
    """The address and number of a server process, which must exit on interrupt."""
    command = [*PROGRAM, "--serve", "0", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            yield f"http://127.0.0.1:{port_of(process)}/", process.pid
        finally:
            process.send_signal(signal.SIGINT)
            said = process.stderr.read()
        assert process.wait(TIMEOUT_S) == 130
        assert "Traceback" not in said


def descriptors_of(process: int) -> int:
    """How many files and connections a process has open; 0 where the system does not say."""
    folder = Path(f"/proc/{process}/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def disturb(address: str, order: random.Random) -> None:
    """A connection with half a header, or a stream that is cut off, or read slowly."""
    found = urlsplit(address)
    assert found.hostname and found.port
    body = json.dumps(
        {"messages": [{"role": "user", "content": "Hi"}], "stream": True, "max_tokens": 8}
    )
    request = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {found.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()
    with socket.create_connection((found.hostname, found.port), timeout=TIMEOUT_S) as connection:
        kind = order.randrange(3)
        connection.sendall(request[: order.randrange(len(request))] if kind == 0 else request)
        if kind == 0:
            time.sleep(order.random() * 3)
        received = b""
        while kind and b"[DONE]" not in received:
            part = connection.recv(64)
            received += part
            if not part or (kind == 1 and order.random() < 0.2):
                return
            time.sleep(0.05)


def test_a_server_that_is_terminated_ends_its_streams_with_an_error() -> None:
    pytest.importorskip("uvicorn")
    command = [*PROGRAM, "--serve", "0"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        connection = http.client.HTTPConnection("127.0.0.1", port_of(process), timeout=TIMEOUT_S)
        message = {"role": "user", "content": "Tell me a long story about the sea."}
        body = json.dumps({"messages": [message], "stream": True})
        kind = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", body, kind)
        with contextlib.closing(connection), connection.getresponse() as answer:
            assert answer.readline().startswith(b"data: ")
            process.terminate()
            assert b"the server is shutting down" in answer.read()
        assert process.wait(TIMEOUT_S) in (0, -signal.SIGTERM)
        assert process.stderr.read() == ""


def test_many_clients_get_their_own_replies_from_a_real_model() -> None:
    openai = pytest.importorskip("openai")
    pytest.importorskip("uvicorn")
    wrong: list[Any] = []
    counts = [0] * CLIENTS

    def ask(client: Any, city: str) -> str:
        stream = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": f"Tell me about {city}."}],
            max_tokens=8,
            stream=True,
        )
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream)

    with serving("--parallel", "4", "--queue", "128") as (address, server):
        client = openai.OpenAI(
            base_url=f"{address}v1", api_key="unused", timeout=TIMEOUT_S, max_retries=0
        )
        expected = {city: ask(client, city) for city in CITIES}
        assert len(set(expected.values())) == len(CITIES)
        descriptors = descriptors_of(server)
        until = time.monotonic() + DURATION_S

        def keep_asking(number: int) -> None:
            order = random.Random(number)
            while time.monotonic() < until:
                city = order.choice(CITIES)
                reply = ask(client, city)
                counts[number] += 1
                if reply != expected[city]:
                    wrong.append((city, reply))

        def keep_disturbing(number: int) -> None:
            while time.monotonic() < until:
                disturb(address, random.Random(number))

        threads = [threading.Thread(target=keep_asking, args=(n,)) for n in range(CLIENTS)]
        threads += [threading.Thread(target=keep_disturbing, args=(n,)) for n in range(DISTURBERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        client.close()
        until = time.monotonic() + TIMEOUT_S
        while descriptors_of(server) > descriptors:
            assert time.monotonic() < until, "connections stay open"
            time.sleep(0.1)
    assert not wrong
    assert min(counts) >= 1
