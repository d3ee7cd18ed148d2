"""The model catalogue: models by name, path and URL, downloaded from a local server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from test.local_site import LocalSite, QuietHandler
from tinygrad.apps.language.files.catalogue import (
    CATALOGUE,
    HubFile,
    UnknownModelError,
    WheelFile,
    locate,
    short_name,
)
from tinygrad.apps.language.generation.recommended import recommended_sampling

CONTENT = bytes(range(256)) * 8000


class Handler(QuietHandler):
    server: Site

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT)


class Site(LocalSite):
    """Serves `CONTENT` at any path, and records the requests."""

    handler = Handler

    def __init__(self) -> None:
        self.asked: list[str] = []
        super().__init__()


@pytest.fixture
def site() -> Iterator[Site]:
    with Site().running() as server:
        yield server


def only(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.usefixtures("empty_cache")
def test_a_url_is_downloaded_once(site: Site) -> None:
    url = site.url("/data.gguf")
    path = locate(url)
    assert (path.name, path.read_bytes()) == ("data.gguf", CONTENT)
    assert locate(url) == path
    assert len(site.asked) == 1


def test_a_path_is_used_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "my.gguf"
    path.write_bytes(b"")
    assert locate(str(path)) == path


@pytest.mark.usefixtures("empty_cache")
def test_all_parts_of_a_model_are_downloaded_to_one_folder(site: Site) -> None:
    path = locate(site.url("/x-00002-of-00003.gguf?download=true"))
    assert only(path.parent) == [f"x-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    assert path.name == "x-00001-of-00003.gguf"
    assert len(site.asked) == 3


def test_any_part_names_the_model_if_all_parts_exist(tmp_path: Path) -> None:
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
        ("smollm", "did you mean smollm2:135m or smollm2:360m"),
        ("/", "/ is a folder; give the path of a GGUF file in it"),
        ("/nowhere/x.gguf", "neither a file nor the name of a model; --list"),
    ],
)
def test_an_unknown_model_is_named(name: str, message: str) -> None:
    with pytest.raises(UnknownModelError, match=message):
        locate(name)


def test_catalogue_names_are_lower_case_and_their_files_complete() -> None:
    for name, source in CATALOGUE.items():
        assert name == name.lower() == short_name(name)
        if isinstance(source, HubFile):
            assert source.repository.count("/") == 1
            assert source.file.endswith(".gguf")
            assert "-of-" not in source.file


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_recommended_sampling_of_a_file_does_not_depend_on_how_it_is_named(name: str) -> None:
    source = CATALOGUE[name]
    assert isinstance(source, HubFile | WheelFile)
    file = source.file if isinstance(source, HubFile) else source.member
    found = recommended_sampling({}, name)
    assert recommended_sampling({}, short_name(f"/models/{file}")) == found
    assert recommended_sampling({"general.basename": short_name(file)}, "m") == found
