"""Writes a large import into the search index while it runs, in a process that also makes its terms.

This pays off for large imports, on the machine that has the index. If the index fails, the import continues with a log
message: the index reads the memories from the database after the commit.
"""

import logging
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

from memories.analysers import begin_with_django
from memories.bulk_copy import InsertBlock
from memories.snapshot import MemorySnapshot
from memories.terms import MemoryText, memory_placed_terms
from search.engines import crash_points
from search.engines.index import import_stage, store
from search.engines.index.import_stage import StageWriter
from search.engines.index.segments import MULTIPLE_SOURCES, SCALAR_SOURCES, IndexRow, StoredRow, load_stored

logger = logging.getLogger(__name__)

# Above this many new memories, opening a new generation costs readers less than another segment.
STAGE_FROM = 20_000
# Above this many, a stage is used if they are at least half of the index.
STAGE_HALF_FROM = 2_000
# Not a fork: database connections and threads belong to this process.
PROCESSES = multiprocessing.get_context("spawn")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class ImportSink:
    """Writes the memories of a large import into a stage of the index; implements `IndexSink`.

    `stack` is closed after the transaction of the import, once its outcome is known.
    """

    def __init__(self, batch_id: int, stack: ExitStack) -> None:
        self._batch_id = batch_id
        self._stack = stack
        self._refused = False
        self._pool: ProcessPoolExecutor | None = None
        self._ended: Future[None] | None = None

    def is_open(self, expected: float) -> bool:
        """Whether memories go into the index. Opens the stage if `expected` new memories from here on are worth it."""
        if self._pool is None and not self._refused and _is_worth_it(expected):
            stage = self._stack.enter_context(import_stage.open_stage(self._batch_id))
            self._refused = stage is None
            if stage is not None:
                # Django is set up before the process imports this module, and with it models.
                self._pool = ProcessPoolExecutor(1, PROCESSES, initializer=begin_with_django)
                self._pool.submit(_begin, stage)
        return self._pool is not None

    def submit(self, ids: list[int], texts: list[MemoryText]) -> "Future[list[str]]":
        """Make the terms of memories that are about to be stored, and add them to the index."""
        if self._pool is None:
            raise RuntimeError("there is no stage")
        return self._pool.submit(_add, ids, texts)

    def confirm(self, block: InsertBlock) -> None:
        """Confirm that a block of submitted memories is stored."""
        if self._pool is None:
            return
        stored = load_stored([snapshot.id for snapshot in block.snapshots], store.SCHEMA)
        rows = [_index_row(*fields) for fields in zip(block.snapshots, block.columns, stored, strict=True)]
        self._pool.submit(_confirm, rows)
        crash_points.reached("block stored")

    def end(self) -> None:
        """Finish writing after the last block."""
        if self._pool is not None:
            self._ended = self._pool.submit(_finish)

    def finish(self) -> None:
        """Wait until the stage is on disk."""
        if self._ended is not None:
            self._ended.result()
            self.close()
            crash_points.reached("stage written")

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def _is_worth_it(expected: float) -> bool:
    return expected >= STAGE_FROM or (expected >= STAGE_HALF_FROM and expected >= import_stage.memories())


def _index_row(snapshot: MemorySnapshot, columns: dict[str, list[int]], stored: StoredRow) -> IndexRow:
    created = (snapshot.created_at - _EPOCH) // _MICROSECOND
    # Most were never changed.
    updated = created if snapshot.updated_at is snapshot.created_at else (snapshot.updated_at - _EPOCH) // _MICROSECOND
    return IndexRow(
        id=snapshot.id,
        scalars=tuple(
            stored.state if column == "state" else getattr(snapshot, column) for column in SCALAR_SOURCES.values()
        ),
        multiple=tuple(
            columns[column] if column in columns else getattr(snapshot, column) for column in MULTIPLE_SOURCES.values()
        ),
        created=created,
        updated=updated,
        title=stored.title,
        digest=stored.digest,
        valid_since=stored.valid_since,
        valid_until=stored.valid_until,
    )


# --- in the process of the stage; None if the index has been given up --------------------------------------------

_writer: StageWriter | None = None


def _begin(stage: Path) -> None:
    global _writer
    try:
        _writer = StageWriter(stage)
    except Exception:
        _give_up()


def _give_up() -> None:
    global _writer
    logger.exception("The import continues without the search index; its memories are indexed afterwards.")
    _writer = None


def _add(ids: Sequence[int], texts: Sequence[MemoryText]) -> list[str]:
    """Return the terms as the column of a memory has them."""
    terms = [memory_placed_terms(text) for text in texts]
    if _writer is not None:
        try:
            _writer.add(ids, terms)
        except Exception:
            _give_up()
    return [one.vector for one in terms]


def _confirm(rows: Sequence[IndexRow]) -> None:
    if _writer is not None:
        try:
            _writer.confirm(rows)
        except Exception:
            _give_up()


def _finish() -> None:
    if _writer is not None:
        try:
            _writer.finish()
        except Exception:
            _give_up()
