"""Models by name, and downloads that go on where they broke off. Nothing leaves the machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from test.local_site import LocalSite, QuietHandler
from tinygrad.apps.language.files.catalogue import (
    CATALOGUE,
    Hosted,
    UnknownModelError,
    locate,
    short_name,
)
from tinygrad.apps.language.files.download import download
from tinygrad.fetch import DownloadError

CONTENT = bytes(range(256)) * 8000
OTHER = CONTENT[::-1]
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(QuietHandler):
    server: Site

    def do_GET(self) -> None:
        site = self.server
        if self.path.startswith("/linked"):
            self.send_response(302)
            self.send_header("X-Linked-ETag", f'"{site.linked_sha256}"')
            self.send_header("Location", "/data.gguf")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
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
        self.wfile.write(body)


class Site(LocalSite):
    """Serves `content`; `breaks` of the answers end in the middle, and `refuses` come first."""

    handler = Handler

    def __init__(self) -> None:
        self.content, self.etag = CONTENT, '"one"'
        self.breaks = 0
        self.refuses: list[int] = []
        self.linked_sha256: str | None = None
        self.ranges: list[str | None] = []
        super().__init__()


@pytest.fixture
def site() -> Iterator[Site]:
    with Site().running() as server:
        yield server


def only(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_broken_connection_goes_on(site: Site, tmp_path: Path) -> None:
    site.breaks = 3
    path = download(site.url("/data.gguf"), tmp_path / "m.gguf", SHA256, pause_s=0)
    assert path.read_bytes() == CONTENT
    half = len(CONTENT) // 2
    assert site.ranges[:3] == [None, f"bytes={half}-", f"bytes={half + half // 2}-"]
    assert only(tmp_path) == ["m.gguf"]
    assert download("http://no.invalid/", path) == path  # it is there


def test_another_process_goes_on(site: Site, tmp_path: Path) -> None:
    site.breaks = 1
    broken = tmp_path / "m.gguf"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tinygrad.apps.language.files.download.ATTEMPTS", 1)
        with pytest.raises(DownloadError, match="bytes came.*try again to go on"):
            download(site.url("/data.gguf"), broken, pause_s=0)
    assert only(tmp_path) == ["m.gguf.part", "m.gguf.part-version"]
    assert download(site.url("/data.gguf"), broken).read_bytes() == CONTENT
    assert site.ranges[1] == f"bytes={len(CONTENT) // 2}-"


def test_what_is_another_file_now_starts_again(site: Site, tmp_path: Path) -> None:
    site.breaks = 1
    path = tmp_path / "m.gguf"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tinygrad.apps.language.files.download.ATTEMPTS", 1)
        with pytest.raises(DownloadError):
            download(site.url("/data.gguf"), path, pause_s=0)
    site.content, site.etag = OTHER, '"two"'
    assert download(site.url("/data.gguf"), path).read_bytes() == OTHER


def test_a_weak_version_is_not_gone_on_with(site: Site, tmp_path: Path) -> None:
    site.etag, site.breaks = 'W/"one"', 1
    path = download(site.url("/data.gguf"), tmp_path / "m.gguf", pause_s=0)
    assert path.read_bytes() == CONTENT
    assert site.ranges == [None, None]


def test_a_checksum_of_the_caller_or_of_the_hub_is_checked(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=f"has the SHA-256 {SHA256}, not the expected 00"):
        download(site.url("/data.gguf"), tmp_path / "a", "00" * 32)
    site.linked_sha256 = "11" * 32
    with pytest.raises(DownloadError, match="not the expected 11"):
        download(site.url("/linked"), tmp_path / "a")
    assert only(tmp_path) == []
    site.linked_sha256 = SHA256
    assert download(site.url("/linked"), tmp_path / "a").read_bytes() == CONTENT


def test_trouble_that_may_pass_is_waited_for(site: Site, tmp_path: Path) -> None:
    site.refuses = [503, 429]
    assert download(site.url("/data.gguf"), tmp_path / "a", pause_s=0).read_bytes() == CONTENT
    site.refuses = [404]
    with pytest.raises(DownloadError, match="Not Found.*put the file at"):
        download(site.url("/data.gguf"), tmp_path / "b", pause_s=0)
    assert only(tmp_path) == ["a"]


def test_two_at_once_are_one_too_many(site: Site, tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    with open(tmp_path / "a.part", "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(DownloadError, match="another process downloads a now"):
            download(site.url("/data.gguf"), tmp_path / "a")


@pytest.mark.usefixtures("empty_cache")
def test_a_url_is_downloaded_once(site: Site) -> None:
    url = site.url("/data.gguf")
    path = locate(url)
    assert (path.name, path.read_bytes()) == ("data.gguf", CONTENT)
    assert locate(url) == path
    assert len(site.ranges) == 1


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "my.gguf"
    path.write_bytes(b"")
    assert locate(str(path)) == path


@pytest.mark.usefixtures("empty_cache")
def test_all_parts_of_a_model_are_downloaded_to_one_folder(site: Site) -> None:
    path = locate(site.url("/x-00002-of-00003.gguf?download=true"))
    assert only(path.parent) == [f"x-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    assert path.name == "x-00001-of-00003.gguf"
    assert len(site.ranges) == 3


def test_a_part_stands_for_the_model_if_no_other_is_missing(tmp_path: Path) -> None:
    first, second = (tmp_path / f"x-0000{number}-of-00002.gguf" for number in (1, 2))
    second.write_bytes(b"")
    with pytest.raises(UnknownModelError, match="part of a model that lacks .*x-00001-of-00002"):
        locate(str(second))
    first.write_bytes(b"")
    assert locate(str(second)) == first
    with pytest.raises(ValueError, match="part 3 of 2; there is no such part"):
        locate(str(tmp_path / "x-00003-of-00002.gguf"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smolm2:135m", "did you mean smollm2:135m"),
        ("gemma3", "did you mean gemma3:1b or gemma3:4b"),
        ("/", "/ is a folder; give the path of a GGUF file in it"),
        ("/nowhere/x.gguf", "neither a file nor the name of a model; --list"),
    ],
)
def test_what_is_no_model_says_so(name: str, message: str) -> None:
    with pytest.raises(UnknownModelError, match=message):
        locate(name)


def test_names_of_the_catalogue_are_lower_case_and_their_files_whole() -> None:
    for name, source in CATALOGUE.items():
        assert name == name.lower() == short_name(name)
        if isinstance(source, Hosted):
            assert source.url.startswith("https://")
            assert source.url.endswith(".gguf")
            assert "-of-" not in source.url
