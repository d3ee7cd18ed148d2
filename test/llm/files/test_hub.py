"""Downloads from the Hugging Face Hub, by real processes from a local server with its API.

`HF_ENDPOINT` names the server.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from test.local_site import LocalSite, QuietHandler

pytest.importorskip("huggingface_hub")

ROOT = Path(__file__).parents[3]
CONTENT = bytes(range(256)) * 4000
COMMIT = "0123456789abcdef0123456789abcdef01234567"
MODEL = "qwen3:0.6b"
NAME = "Qwen3-0.6B-Q8_0.gguf"
FULL_CONTENT = NAME.encode() + CONTENT
FILE = "/Qwen/Qwen3-0.6B-GGUF/resolve/main/" + NAME
LOCATE = "import sys; from tinygrad.apps.llm import locate; print(locate(sys.argv[1]))"
TIMEOUT_S = 240


class Handler(QuietHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self.answer(0)

    def do_GET(self) -> None:
        hub = self.server
        wanted = self.headers.get("Range")
        if "/resolve/" in self.path:
            hub.asked.append((self.path, wanted))
        start = int(wanted.removeprefix("bytes=").partition("-")[0]) if wanted else 0
        body = self.answer(start)
        if body and (hub.breaks or hub.stalls):
            hub.breaks -= bool(hub.breaks)
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            if hub.stalls:
                hub.stalled.set()
                hub.released.wait(TIMEOUT_S)
            self.close_connection = True
            return
        self.wfile.write(body)

    def answer(self, start: int) -> bytes:
        """Sends the headers of a file; returns its content from `start`."""
        hub = self.server
        content = self.path.rpartition("/")[2].encode() + hub.content
        if "/resolve/" not in self.path or "absent" in self.path:
            content = b""
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
        else:
            hub.tokens.add(self.headers.get("Authorization"))
            sha256 = hub.wrong_sha256 or hashlib.sha256(content).hexdigest()
            self.send_response(206 if start else 200)
            self.send_header("ETag", f'"{sha256}"')
            self.send_header("X-Linked-ETag", f'"{sha256}"')
            self.send_header("X-Linked-Size", str(len(content)))
            self.send_header("X-Repo-Commit", COMMIT)
            if start:
                place = f"bytes {start}-{len(content) - 1}/{len(content)}"
                self.send_header("Content-Range", place)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        return content[start:]


class Hub(LocalSite):
    """Serves files that hold their name and `content`, with correct or wrong SHA-256 ETags.

    `breaks` responses are cut short; while the server `stalls`, they stop there.
    """

    handler = Handler

    def __init__(self) -> None:
        self.content = CONTENT
        self.wrong_sha256: str | None = None
        self.breaks = 0
        self.stalls = False
        self.stalled, self.released = threading.Event(), threading.Event()
        self.asked: list[tuple[str, str | None]] = []
        self.tokens: set[str | None] = set()
        super().__init__()


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub().running() as server:
        yield server


def environment(hub: Hub, home: Path, **settings: str) -> dict[str, str]:
    """The environment of a process that uses this hub only."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return kept | {"HF_ENDPOINT": hub.url(""), "HF_HOME": str(home)} | settings


def located(hub: Hub, home: Path, name: str = MODEL, **settings: str) -> str:
    """The output of a process that looks up a model: its path, or its error."""
    done = subprocess.run(
        [sys.executable, "-c", LOCATE, name],
        cwd=ROOT,
        env=environment(hub, home, **settings),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.stdout.strip() if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def models(home: Path) -> list[str]:
    """The names of the model files in a cache."""
    return sorted(path.name for path in home.rglob("*.gguf"))


def contents(home: Path) -> list[Path]:
    """The contents of the complete files in a cache."""
    return [path for path in home.glob("hub/models--*/blobs/*") if path.suffix != ".incomplete"]


def test_a_model_is_downloaded_once_and_then_found_without_network(hub: Hub, tmp_path: Path):
    path = Path(located(hub, tmp_path, HF_TOKEN="hf_secret"))
    assert path.is_relative_to(tmp_path)
    assert path.parts[-2:] == (COMMIT, NAME)
    assert path.read_bytes() == FULL_CONTENT
    assert hub.tokens == {"Bearer hf_secret"}
    assert hub.asked == [(FILE, None)]
    # port 9 belongs to an obsolete service that no machine runs
    assert located(hub, tmp_path, HF_ENDPOINT="http://127.0.0.1:9") == str(path)


@pytest.mark.slow
def test_an_interrupted_download_is_resumed(hub: Hub, tmp_path: Path):
    # the package writes 10 MB at a time, so less is lost with the connection
    hub.content, hub.breaks = CONTENT * 24, 1
    path = Path(located(hub, tmp_path))
    assert path.stat().st_size == len(NAME) + len(hub.content)
    (_, first), (_, second) = hub.asked
    assert first is None
    assert second is not None
    assert int(second.removeprefix("bytes=").partition("-")[0]) > 0


@pytest.mark.slow
def test_a_killed_process_leaves_no_file_that_looks_complete(hub: Hub, tmp_path: Path):
    hub.stalls = True
    with subprocess.Popen(
        [sys.executable, "-c", LOCATE, MODEL], cwd=ROOT, env=environment(hub, tmp_path)
    ) as process:
        assert hub.stalled.wait(TIMEOUT_S)
        process.send_signal(signal.SIGKILL)
    hub.stalls = False
    hub.released.set()
    assert models(tmp_path) == []
    assert contents(tmp_path) == []
    assert Path(located(hub, tmp_path)).read_bytes() == FULL_CONTENT


@pytest.mark.slow
def test_a_file_with_a_wrong_checksum_is_refused_and_not_kept(hub: Hub, tmp_path: Path):
    hub.wrong_sha256 = "0" * 64
    found = hashlib.sha256(FULL_CONTENT).hexdigest()
    assert f"has the SHA-256 {found}, not the expected {'0' * 64}" in located(hub, tmp_path)
    assert models(tmp_path) == []
    assert contents(tmp_path) == []


@pytest.mark.slow
def test_a_url_of_the_hub_is_a_file_of_a_repository(hub: Hub, tmp_path: Path):
    url = "https://huggingface.co/owner/name/blob/v1/folder/x-00002-of-00002.gguf?download=true"
    path = Path(located(hub, tmp_path, url))
    assert path.parts[-3:] == (COMMIT, "folder", "x-00001-of-00002.gguf")
    assert models(tmp_path) == ["x-00001-of-00002.gguf", "x-00002-of-00002.gguf"]
    assert [name for name, _ in hub.asked] == [
        "/owner/name/resolve/v1/folder/x-00001-of-00002.gguf",
        f"/owner/name/resolve/{COMMIT}/folder/x-00002-of-00002.gguf",
    ]


@pytest.mark.slow
def test_a_failed_download_is_named(hub: Hub, tmp_path: Path):
    url = "https://huggingface.co/owner/name/resolve/main/absent.gguf"
    error = "DownloadError: cannot download absent.gguf of owner/name from the Hugging Face Hub: "
    assert error in located(hub, tmp_path, url)
    assert error in located(hub, tmp_path, url, HF_HUB_OFFLINE="1")


def test_the_error_names_a_missing_package(monkeypatch: pytest.MonkeyPatch):
    from tinygrad.apps.llm import locate

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"package huggingface_hub: pip install '.*\[llm\]'"):
        locate(MODEL)
