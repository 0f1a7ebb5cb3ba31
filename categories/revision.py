"""Which moment of the database is read: what anything that is kept of it is kept under."""

from dataclasses import dataclass
from typing import Any

from django.db import connection

_NOW = """
SELECT corpus.revision, corpus.vectors, coalesce(model.id, 0), pg_current_xact_id_if_assigned() IS NULL
FROM memories_corpus corpus LEFT JOIN memories_embeddingmodel model ON model.state = 'serving' WHERE corpus.id = 1"""


@dataclass(frozen=True, slots=True)
class DataRevision:
    """A database, the revisions of its memories and of their vectors, and the model that serves, 0 where none does.

    A transaction that has written something may see what is nobody else's yet: then it is not shared, and nothing that
    is read in it may be kept.
    """

    database: tuple[object, ...]
    revision: int = 0
    vectors: int = 0
    model_id: int = 0
    is_shared: bool = False

    @property
    def cache_key(self) -> tuple[object, ...] | None:
        """What may be kept of its memories and names, and under what; None where nothing may."""
        return (*self.database, self.revision) if self.is_shared else None


def data_revision() -> DataRevision:
    """That of the snapshot that the database is read by."""
    with connection.cursor() as cursor:
        cursor.execute(_NOW)
        return _moment(cursor.fetchone())


def data_revision_with(statement: str) -> tuple[DataRevision, list[tuple[Any, ...]]]:
    """The same, and the rows of a statement that has no parameters and no percent sign: asked for together, in one text
    whose parameters are written into it, they are waited for once.
    """
    with connection.cursor() as cursor:
        cursor.execute(f"{statement};{_NOW}")
        rows = cursor.fetchall()
        cursor.nextset()
        return _moment(cursor.fetchone()), rows


def _moment(found: tuple[int, int, int, bool] | None) -> DataRevision:
    settings = connection.settings_dict
    return DataRevision((settings["HOST"], settings["PORT"], settings["NAME"]), *(found or (0, 0, 0, False)))
