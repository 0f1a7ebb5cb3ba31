"""How many memories, and rows of the vocabulary, have a vector: for notices on every answer that searches by meaning.

Counting reads two narrow indexes from end to end, so counts are cached; see `web.cache.RepeatedReads`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from django.db import connection

from categories.revision import DataRevision
from categories.searched_terms import SearchableTable
from memories.embedding.vectors import pending_by_project
from web.cache import RepeatedReads

# Uses the primary key of the table and the unique constraint of its vectors.
_VOCABULARY = """
SELECT (SELECT count(*) FROM {table}),
       (SELECT count(*) FROM {table} own WHERE EXISTS
        (SELECT FROM {vectors} vector WHERE vector.{owner} = own.id AND vector.model_id = %(model)s))"""


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
        """The share in words, such as “34 %”, with a decimal where a whole number would say all or nothing."""
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


_memories = RepeatedReads[tuple[object, ...], MemoryProgress]()
_vocabulary = RepeatedReads[tuple[object, ...], EmbeddedShare]()


def memory_progress(revision: DataRevision, model_id: int | None = None) -> MemoryProgress:
    """The progress of a model, by default the serving one."""
    model = revision.model_id if model_id is None else model_id

    def read() -> MemoryProgress:
        return MemoryProgress(*pending_by_project(model))

    if not revision.is_shared:
        return read()
    return _memories.get((*revision.database, model), (revision.revision, revision.vectors), read)


def vocabulary_progress(revision: DataRevision, searched: SearchableTable) -> EmbeddedShare:
    """The share of the rows of a table of the vocabulary that have a vector of the serving model."""

    def read() -> EmbeddedShare:
        statement = _VOCABULARY.format(table=searched.table, vectors=searched.vectors, owner=searched.owner)
        with connection.cursor() as cursor:
            cursor.execute(statement, {"model": revision.model_id})
            total, embedded = cursor.fetchone()
        return EmbeddedShare(embedded, total)

    if not revision.is_shared:
        return read()
    # Vectors of the vocabulary have no revision: the number is counted again after a while.
    return _vocabulary.get((*revision.database, searched.kind, revision.model_id), object(), read)
