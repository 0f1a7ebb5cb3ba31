"""What the site is measured beside: plain BM25, plain cosine of the embedding model, and the fusion of the two.

No database, no filters and no analysis of our own: a document is its title and text in one string.
"""

import hashlib
import logging
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from django.conf import settings

from evaluation.collection import Collection
from memories.embedding.models import Embedder, EmbedderUnavailableError, Vectors, load_embedder, model_name

BM25, COSINE, FUSION = "bm25", "cosine", "fusion"
BASELINES = (BM25, COSINE, FUSION)

# As Lucene and tantivy have them.
K1, B = 1.2, 0.75
# Reciprocal ranks, as they were first published.
RANK_CONSTANT = 60

_DOCUMENTS_AT_ONCE = 2_048
_ROWS_AT_ONCE = 50_000
_QUERIES_AT_ONCE = 500

Advance = Callable[[int], None]
# The documents of each query, the best first.
Rankings = dict[str, list[str]]


class BaselineUnavailableError(Exception):
    """A package that a baseline needs is not installed."""


def baseline_label(name: str) -> str:
    """What a row of the table is called."""
    model = model_name(settings.EMBEDDING_MODEL)
    return {BM25: "BM25 (bm25s)", COSINE: f"cosine ({model})", FUSION: "BM25 and cosine fused"}[name]


def bm25_rankings(collection: Collection, depth: int, advance: Advance) -> Rankings:
    """BM25 in the variant of Lucene, English stopwords left out, words stemmed."""
    try:
        import bm25s
        from bm25s.tokenization import Tokenizer
    except ImportError as error:
        raise BaselineUnavailableError(
            "bm25s is not installed: pip install 'mnemoscope[bench]', which `make eval` does."
        ) from error
    import Stemmer

    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it shows what it does in detail as it comes
    tokenizer = Tokenizer(stopwords="english", stemmer=Stemmer.Stemmer("english"))
    rows: list[array[int]] = []
    for texts in _batches((document.whole for document in collection.documents()), _DOCUMENTS_AT_ONCE):
        found: Any = tokenizer.tokenize(texts, update_vocab=True, return_as="ids", show_progress=False)
        # A list of Python's numbers takes twice the room.
        rows.extend(array("I", ids) for ids in found)
        advance(len(texts))
    vocabulary = tokenizer.get_vocab_dict()
    index = bm25s.BM25(method="lucene", k1=K1, b=B)
    index.index((rows, vocabulary), show_progress=False)
    asked: Any = tokenizer.tokenize(
        list(collection.queries.values()), update_vocab=False, return_as="ids", show_progress=False
    )
    rankings: Rankings = {}
    for name, ids in zip(collection.queries, asked, strict=True):
        scores = index.get_scores_from_ids(ids) if len(ids) else np.zeros(len(rows), np.float32)
        best = _best(scores, depth)
        rankings[name] = [collection.ids[place] for place in best if scores[place] > 0]
    return rankings


def cosine_rankings(collection: Collection, depth: int, folder: Path, advance: Advance) -> Rankings:
    """The nearest documents by one vector each, of as much of the text as the model reads.

    The vectors are kept in the folder. Every document and every query is one step of the progress.
    """
    try:
        embedder = load_embedder(settings.EMBEDDING_MODEL)
    except EmbedderUnavailableError as error:
        raise BaselineUnavailableError(f"{error}.") from error
    vectors = _document_vectors(collection, embedder, folder, advance)
    asked = np.empty((len(collection.queries), vectors.shape[1]), np.float32)
    for row, text in enumerate(collection.queries.values()):
        asked[row] = embedder.encode_query(text)
        advance(1)
    rankings: Rankings = {}
    names = list(collection.queries)
    for start in range(0, len(names), _QUERIES_AT_ONCE):
        part = asked[start : start + _QUERIES_AT_ONCE]
        for name, places in zip(names[start:], _nearest(part, vectors, depth), strict=False):
            rankings[name] = [collection.ids[place] for place in places]
    return rankings


def fused_rankings(first: Mapping[str, Sequence[str]], second: Mapping[str, Sequence[str]], depth: int) -> Rankings:
    """Reciprocal rank fusion of two rankings of the same queries."""
    fused: Rankings = {}
    for name in first:
        scores: dict[str, float] = {}
        for ranking in (first[name], second[name]):
            for place, document in enumerate(ranking, 1):
                scores[document] = scores.get(document, 0.0) + 1 / (RANK_CONSTANT + place)
        fused[name] = sorted(scores, key=lambda document: -scores[document])[:depth]
    return fused


def _document_vectors(collection: Collection, embedder: Embedder, folder: Path, advance: Advance) -> Vectors:
    """One row for each document, in a file: a large collection does not fit into memory."""
    kept = folder / f"vectors-{hashlib.sha256(embedder.name.encode()).hexdigest()[:12]}.npy"
    if kept.exists():
        advance(len(collection.ids))
        return np.load(kept, mmap_mode="r")  # type: ignore[no-any-return]
    draft = kept.with_suffix(".draft.npy")
    rows: Any = None
    start = 0
    for texts in _batches((document.whole for document in collection.documents()), _DOCUMENTS_AT_ONCE):
        vectors = embedder.encode(texts)
        if rows is None:
            shape = (len(collection.ids), vectors.shape[1])
            rows = np.lib.format.open_memmap(draft, mode="w+", dtype=np.float32, shape=shape)
        rows[start : start + len(texts)] = vectors
        start += len(texts)
        advance(len(texts))
    rows.flush()
    draft.rename(kept)
    return rows  # type: ignore[no-any-return]


def _nearest(asked: Vectors, vectors: Vectors, depth: int) -> list[list[int]]:
    """The places of the nearest rows of each query, by parts of the rows."""
    scores = np.empty((len(asked), 0), np.float32)
    places = np.empty((len(asked), 0), np.int64)
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        more = asked @ np.asarray(vectors[start : start + _ROWS_AT_ONCE]).T
        scores = np.concatenate([scores, more], axis=1)
        places = np.concatenate([places, np.broadcast_to(np.arange(start, start + more.shape[1]), more.shape)], axis=1)
        best = np.stack([_best(row, depth) for row in scores])
        scores, places = np.take_along_axis(scores, best, 1), np.take_along_axis(places, best, 1)
    return [[int(place) for place in row] for row in places]


def _best(scores: npt.NDArray[np.float32], depth: int) -> npt.NDArray[np.int64]:
    """The places of the highest scores, falling; of equal ones the earlier place."""
    if depth < len(scores):
        # Every one that ties with the last must be looked at.
        bound = np.partition(scores, len(scores) - depth)[len(scores) - depth]
        places = np.flatnonzero(scores >= bound)
    else:
        places = np.arange(len(scores))
    return places[np.argsort(-scores[places], kind="stable")][:depth]


def _batches(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    source = iter(texts)
    while batch := list(islice(source, size)):
        yield batch
