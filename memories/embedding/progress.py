"""How many memories, and rows of the vocabulary, have a vector: for notices on every answer that searches by meaning.

Counting reads two narrow indexes from end to end, so counts are cached; see `web.cache.RepeatedReads`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from django.db import connection

from categories.names import DataRevision
from categories.searched_terms import SearchableTable
from memories.embedding.vectors import pending_by_project
from web.cache import RepeatedReads

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
