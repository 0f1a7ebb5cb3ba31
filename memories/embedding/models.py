"""Embedding models behind one Protocol: those of sentence-transformers, and a small one for tests.

A model is named by its `source`: empty for the packaged one, a folder, or a name that sentence-transformers knows.
Importing and loading is deferred until a model is loaded.
"""

import contextlib
import copy
import hashlib
import json
import os
import re
import threading
import zlib
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from django.conf import settings

from memories.embedding import installation, published
from memories.embedding.chunking import Offsets, as_offsets, spans_of, windows
from text.analysis import raw_tokens

Vectors = npt.NDArray[np.float32]

_SIMILARITY = 0.30
HASHED = "hashed-words"
_HASHED_SIMILARITY = 0.20
# The texts that a thread has in work: more take memory, 9 MB each, and no less time on a processor.
_BATCH = 8
_SAMPLE = 1 << 20


class EmbedderUnavailableError(Exception):
    """The model cannot be loaded. The message is fit to be shown: what is missing, and what to do."""


class Embedder(Protocol):
    """A model that maps texts to vectors of length one."""

    @property
    def name(self) -> str:
        """The identity of its vectors: a model with another name has other vectors."""

    @property
    def dimensions(self) -> int: ...

    @property
    def on_processor(self) -> bool:
        """Whether it runs on the CPU, not on a device of its own."""

    @property
    def window(self) -> int:
        """The number of tokens of a text that it reads, without those that it adds."""

    def offsets(self, texts: Sequence[str]) -> list[Offsets]:
        """The offsets of all tokens of each text, however long it is."""

    def encode(self, texts: Sequence[str]) -> Vectors:
        """A row for each document."""

    def encode_query(self, text: str) -> npt.NDArray[np.float32]:
        """The vector of a query."""

    def clone(self) -> "Embedder":
        """An instance for another thread that shares the weights only."""


class HashedWords:
    """A test model: each stem has a fixed direction, and a text the normalised sum of those of its stems."""

    name = HASHED
    on_processor = True
    window = 64
    _TOKEN = re.compile(r"\w+|[^\w\s]")

    def __init__(self, dimensions: int = 384) -> None:
        self.dimensions = dimensions

    def offsets(self, texts: Sequence[str]) -> list[Offsets]:
        return [spans_of(text, self._TOKEN) for text in texts]

    def encode(self, texts: Sequence[str]) -> Vectors:
        return np.stack([self.encode_query(text) for text in texts]) if texts else self._none()

    def encode_query(self, text: str) -> npt.NDArray[np.float32]:
        stems = {term for raw in raw_tokens(text) for term, _ in raw.terms} or {""}
        total = np.sum([_direction(stem, self.dimensions) for stem in sorted(stems)], axis=0)
        return np.asarray(total / np.linalg.norm(total), dtype=np.float32)

    def clone(self) -> "HashedWords":
        return self

    def _none(self) -> Vectors:
        return np.empty((0, self.dimensions), dtype=np.float32)


@lru_cache(maxsize=20_000)
def _direction(stem: str, dimensions: int) -> npt.NDArray[np.float64]:
    return np.random.default_rng(zlib.crc32(stem.encode())).standard_normal(dimensions)


class SentenceTransformerModel:
    """A model of sentence-transformers, on the device that it chooses. Threads take turns, or use a clone each."""

    def __init__(self, name: str, model: Any) -> None:
        self.name = name
        self.on_processor = model.device.type == "cpu"
        self._model = model
        self._turn = threading.Lock()
        self._tokenizer = _own_tokenizer(name, model.tokenizer)
        self.dimensions = int(model.get_embedding_dimension())
        self.window = int(model.max_seq_length) - model.tokenizer.num_special_tokens_to_add() - self._prompt_tokens()

    def _prompt_tokens(self) -> int:
        prompt = (self._model.prompts or {}).get("document") or ""
        return len(self._tokenizer.encode(prompt, add_special_tokens=False).ids)

    def offsets(self, texts: Sequence[str]) -> list[Offsets]:
        found = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [as_offsets([(start, end) for start, end in one.offsets if end > start]) for one in found]

    def encode(self, texts: Sequence[str]) -> Vectors:
        with self._turn:
            found = self._model.encode_document(
                list(texts), batch_size=_BATCH, normalize_embeddings=True, show_progress_bar=False
            )
        return np.asarray(found, dtype=np.float32).reshape(len(texts), self.dimensions)

    def encode_query(self, text: str) -> npt.NDArray[np.float32]:
        """The vector of a query; of one that is longer than the model reads, the mean of those of its parts."""
        parts = [text[part.start : part.end] for part in windows(text, self.offsets([text])[0], self.window)]
        with self._turn:
            found = self._model.encode_query(parts, normalize_embeddings=True, show_progress_bar=False)
        if len(parts) == 1:
            return np.asarray(found[0], dtype=np.float32)
        total = np.asarray(found, dtype=np.float32).sum(axis=0)
        return np.asarray(total / np.linalg.norm(total), dtype=np.float32)

    def clone(self) -> "SentenceTransformerModel":
        shared = {id(tensor): tensor for tensor in (*self._model.parameters(), *self._model.buffers())}
        return SentenceTransformerModel(self.name, copy.deepcopy(self._model, shared))


def _own_tokenizer(name: str, tokenizer: Any) -> Any:
    """A copy of the model's tokenizer without truncation; the model resets its own tokenizer for every batch."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise EmbedderUnavailableError(
            f"The tokenizer of {name} does not give the positions of its tokens, so texts cannot be split "
            "into chunks for it. Set EMBEDDING_MODEL to a model with a tokenizer.json."
        )
    own = type(backend).from_str(backend.to_str())
    own.no_truncation()
    own.no_padding()
    return own


def model_name(source: str) -> str:
    """The name of a model without loading it. For a folder it includes a fingerprint of the files."""
    if source in ("", HASHED):
        return source or published.NAME
    folder = Path(source).expanduser()
    if not folder.is_dir():
        return source
    return f"{folder.resolve().name[:180]}-{_fingerprint(folder)}"


def model_folder(source: str) -> Path | None:
    """The folder of the model's files; None if they are not on this machine."""
    if source == "":
        return next(iter(published.folders()), None)
    folder = Path(source).expanduser()
    return folder if folder.is_dir() else None


def min_similarity(source: str) -> float:
    """The lowest similarity to a query that counts as a match."""
    if source == "":
        return _SIMILARITY
    if source == HASHED:
        return _HASHED_SIMILARITY
    return _SIMILARITY if settings.EMBEDDING_MIN_SIMILARITY is None else settings.EMBEDDING_MIN_SIMILARITY


def missing_packages(source: str) -> str:
    """Why there is no model, as a clause: a setting, or a package that it needs. Empty if there can be one."""
    if settings.WITHOUT_EMBEDDINGS:
        return "WITHOUT_EMBEDDINGS is set"
    if source == HASHED:
        return ""
    missing = [package for package in ("torch", "sentence_transformers") if find_spec(package) is None]
    reason = f"{missing[0].replace('_', '-')} is not installed" if missing else ""
    if not reason and not source and not published.folders():
        reason = published.reason_for_none()
    return reason and (installation.state() or reason)


def load_embedder(source: str, *, threads: int | None = None) -> Embedder:
    """Load a model with the given number of CPU threads, which takes seconds. Raises EmbedderUnavailableError."""
    if missing := missing_packages(source):
        raise EmbedderUnavailableError(missing)
    if source == HASHED:
        return HashedWords()
    folder = model_folder(source) if source else published.published_folder()
    if not source and folder is None:
        raise EmbedderUnavailableError(published.reason_for_none())
    if source.startswith((".", "/", "~")) and folder is None:
        raise EmbedderUnavailableError(f"EMBEDDING_MODEL={source} is not a folder on this machine")
    name = model_name(source)
    try:
        return SentenceTransformerModel(name, _loaded(str(folder or source), local=folder is not None, threads=threads))
    except EmbedderUnavailableError:
        raise
    except Exception as error:  # whatever a model's files, a download or the library itself may raise
        raise EmbedderUnavailableError(f"{name} could not be loaded: {_first_line(error)}") from error


def _loaded(place: str, *, local: bool, threads: int | None) -> Any:
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    if local:
        # Read on import: without it, checking a local folder may access the network.
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    if threads is not None:
        torch.set_num_threads(threads)
    return SentenceTransformer(place, local_files_only=local)


def _fingerprint(folder: Path) -> str:
    """A short digest of a model's files: names and sizes, and the first and last megabyte of each."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.suffix in {".json", ".safetensors", ".bin", ".txt"}):
        size = path.stat().st_size
        digest.update(f"{path.relative_to(folder)}\0{size}\n".encode())
        with path.open("rb") as file:
            digest.update(file.read(_SAMPLE))
            file.seek(max(0, size - _SAMPLE))
            digest.update(file.read(_SAMPLE))
    return digest.hexdigest()[:8]


def dimensions_of(source: str) -> int | None:
    """The dimensions of a model's vectors, from its files; None if they do not state it."""
    if source == HASHED:
        return HashedWords().dimensions
    folder = model_folder(source)
    if folder is None:
        return None
    found: int | None = None
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        # The last module that states its output dimensions.
        for module in json.loads((folder / "modules.json").read_text()):
            path = folder / module["path"] / "config.json"
            config = json.loads(path.read_text()) if module["path"] and path.exists() else {}
            found = config.get("out_features") or config.get("word_embedding_dimension") or found
    return found


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
