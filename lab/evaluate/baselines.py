"""The baselines of an evaluation: plain BM25, plain cosine similarity of embeddings, and the fusion of the two.

They use no database, no filters and no analysis of our own. A document is its title and text in one string.
"""

import hashlib
import logging
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from django.conf import settings

from lab.evaluate.collection import Collection
from lab.sandbox import BenchmarkError
from memories.embedding.models import Embedder, EmbedderUnavailableError, Vectors, load_embedder, model_name

BM25, COSINE, FUSION = "bm25", "cosine", "fusion"
BASELINES = (BM25, COSINE, FUSION)

# The values of Lucene and tantivy.
K1, B = 1.2, 0.75
# The number of the best of each ranking that are fused, and the weight of meaning.
FUSED_DEPTH = 200
_SEMANTIC_WEIGHT = 0.6

_ALTERNATIVE = "Or leave it out with --baselines."
_DOCUMENT_BATCH = 2_048
_ROW_BATCH = 50_000
_QUERY_BATCH = 500

Advance = Callable[[int], None]
# The documents for each query, best first, and with their scores.
Rankings = dict[str, list[str]]
Scored = dict[str, dict[str, float]]


def baseline_label(name: str) -> str:
    """The label of a baseline in the table."""
    model = model_name(settings.EMBEDDING_MODEL)
    return {BM25: "BM25 (bm25s)", COSINE: f"cosine ({model})", FUSION: "BM25 and cosine fused"}[name]


def bm25_scores(collection: Collection, depth: int, advance: Advance) -> Scored:
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
    found_scores: Scored = {}
    for name, ids in zip(collection.queries, asked, strict=True):
        scores = index.get_scores_from_ids(ids) if len(ids) else np.zeros(len(rows), np.float32)
        best = _best(scores, depth)
        found_scores[name] = {collection.ids[place]: float(scores[place]) for place in best if scores[place] > 0}
    return found_scores


def cosine_scores(collection: Collection, depth: int, folder: Path, advance: Advance) -> Scored:
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
    found: Scored = {}
    names = list(collection.queries)
    for start in range(0, len(names), _QUERY_BATCH):
        part = asked[start : start + _QUERY_BATCH]
        for name, nearest in zip(names[start:], _nearest(part, vectors, depth), strict=False):
            found[name] = {collection.ids[place]: score for place, score in nearest}
    return found


def fused_scores(words: Scored, meaning: Scored) -> Scored:
    """The plain fusion of two rankings of the same queries, best first.

    The scores of each are scaled from the lowest to the highest of its best FUSED_DEPTH, and added with their weights.
    """
    fused: Scored = {}
    for name in words:
        scores: dict[str, float] = {}
        for found, weight in ((words[name], 1 - _SEMANTIC_WEIGHT), (meaning[name], _SEMANTIC_WEIGHT)):
            best = dict(islice(found.items(), FUSED_DEPTH))
            least, most = min(best.values(), default=0.0), max(best.values(), default=0.0)
            for document, score in best.items():
                share = (score - least) / (most - least) if most > least else 1.0
                scores[document] = scores.get(document, 0.0) + weight * share
        fused[name] = dict(sorted(scores.items(), key=lambda pair: -pair[1]))
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


def _nearest(asked: Vectors, vectors: Vectors, depth: int) -> list[list[tuple[int, float]]]:
    """The positions of the nearest rows of each query with their scores, computed in batches of rows."""
    scores = np.empty((len(asked), 0), np.float32)
    places = np.empty((len(asked), 0), np.int64)
    for start in range(0, len(vectors), _ROW_BATCH):
        more = asked @ np.asarray(vectors[start : start + _ROW_BATCH]).T
        scores = np.concatenate([scores, more], axis=1)
        places = np.concatenate([places, np.broadcast_to(np.arange(start, start + more.shape[1]), more.shape)], axis=1)
        best = np.stack([_best(row, depth) for row in scores])
        scores, places = np.take_along_axis(scores, best, 1), np.take_along_axis(places, best, 1)
    return [list(zip(row.tolist(), of.tolist(), strict=True)) for row, of in zip(places, scores, strict=True)]


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
