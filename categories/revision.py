"""The data revision that a snapshot reads; the key for every cache."""

from dataclasses import dataclass
from typing import Any

from django.db import connection

_NOW = """
SELECT corpus.revision, corpus.vectors, coalesce(model.id, 0), pg_current_xact_id_if_assigned() IS NULL
FROM memories_corpus corpus LEFT JOIN memories_embeddingmodel model ON model.state = 'serving' WHERE corpus.id = 1"""


@dataclass(frozen=True, slots=True)
class DataRevision:
    """A database, the revisions of its memories and of their vectors, and the id of the serving model (0 if none).

    A transaction that has written data may see uncommitted rows: then `is_shared` is False, and nothing read in it may
    be cached.
    """

    database: tuple[object, ...]
    revision: int = 0
    vectors: int = 0
    model_id: int = 0
    is_shared: bool = False

    @property
    def cache_key(self) -> tuple[object, ...] | None:
        """The key for caches of memories and names; None if nothing may be cached."""
        return (*self.database, self.revision) if self.is_shared else None


def data_revision() -> DataRevision:
    """The data revision of the current snapshot."""
    with connection.cursor() as cursor:
        cursor.execute(_NOW)
        return _revision(cursor.fetchone())


def data_revision_with(statement: str) -> tuple[DataRevision, list[tuple[Any, ...]]]:
    """The data revision, and the rows of a statement without parameters and percent signs, in one round trip."""
    with connection.cursor() as cursor:
        cursor.execute(f"{statement};{_NOW}")
        rows = cursor.fetchall()
        cursor.nextset()
        return _revision(cursor.fetchone()), rows


def _revision(found: tuple[int, int, int, bool] | None) -> DataRevision:
    settings = connection.settings_dict
    return DataRevision((settings["HOST"], settings["PORT"], settings["NAME"]), *(found or (0, 0, 0, False)))
