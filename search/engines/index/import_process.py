"""The process next to an import that makes terms, and writes the import into the search index.

No module with models is imported before Django is set up here. On failure the index is given up with a log message: the
import goes on, and its memories are indexed afterwards.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memories.importers.analysers import live_and_die_with_parent
from memories.terms import MemoryText, memory_placed

if TYPE_CHECKING:
    from search.engines.index.import_stage import StageWriter

logger = logging.getLogger(__name__)

_writer: "StageWriter | None" = None


def begin(stage: Path) -> None:
    live_and_die_with_parent()
    global _writer
    try:
        import django

        django.setup()
        from search.engines.index.import_stage import StageWriter

        _writer = StageWriter(stage)
    except Exception:
        _give_up()


def _give_up() -> None:
    global _writer
    logger.exception("The import goes on without the search index; its memories are taken in afterwards.")
    _writer = None


def add(ids: Sequence[int], texts: Sequence[MemoryText]) -> list[str]:
    """Return the terms of memories that are about to be stored, as their column has them."""
    terms = [memory_placed(text) for text in texts]
    if _writer is not None:
        try:
            _writer.add(ids, terms)
        except Exception:
            _give_up()
    return [one.vector for one in terms]


def confirm(lines: Sequence[tuple[Any, ...]]) -> None:
    """Confirm that memories are stored: the fields of each IndexRow, in the order in which their terms were added."""
    if _writer is not None:
        from search.engines.index.segments import IndexRow

        try:
            _writer.confirm(IndexRow(*line) for line in lines)
        except Exception:
            _give_up()


def finish() -> None:
    """Finish after the last memory."""
    if _writer is not None:
        try:
            _writer.finish()
        except Exception:
            _give_up()
