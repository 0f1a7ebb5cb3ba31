"""The vector tables: pending and embedded memories, the replacement of models, the only writer, and how many memories
and rows of the vocabulary have a vector.

There is no queue: a memory is pending for a model while the hash of its text differs from the hash that the model
embedded last. Both are merged from two narrow indexes, memory_text_idx and embeddedmemory_hash_idx.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from django.db import connection, transaction
from django.db.models import F

from categories.names import DataRevision
from categories.searched_terms import SearchableTable
from categories.services import writers_turn
from cluster import store_vectors_in_rows
from memories.embedding import vocabulary
from memories.embedding.chunking import Window
from memories.embedding.models import Vectors
from memories.models import Chunk, Corpus, EmbeddingModel, Memory
from web.cache import RepeatedReads
from web.command_line import command

# The most that an index supports.
MAX_DIMENSIONS = 4_000
# Memories are claimed in runs of this many ids: a lock for each would be too many.
RUN = 64
_CLAIMS = 4_711_002  # the first key of the advisory locks
_TURNS = 4_711_003
# Edits of a memory take precedence: a writer that waits longer for a lock tries again later.
_LOCK_TIMEOUT = "500ms"

State = EmbeddingModel.State

_WAITING = (
    "FROM memories_memory memory LEFT JOIN memories_embeddedmemory embedded"
    " ON embedded.memory_id = memory.id AND embedded.model_id = %(model)s"
    " WHERE embedded.content_hash IS DISTINCT FROM memory.content_hash"
)
# For a model about to be replaced: memories that changed after it embedded them, and newer memories.
_CHANGED = (
    "FROM memories_memory memory JOIN memories_embeddedmemory embedded"
    " ON embedded.memory_id = memory.id AND embedded.model_id = %(model)s"
    " WHERE embedded.content_hash <> memory.content_hash"
)
_NEW = (
    "FROM memories_memory memory WHERE memory.id >"
    " (SELECT coalesce(max(memory_id), 0) FROM memories_embeddedmemory WHERE model_id = %(model)s)"
)
_TEXTS = (
    f"SELECT memory.id, memory.title, memory.content, memory.content_hash {_WAITING}"
    " AND memory.id = ANY(%(ids)s) ORDER BY memory.id"
)


class WrongDimensionsError(Exception):
    """The model's vectors do not fit the column. The message says what to do."""


@dataclass(frozen=True, slots=True)
class PendingText:
    """A pending memory with its current text."""

    memory_id: int
    title: str
    content: str
    content_hash: str


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddedText:
    """The chunks of a memory, with a row of `vectors` for each."""

    text: PendingText
    windows: Sequence[Window]
    vectors: Vectors


@dataclass(frozen=True, slots=True)
class ModelProgress:
    """A model, and the number of memories that it has embedded, in any version."""

    id: int
    name: str
    state: str
    embedded: int


# --- models ------------------------------------------------------------------------------------------------------


def column_dimensions() -> int | None:
    """The dimensions of the vector column; None if there is none yet."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT atttypmod FROM pg_attribute"
            " WHERE attrelid = to_regclass('memories_chunk') AND attname = 'embedding' AND NOT attisdropped"
        )
        row = cursor.fetchone()
    return int(row[0]) if row else None


@transaction.atomic
def column_resize(dimensions: int) -> None:
    """Change the dimensions of the vector column. Removes all vectors; no model serves until one has started again."""
    with connection.cursor() as cursor:
        # Waits for all writers of vectors, however long, and blocks new ones.
        cursor.execute("SET LOCAL lock_timeout = 0")
        cursor.execute("LOCK TABLE memories_chunk IN ACCESS EXCLUSIVE MODE")
        cursor.execute("TRUNCATE memories_chunk, memories_embeddedmemory")
        EmbeddingModel.objects.update(state=State.RETIRED)
        cursor.execute("DROP INDEX chunk_embedding_hnsw")
        cursor.execute(f"ALTER TABLE memories_chunk ALTER COLUMN embedding TYPE halfvec({dimensions:d})")
        store_vectors_in_rows(cursor, "memories_chunk")
    with connection.schema_editor(atomic=False) as editor:
        editor.add_index(Chunk, Chunk._meta.indexes[0])
    vocabulary.columns_resize(dimensions)
    _vectors_replaced()


def vectors_count() -> int:
    return Chunk.objects.count()


def wrong_dimensions(name: str, dimensions: int, column: int) -> str:
    return (
        f"The vectors of {name} have {dimensions} dimensions; the column has {column}. Set EMBEDDING_MODEL to a "
        f"model with {column}, or change the column: {command(f'embedding_dimensions {dimensions}')}"
    )


@transaction.atomic
def model_begin(*, name: str, source: str, dimensions: int, min_similarity: float) -> EmbeddingModel:
    """Make a model the one to embed with. It serves at once if no other model does. Raises WrongDimensionsError."""
    column = column_dimensions()
    if column is not None and dimensions != column:
        raise WrongDimensionsError(wrong_dimensions(name, dimensions, column))
    _take_turn()
    model = EmbeddingModel.objects.filter(name=name).first()
    if model is None:
        last = EmbeddingModel.objects.order_by("-id").values_list("id", flat=True).first() or 0
        model = EmbeddingModel(id=last + 1, name=name)
    EmbeddingModel.objects.filter(state=State.BUILDING).exclude(pk=model.pk).update(state=State.RETIRED)
    if not EmbeddingModel.objects.filter(state=State.SERVING).exists():
        model.state = State.SERVING
    elif model.state != State.SERVING:
        model.state = State.BUILDING
    model.source, model.dimensions, model.min_similarity = source, dimensions, min_similarity
    model.save()
    return model


@transaction.atomic
def model_serve(model_id: int, *, up_to: int, leaving: Collection[int] = ()) -> bool:
    """Make a model the serving one, unless memories up to an id but `leaving` are pending."""
    _take_turn()
    if set(pending_ids(model_id, below=up_to + 1, limit=len(leaving) + 1)) - set(leaving):
        return False
    EmbeddingModel.objects.filter(state=State.SERVING).exclude(pk=model_id).update(state=State.RETIRED)
    if EmbeddingModel.objects.filter(pk=model_id, state=State.BUILDING).update(state=State.SERVING):
        _vectors_replaced()
    return EmbeddingModel.objects.filter(pk=model_id, state=State.SERVING).exists()


def _take_turn() -> None:
    """Serialise workers that decide which model serves."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, 0)", [_TURNS])
    writers_turn()


def serving_id() -> int:
    """The id of the serving model; 0, for which everything is pending, if there is none."""
    serving = EmbeddingModel.objects.filter(state=State.SERVING)
    return serving.values_list("id", flat=True).first() or 0


def retired_remove(model_ids: Collection[int], limit: int) -> int:
    """Remove vectors of retired models, of up to `limit` memories. Returns the number of memories."""
    with transaction.atomic(), connection.cursor() as cursor:
        _take_turn()
        cursor.execute(
            "SELECT embedded.model_id, embedded.memory_id FROM memories_embeddedmemory embedded"
            " JOIN memories_embeddingmodel model ON model.id = embedded.model_id AND model.state = 'retired'"
            " WHERE embedded.model_id = ANY(%s) LIMIT %s",
            [list(model_ids), limit],
        )
        found: dict[int, list[int]] = {}
        for model_id, memory_id in cursor.fetchall():
            found.setdefault(model_id, []).append(memory_id)
        for model_id, memory_ids in found.items():
            for table in ("memories_chunk", "memories_embeddedmemory"):
                cursor.execute(
                    f"DELETE FROM {table} WHERE model_id = %s AND memory_id = ANY(%s)", [model_id, memory_ids]
                )
        if not found:
            vocabulary.vectors_remove(list(model_ids))
    return sum(map(len, found.values()))


# --- what waits --------------------------------------------------------------------------------------------------


def pending_count(model_id: int) -> int:
    """The number of memories that a model has yet to embed."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) {_WAITING}", {"model": model_id})
        return int(cursor.fetchone()[0])


def pending_by_project(model_id: int) -> tuple[dict[int, int], dict[int, int]]:
    """The memories by project that a model has yet to embed, and all memories by project; empty if none is pending."""
    with connection.cursor() as cursor:
        # The ids first, from two narrow indexes: usually there are few, or none.
        cursor.execute(
            f"WITH waiting AS MATERIALIZED (SELECT memory.id {_WAITING})"
            " SELECT project_id, count(*) FROM waiting JOIN memories_memory USING (id) GROUP BY project_id",
            {"model": model_id},
        )
        pending = dict(cursor.fetchall())
        if not pending:
            return {}, {}
        # An index-only scan of memory_project_created_idx.
        cursor.execute("SELECT project_id, count(*) FROM memories_memory GROUP BY project_id")
        return pending, dict(cursor.fetchall())


def models_progress() -> list[ModelProgress]:
    """The serving and building models, and their progress."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, name, state, coalesce(embedded.count, 0) FROM memories_embeddingmodel model LEFT JOIN"
            " (SELECT model_id, count(*) FROM memories_embeddedmemory GROUP BY model_id) embedded"
            " ON embedded.model_id = model.id WHERE state <> 'retired' ORDER BY state DESC"
        )
        return [ModelProgress(*row) for row in cursor.fetchall()]


def pending_ids(model_id: int, *, above: int = 0, below: int | None = None, limit: int) -> list[int]:
    """Ids of pending memories between two ids, the newest first."""
    condition = " AND memory.id > %(above)s" if above else ""
    if below is not None:
        condition += " AND memory.id < %(below)s"
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT memory.id {_WAITING}{condition} ORDER BY memory.id DESC LIMIT %(limit)s",
            {"model": model_id, "above": above, "below": below, "limit": limit},
        )
        return [row[0] for row in cursor.fetchall()]


def pending_since(model_id: int, *, limit: int) -> list[int]:
    """Ids of memories added or changed since a model embedded, the oldest first; not those that it never reached."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"(SELECT memory.id {_CHANGED}) UNION (SELECT memory.id {_NEW}) ORDER BY 1 LIMIT %(limit)s",
            {"model": model_id, "limit": limit},
        )
        return [row[0] for row in cursor.fetchall()]


def claim(run: int) -> bool:
    """Claim a run of ids for this transaction. False if another worker holds it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", [_CLAIMS, run % 2**31])
        return bool(cursor.fetchone()[0])


def pending_texts(model_id: int, ids: Sequence[int]) -> list[PendingText]:
    """The given memories that are still pending."""
    with connection.cursor() as cursor:
        cursor.execute(_TEXTS, {"model": model_id, "ids": list(ids)})
        return [PendingText(*row) for row in cursor.fetchall()]


# --- writing -----------------------------------------------------------------------------------------------------


@transaction.atomic
def vectors_write(model_id: int, found: Sequence[EmbeddedText]) -> None:
    """Replace the vectors of whole memories; deleted memories are skipped.

    The hash of the embedded text is stored with them: if the text has changed in the meantime, the memory is pending
    again.
    """
    writers_turn()
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
        there = set(Memory.objects.filter(pk__in=[one.text.memory_id for one in found]).values_list("pk", flat=True))
        texts = sorted((one for one in found if one.text.memory_id in there), key=lambda one: one.text.memory_id)
        if not texts:
            return
        ids = [one.text.memory_id for one in texts]
        cursor.execute("DELETE FROM memories_chunk WHERE model_id = %s AND memory_id = ANY(%s)", [model_id, ids])
        with cursor.copy(
            'COPY memories_chunk (memory_id, model_id, ordinal, start, "end", embedding) FROM STDIN (FORMAT BINARY)'
        ) as copy:
            copy.write(binary_rows(model_id, texts))
        cursor.execute(
            "INSERT INTO memories_embeddedmemory (memory_id, model_id, content_hash, chunks)"
            " SELECT memory_id, %s, content_hash, chunks"
            " FROM unnest(%s::bigint[], %s::text[], %s::integer[]) AS written (memory_id, content_hash, chunks)"
            " ON CONFLICT (memory_id, model_id)"
            " DO UPDATE SET content_hash = EXCLUDED.content_hash, chunks = EXCLUDED.chunks",
            [model_id, ids, [one.text.content_hash for one in texts], [len(one.windows) for one in texts]],
        )
    # Last: writers of memories also lock this row at the end, so they cannot deadlock.
    _vectors_changed(model_id, ids)


def _vectors_changed(model_id: int = 0, memory_ids: Sequence[int] = ()) -> None:
    """Raise the revision of the vectors, and record the changed memories if a replica follows."""
    if not Corpus.objects.filter(pk=1).update(vectors=F("vectors") + 1):
        Corpus.objects.create(id=1, vectors=1)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO memories_vectorchange (revision, model_id, memory_ids)"
            " SELECT vectors, %s, %s::bigint[] FROM memories_corpus WHERE id = 1 AND replica <> ''",
            [model_id, list(memory_ids)],
        )


def _vectors_replaced() -> None:
    """Raise the revision after another model became the serving one: a replica cannot follow that and is rebuilt.

    Vectors of a retired model are removed without a record, and the model may return.
    """
    # Last, as in every change.
    Corpus.objects.filter(pk=1).update(replica="")
    _vectors_changed()


def binary_rows(model_id: int, texts: Sequence[EmbeddedText]) -> bytes:
    """Chunks in the binary format of COPY: each field is preceded by its length, all big-endian."""
    vectors = np.concatenate([one.vectors for one in texts])
    count, dimensions = vectors.shape
    fields: list[tuple[str, str, object]] = [
        ("memory_id", ">i8", np.repeat([one.text.memory_id for one in texts], [len(one.windows) for one in texts])),
        ("model_id", ">i2", model_id),
        ("ordinal", ">i4", np.concatenate([np.arange(len(one.windows)) for one in texts])),
        ("start", ">i4", [window.start for one in texts for window in one.windows]),
        ("end", ">i4", [window.end for one in texts for window in one.windows]),
    ]
    layout: list[tuple[str, str] | tuple[str, str, tuple[int]]] = [("fields", ">i2")]
    for name, kind, _ in fields:
        layout += [(f"{name} length", ">i4"), (name, kind)]
    layout += [("length", ">i4"), ("dimensions", ">i2"), ("unused", ">i2"), ("embedding", ">f2", (dimensions,))]
    rows = np.zeros(count, dtype=layout)
    rows["fields"] = len(fields) + 1
    for name, kind, values in fields:
        rows[f"{name} length"] = np.dtype(kind).itemsize
        rows[name] = values
    rows["length"] = 4 + 2 * dimensions
    rows["dimensions"] = dimensions
    rows["embedding"] = vectors
    return b"PGCOPY\n\xff\r\n\0" + bytes(8) + rows.tobytes() + b"\xff\xff"


_PENDING_IDS = 10_000
# Uses the primary keys of the table and of its vectors.
_VOCABULARY = """
WITH pending AS MATERIALIZED (SELECT own.id FROM {table} own WHERE NOT EXISTS
  (SELECT FROM {vectors} vector WHERE vector.{owner} = own.id AND vector.model_id = %(model)s))
SELECT (SELECT count(*) FROM {table}), (SELECT count(*) FROM pending), ARRAY(SELECT id FROM pending LIMIT %(most)s)"""


@dataclass(frozen=True, slots=True)
class EmbeddedShare:
    """A number of rows, and how many of them have an up-to-date vector."""

    embedded: int
    total: int

    @property
    def is_complete(self) -> bool:
        return self.embedded >= self.total

    @property
    def percent(self) -> float:
        """Rounded down: 100 only if all are embedded."""
        return self.embedded * 1000 // self.total / 10 if self.total else 100.0

    @property
    def text(self) -> str:
        """The share in words: “34 %” or “none”, with a decimal where a whole number would say all or nothing."""
        if not self.embedded:
            return "none"
        return f"{self.percent:.1f} %" if self.percent > 99 or self.percent < 1 else f"{int(self.percent)} %"


@dataclass(frozen=True, slots=True)
class MemoryProgress:
    """Memories by project, and how many of them a model has yet to embed. Both are empty if none is pending."""

    pending: Mapping[int, int]
    totals: Mapping[int, int]

    def pending_in(self, project_ids: Collection[int] | None) -> int:
        """The number of pending memories in some projects; None stands for all."""
        return sum(self.pending.get(pk, 0) for pk in (self.pending if project_ids is None else project_ids))

    def share(self, project_ids: Collection[int] | None) -> EmbeddedShare:
        """The share in some projects, as in `pending_in`."""
        total = sum(self.totals.get(pk, 0) for pk in (self.totals if project_ids is None else project_ids))
        return EmbeddedShare(total - self.pending_in(project_ids), total)


@dataclass(frozen=True, slots=True)
class VocabularyProgress:
    """The share of a table of the vocabulary with a vector, and the ids of the rows without one, up to 10,000."""

    share: EmbeddedShare
    pending_ids: tuple[int, ...]

    @property
    def lists_all_pending(self) -> bool:
        return len(self.pending_ids) == self.share.total - self.share.embedded


_memories = RepeatedReads[tuple[object, ...], MemoryProgress]()
_vocabulary = RepeatedReads[tuple[object, ...], VocabularyProgress]()


def memory_progress(revision: DataRevision, model_id: int | None = None) -> MemoryProgress:
    """The progress of a model, by default the serving one."""
    model = revision.model_id if model_id is None else model_id

    def read() -> MemoryProgress:
        return MemoryProgress(*pending_by_project(model))

    if not revision.is_shared:
        return read()
    return _memories.get((*revision.database, model), (revision.revision, revision.vectors), read)


def vocabulary_progress(revision: DataRevision, searched: SearchableTable) -> VocabularyProgress:
    """The progress of the serving model over a table of the vocabulary."""

    def read() -> VocabularyProgress:
        statement = _VOCABULARY.format(table=searched.table, vectors=searched.vectors, owner=searched.owner)
        with connection.cursor() as cursor:
            cursor.execute(statement, {"model": revision.model_id, "most": _PENDING_IDS})
            total, pending, ids = cursor.fetchone()
        return VocabularyProgress(EmbeddedShare(total - pending, total), tuple(ids))

    if not revision.is_shared:
        return read()
    # Vectors of the vocabulary have no revision: the number is counted again after a while.
    return _vocabulary.get((*revision.database, searched.kind, revision.model_id), object(), read)
