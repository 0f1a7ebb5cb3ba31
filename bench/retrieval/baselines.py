"""The baselines of an evaluation: plain BM25, plain cosine similarity of embeddings, and the fusion of the two.

They use no database, no filters and no analysis of our own. A document is its title and text in one string.
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

from bench.retrieval.collection import Collection
from bench.sandbox import BenchmarkError
from memories.embedding.models import Embedder, EmbedderUnavailableError, Vectors, load_embedder, model_name

BM25, COSINE, FUSION = "bm25", "cosine", "fusion"
BASELINES = (BM25, COSINE, FUSION)

# The values of Lucene and tantivy.
K1, B = 1.2, 0.75
# The published value of reciprocal rank fusion.
RANK_CONSTANT = 60

_ALTERNATIVE = "Or leave it out with --baselines."
_DOCUMENT_BATCH = 2_048
_ROW_BATCH = 50_000
_QUERY_BATCH = 500

Advance = Callable[[int], None]
# The documents for each query, best first.
Rankings = dict[str, list[str]]


def baseline_label(name: str) -> str:
    """The label of a baseline in the table."""
    model = model_name(settings.EMBEDDING_MODEL)
    return {BM25: "BM25 (bm25s)", COSINE: f"cosine ({model})", FUSION: "BM25 and cosine fused"}[name]


def bm25_rankings(collection: Collection, depth: int, advance: Advance) -> Rankings:
    """Lucene's variant of BM25, with stemmed words and without English stopwords."""
    try:
        import bm25s
        from bm25s.tokenization import Tokenizer
    except ImportError as error:
        raise BenchmarkError(
            f"bm25s is not installed: pip install 'mnemoscope[bench]', which `make eval` does. {_ALTERNATIVE}"
        ) from error
    import Stemmer

    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it logs every step by default
    tokenizer = Tokenizer(stopwords="english", stemmer=Stemmer.Stemmer("english"))
    rows: list[array[int]] = []
    for texts in _batches((document.full_text for document in collection.documents()), _DOCUMENT_BATCH):
        found: Any = tokenizer.tokenize(texts, update_vocab=True, return_as="ids", show_progress=False)
        # An array takes half the memory of a list.
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

    The vectors are stored in the folder. Each document and each query advances the progress by one.
    """
    try:
        embedder = load_embedder(settings.EMBEDDING_MODEL)
    except EmbedderUnavailableError as error:
        raise BenchmarkError(f"{error}. {_ALTERNATIVE}") from error
    vectors = _document_vectors(collection, embedder, folder, advance)
    asked = np.empty((len(collection.queries), vectors.shape[1]), np.float32)
    for row, text in enumerate(collection.queries.values()):
        asked[row] = embedder.encode_query(text)
        advance(1)
    rankings: Rankings = {}
    names = list(collection.queries)
    for start in range(0, len(names), _QUERY_BATCH):
        part = asked[start : start + _QUERY_BATCH]
        for name, places in zip(names[start:], _nearest(part, vectors, depth), strict=False):
            rankings[name] = [collection.ids[place] for place in places]
    return rankings


def fused_rankings(first: Mapping[str, Sequence[str]], second: Mapping[str, Sequence[str]], depth: int) -> Rankings:
    """Reciprocal rank fusion of two rankings of the same queries."""
    fused: Rankings = {}
    for name in first:
        scores: dict[str, float] = {}
        for ranking in (first[name], second[name]):
            for rank, document in enumerate(ranking, 1):
                scores[document] = scores.get(document, 0.0) + 1 / (RANK_CONSTANT + rank)
        fused[name] = sorted(scores, key=lambda document: -scores[document])[:depth]
    return fused


def _document_vectors(collection: Collection, embedder: Embedder, folder: Path, advance: Advance) -> Vectors:
    """One row for each document, in a mapped file: a large collection does not fit into memory."""
    path = folder / f"vectors-{hashlib.sha256(embedder.name.encode()).hexdigest()[:12]}.npy"
    if path.exists():
        advance(len(collection.ids))
        return np.load(path, mmap_mode="r")  # type: ignore[no-any-return]
    draft = path.with_suffix(".draft.npy")
    rows: Any = None
    start = 0
    for texts in _batches((document.full_text for document in collection.documents()), _DOCUMENT_BATCH):
        vectors = embedder.encode(texts)
        if rows is None:
            shape = (len(collection.ids), vectors.shape[1])
            rows = np.lib.format.open_memmap(draft, mode="w+", dtype=np.float32, shape=shape)
        rows[start : start + len(texts)] = vectors
        start += len(texts)
        advance(len(texts))
    rows.flush()
    draft.rename(path)
    return rows  # type: ignore[no-any-return]


def _nearest(asked: Vectors, vectors: Vectors, depth: int) -> list[list[int]]:
    """The positions of the nearest rows of each query, computed in batches of rows."""
    scores = np.empty((len(asked), 0), np.float32)
    places = np.empty((len(asked), 0), np.int64)
    for start in range(0, len(vectors), _ROW_BATCH):
        more = asked @ np.asarray(vectors[start : start + _ROW_BATCH]).T
        scores = np.concatenate([scores, more], axis=1)
        places = np.concatenate([places, np.broadcast_to(np.arange(start, start + more.shape[1]), more.shape)], axis=1)
        best = np.stack([_best(row, depth) for row in scores])
        scores, places = np.take_along_axis(scores, best, 1), np.take_along_axis(places, best, 1)
    return [[int(place) for place in row] for row in places]


def _best(scores: npt.NDArray[np.float32], depth: int) -> npt.NDArray[np.int64]:
    """The positions of the highest scores, best first; ties are in order of position."""
    if depth < len(scores):
        # Scores that tie with the last are candidates too.
        bound = np.partition(scores, len(scores) - depth)[len(scores) - depth]
        places = np.flatnonzero(scores >= bound)
    else:
        places = np.arange(len(scores))
    return places[np.argsort(-scores[places], kind="stable")][:depth]


def _batches(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    source = iter(texts)
    while batch := list(islice(source, size)):
        yield batch
