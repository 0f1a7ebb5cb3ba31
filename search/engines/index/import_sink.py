"""An import that goes into the search index while it runs: one process makes the terms, and writes them there too.

A large import is worth it, where this machine keeps the index. Whatever goes wrong with the index is no failure of the
import: the memories are taken from the database then, once it has committed.
"""

import multiprocessing
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

from memories.bulk_copy import InsertBlock
from memories.snapshot import MemorySnapshot
from memories.terms import MemoryText
from search.engines import crash_points
from search.engines.index import import_process, import_stage, store
from search.engines.index.segments import StoredRow, load_stored

# From so many new memories on: a new generation is more for readers to open than a segment that is added.
STAGE_FROM = 20_000
# From so many on where they are half of the index or more, which then is as little to open.
STAGE_HALF_FROM = 2_000
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
        """Whether memories go into the index, for an import that will have so many new ones from here on."""
        if self._pool is None and not self._refused and _is_worth_it(expected):
            stage = self._stack.enter_context(import_stage.open_stage(self._batch_id))
            self._refused = stage is None
            if stage is not None:
                # Never a fork: the database connection and its threads are this process's own.
                context = multiprocessing.get_context("spawn")
                self._pool = ProcessPoolExecutor(1, context, initializer=import_process.begin, initargs=(stage,))
                # The process starts with the first that it is asked for.
                self._pool.submit(import_process.add, [], [])
        return self._pool is not None

    def submit(self, ids: list[int], texts: list[MemoryText]) -> "Future[list[str]]":
        """The terms of memories that are to be stored, made and put into the index."""
        if self._pool is None:
            raise RuntimeError("there is no stage")
        return self._pool.submit(import_process.add, ids, texts)

    def confirm(self, block: InsertBlock) -> None:
        """Say that a block, of memories that were submitted, is stored."""
        if self._pool is None:
            return
        stored = load_stored([image.id for image in block.images], store.SCHEMA)
        lines = [_line(*one) for one in zip(block.images, block.columns, stored, strict=True)]
        self._pool.submit(import_process.confirm, lines)
        crash_points.reached("block stored")

    def end(self) -> None:
        """Say that nothing more comes."""
        if self._pool is not None:
            self._ended = self._pool.submit(import_process.finish)

    def finish(self) -> None:
        """Wait until all of it is on the disk."""
        if self._ended is not None:
            self._ended.result()
            self.close()
            crash_points.reached("stage written")

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def _is_worth_it(expected: float) -> bool:
    return expected >= STAGE_FROM or (expected >= STAGE_HALF_FROM and expected >= import_stage.memories())


def _line(image: MemorySnapshot, columns: dict[str, list[int]], stored: StoredRow) -> tuple[Any, ...]:
    """In the order of `IndexRow`."""
    created = (image.created_at - _EPOCH) // _MICROSECOND
    # Most were never changed.
    updated = created if image.updated_at is image.created_at else (image.updated_at - _EPOCH) // _MICROSECOND
    return (
        image.id,
        (image.project_id, image.memory_type, image.agent, image.source, stored.state),
        (
            columns["category_path_ids"],
            columns["category_ids"],
            image.tags,
            columns["concept_ids"],
            columns["entity_ids"],
            image.authors,
        ),
        created,
        updated,
        stored.title,
        stored.digest,
    )
