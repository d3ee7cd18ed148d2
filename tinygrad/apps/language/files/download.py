"""Downloads of large files, which go on where they were broken off.

In: a URL, and where the file goes. Out: the file, whole. What stays true: nothing stands at the
path before all of it has come and has the checksum, if one is known: that of the caller, or the one
by which Hugging Face names large files. What has come is kept beside it, as `.part`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO, Any, BinaryIO

from tinygrad.fetch import CHUNK_BYTES, TIMEOUT_S, DownloadError

ATTEMPTS = 5
PAUSE_S = 1.0
SHA256 = re.compile(r'"?([0-9a-f]{64})"?')
PARTIAL_CONTENT = 206
# statuses of trouble that may pass
PASSING = (408, 425, 429, 500, 502, 503, 504)


def download(url: str, path: Path, sha256: str | None = None, pause_s: float = PAUSE_S) -> Path:
    """`path`, with what is at `url`, unless it is there already.

    A connection that breaks is made again, `pause_s` seconds later. Raises DownloadError.
    """
    if path.is_file():
        return path
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "ab") as file, _locked(file, path):
            transfer = Transfer(url, file, part)
            try:
                transfer.run(pause_s)
                transfer.verify(sha256 or transfer.version.sha256)
                part.replace(path)
            finally:
                transfer.tidy()
    except DownloadError:
        raise
    except (OSError, HTTPException) as error:
        raise DownloadError(
            f"cannot download {url} ({error}); try again to go on with what has come, or put the "
            f"file at {path}"
        ) from error
    return path


@dataclass(frozen=True)
class Version:
    """What a server says of the file that it sends; kept beside a part, so that it can go on."""

    etag: str = ""
    nbytes: int | None = None
    sha256: str | None = None

    @classmethod
    def read(cls, path: Path) -> Version:
        """The one that was kept, if there is one."""
        try:
            return cls(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            return cls()

    @property
    def is_lasting(self) -> bool:
        """Whether the same bytes come again; a weak name does not promise it."""
        return bool(self.etag) and not self.etag.startswith("W/")


class Transfer(urllib.request.HTTPRedirectHandler):
    """One download into an open file, of which `version` is known once it has begun.

    It handles redirections itself: only the first answer of Hugging Face has the checksum.
    """

    def __init__(self, url: str, file: BinaryIO, part: Path) -> None:
        self.url, self.file, self.part = url, file, part
        self._version_path = part.with_name(part.name + "-version")
        self.version = Version.read(self._version_path)
        self._linked_sha256: str | None = None
        self._opener = urllib.request.build_opener(self)

    def run(self, pause_s: float) -> None:
        """Receives what is missing, again and again while something comes. Raises OSError."""
        failures = 0
        while self._size() == 0 or self._size() != self.version.nbytes:
            before = self._size()
            try:
                self._receive()
                return
            except (OSError, HTTPException) as error:
                failures = 1 if self._size() > before else failures + 1
                if failures == ATTEMPTS or not self._may_pass(error):
                    raise
            time.sleep(pause_s)

    def _may_pass(self, error: Exception) -> bool:
        """Whether another attempt may do better."""
        if isinstance(error, urllib.error.HTTPError):
            error.close()
            return error.code in PASSING
        return not isinstance(error, DownloadError)

    def verify(self, sha256: str | None) -> None:
        """Raises DownloadError, and forgets what has come, if it has another checksum."""
        if sha256 is None:
            return
        with open(self.part, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != sha256.lower():
            self.file.truncate(0)
            raise DownloadError(
                f"the download of {self.url} has the SHA-256 {found}, not the expected {sha256}; "
                "it was not kept"
            )

    def tidy(self) -> None:
        """Removes what is of no use for going on."""
        if not self.part.exists() or not self._size():
            self.part.unlink(missing_ok=True)
            self._version_path.unlink(missing_ok=True)

    def _receive(self) -> None:
        from tqdm import tqdm

        headers = {"User-Agent": "tinygrad-sharding"}
        if self._size() and self.version.is_lasting:
            headers |= {"Range": f"bytes={self._size()}-", "If-Range": self.version.etag}
        request = urllib.request.Request(self.url, headers=headers)
        with self._opener.open(request, timeout=TIMEOUT_S) as answer:
            if answer.status != PARTIAL_CONTENT:
                self._begin(answer)
            start, total = self._size(), self.version.nbytes
            with tqdm(
                total=total,
                initial=start,
                unit="B",
                unit_scale=True,
                desc=self.part.stem,
                disable=None,
            ) as progress:
                while chunk := answer.read(CHUNK_BYTES):
                    progress.update(self.file.write(chunk))
        # a connection that closes early reads like the end of the file
        if total is not None and self._size() != total:
            raise ConnectionError(f"{self._size()} of {total} bytes came")

    def _begin(self, answer: HTTPResponse) -> None:
        """Starts from nothing with the version that comes."""
        self.file.truncate(0)
        length = answer.headers.get("Content-Length")
        nbytes = None if length is None else int(length)
        self.version = Version(answer.headers.get("ETag", ""), nbytes, self._linked_sha256)
        self._version_path.write_text(json.dumps(asdict(self.version)))
        free = shutil.disk_usage(self.part.parent).free
        if nbytes is not None and nbytes > free:
            raise DownloadError(
                f"{self.url} is of {nbytes / 1e9:.1f} GB, and {self.part.parent} has "
                f"{free / 1e9:.1f} GB left; set CACHEDIR to a folder on a larger disk"
            )

    def _size(self) -> int:
        self.file.flush()
        return self.part.stat().st_size

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Follows a redirection, noting the checksum that comes with it."""
        if found := SHA256.fullmatch(headers.get("X-Linked-ETag", "")):
            self._linked_sha256 = found[1]
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@contextlib.contextmanager
def _locked(file: IO[Any], path: Path) -> Iterator[None]:
    """Keeps other processes from writing the same part. Raises DownloadError if one does."""
    try:
        import fcntl
    except ImportError:
        # Windows itself refuses to replace a file that another process has open
        yield
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise DownloadError(f"another process downloads {path.name} now; wait for it") from error
    yield
