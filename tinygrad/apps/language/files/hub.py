"""Files of repositories on the Hugging Face Hub, by the `huggingface_hub` package.

Input: a repository, a file in it, a revision. Output: the path of the file in the cache of the
package, which other programs share. Invariant: a file that was downloaded has the size and the
SHA-256 that the hub names; one that is in the cache needs no network. The package has its own
settings: `HF_ENDPOINT` for a mirror, `HF_TOKEN` for private repositories, `HF_HOME` for the cache.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from types import ModuleType

from tinygrad.fetch import DownloadError

FILE_URL = re.compile(
    r"https://(?:huggingface\.co|hf\.co)/(?P<repository>[\w.-]+/[\w.-]+)/(?:resolve|blob)/"
    r"(?P<revision>[^/?]+)/(?P<file>[^?]+)"
)
# the hub names large files by it, and others by a shorter checksum
SHA256 = re.compile(r"[0-9a-f]{64}")


def hub_download(repository: str, file: str, revision: str = "main") -> Path:
    """The local path of a file, downloaded unless the cache has it.

    Raises DownloadError, ImportError without `huggingface_hub`.
    """
    hub = _import()
    try:
        cached = hub.try_to_load_from_cache(repository, file, revision=revision)
        if isinstance(cached, str):
            return Path(cached)
        url = hub.hf_hub_url(repository, file, revision=revision)
        etag = hub.get_hf_file_metadata(url).etag or ""
        path = Path(hub.hf_hub_download(repository, file, revision=revision))
    # several libraries raise errors here
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DownloadError(
            f"cannot download {file} of {repository} from the Hugging Face Hub: {reason}"
        ) from error
    _verify(path, etag)
    return path


def _verify(path: Path, etag: str) -> None:
    """Removes a file that has not the checksum that the hub names. Raises DownloadError."""
    if not SHA256.fullmatch(etag):
        return
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != etag:
        # the path is a link to the content
        path.resolve().unlink()
        path.unlink(missing_ok=True)
        raise DownloadError(
            f"the download of {path.name} has the SHA-256 {found}, not the expected {etag}; "
            "it was not kept"
        )


def commit_of(path: Path, file: str) -> str:
    """The commit of the repository that a path from `hub_download` belongs to.

    >>> commit_of(Path("models--a--b/snapshots/c0ffee/folder/x.gguf"), "folder/x.gguf")
    'c0ffee'
    """
    return path.parents[file.count("/")].name


def _import() -> ModuleType:
    try:
        import huggingface_hub
    except ImportError as error:
        raise ImportError(
            "downloads from the Hugging Face Hub need the package huggingface_hub: "
            "pip install 'tinygrad-sharding[llm]'"
        ) from error
    return huggingface_hub
