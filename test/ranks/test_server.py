"""The language model server on two ranks: rank 0 serves, and the other one follows its calls."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from test.llm.server_process import port_of
from test.llm.tiny_models import write_model
from test.llm.vocabularies import BYTES_AS_TOKENS
from test.ranks import test_mpi
from test.ranks.open_mpi import Mpi, mpich, open_mpi
from test.ranks.test_mpi import LIMIT_S, ROOT, all_end

pytestmark = [pytest.mark.slow, test_mpi.pytestmark]

IDLE_S = 3


class Served(NamedTuple):
    """A server: its launcher, and its port."""

    process: subprocess.Popen[str]
    port: int

    def complete(self, **body: Any) -> Any:
        """The response to a request for a completion."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        with closing(connection):
            kind = {"Content-Type": "application/json"}
            connection.request("POST", "/v1/completions", json.dumps(body), kind)
            answer = json.loads(connection.getresponse().read())
        return [choice["text"] for choice in answer["choices"]]

    def end(self) -> str:
        """What the launcher and the ranks wrote after they were started."""
        return self.process.communicate(timeout=LIMIT_S)[1]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "model.gguf"
    return write_model(path, "llama", tokenizer=BYTES_AS_TOKENS)


TENSOR_PARALLEL, DATA_PARALLEL = ("--shard", "2"), ("--mesh", "dp=2")


@pytest.fixture(params=[mpich, open_mpi], ids=["mpich", "open_mpi"])
def mpi(request: pytest.FixtureRequest) -> Mpi:
    """An MPI with a launcher."""
    found: Mpi = request.param()
    return found


def command_of(
    model: Path,
    processes: int,
    *arguments: str,
    mpi: Mpi,
    layout: tuple[str, ...] = TENSOR_PARALLEL,
) -> list[str]:
    launched = [*mpi.launcher, "-n", str(processes)] if processes > 1 else []
    program = [sys.executable, "-m", "tinygrad.apps.llm", "-m", str(model)]
    return [*launched, *program, *layout, *arguments]


@contextmanager
def serving(
    model: Path, processes: int, mpi: Mpi, layout: tuple[str, ...] = TENSOR_PARALLEL
) -> Iterator[Served]:
    pytest.importorskip("uvicorn")
    options = ("--serve", "0", "--parallel", "2", "--slots", "2")
    process = subprocess.Popen(
        command_of(model, processes, *options, mpi=mpi, layout=layout),
        cwd=ROOT,
        env={**os.environ, **mpi.settings, "PYTHONPATH": str(ROOT), "RANKS_TIMEOUT": "5"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield Served(process, port_of(process))
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def ranks_of(model: Path) -> dict[int, int]:
    """The process of each rank of a server."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command, settings = ((path / name).read_bytes() for name in ("cmdline", "environ"))
        except OSError:
            continue
        rank = re.search(rb"\0(?:PMI|OMPI_COMM_WORLD)_RANK=(\d+)", settings)
        if rank and str(model).encode() in command and b"mpiexec" not in command:
            found[int(rank[1])] = int(path.name)
    return found


def cpu_s(process: int) -> float:
    """The processor time of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def replies_of(server: Served) -> list[Any]:
    """Replies to conversations that share a prefix, more than there are slots."""
    shared = "the other thing that they thought of was there, and there it was. "
    found = []
    for turn in ("one", "two"):
        for number in range(3):
            prompt = f"{shared}{turn[: number + 1] * number * 5} and"
            options = {"temperature": 1 + number / 2, "seed": number, "n": 1 + number % 2}
            found.append(server.complete(prompt=prompt, max_tokens=12, **options))
    # greedy decoding of a batch has the tokens of each sequence alone
    with ThreadPoolExecutor() as pool:
        asked = [
            pool.submit(server.complete, prompt=text, max_tokens=20, temperature=0)
            for text in ("this", "that", "other")
        ]
        return [*found, *(one.result(LIMIT_S) for one in asked)]


@pytest.mark.parametrize("layout", [TENSOR_PARALLEL, DATA_PARALLEL])
def test_ranks_reply_as_one_process_and_sleep_while_idle(
    model: Path, mpi: Mpi, layout: tuple[str, ...]
) -> None:
    with serving(model, 1, mpi, layout) as server:
        wanted = replies_of(server)
    with serving(model, 2, mpi, layout) as server:
        assert replies_of(server) == wanted
        processes = ranks_of(model)
        assert sorted(processes) == [0, 1]
        until, used = time.monotonic() + LIMIT_S, [1.0]
        # soon after the last reply, what it leaves may still be cleared up
        while max(used) >= 0.05 * IDLE_S:
            assert time.monotonic() < until, used
            before = [cpu_s(processes[rank]) for rank in range(2)]
            time.sleep(IDLE_S)
            used = [cpu_s(processes[rank]) - before[rank] for rank in range(2)]
        # they wake up again
        assert server.complete(prompt="this", max_tokens=20, temperature=0) == wanted[-3]
        # Control-C at the launcher goes to all ranks
        server.process.send_signal(signal.SIGINT)
        said = server.end()
        assert server.process.returncode and "Traceback" not in said
        assert "ends all ranks" not in said
    assert all_end(model)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_rank_that_is_lost_ends_the_server(model: Path, mpi: Mpi, lost: int) -> None:
    with serving(model, 2, mpi) as server:
        os.kill(ranks_of(model)[lost], signal.SIGKILL)
        server.end()
        assert server.process.returncode
    assert all_end(model)


def test_one_prompt_on_two_ranks_has_one_reply(model: Path, mpi: Mpi) -> None:
    def run(processes: int, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command_of(model, processes, *arguments, mpi=mpi),
            cwd=ROOT,
            env={**os.environ, **mpi.settings, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    prompt = ("--raw", "--prompt", "that other", "--max-tokens", "20", "--seed", "1")
    one, two = (run(processes, *prompt) for processes in (1, 2))
    assert (one.returncode, two.returncode) == (0, 0), two.stderr
    assert one.stdout and two.stdout == one.stdout
    # an error before rank 0 leads
    missing = run(2, "-m", str(model.with_name("none.gguf")), *prompt)
    assert missing.returncode
    assert "ends all ranks: " in missing.stderr and "none.gguf" in missing.stderr
    assert "Traceback" not in missing.stderr
