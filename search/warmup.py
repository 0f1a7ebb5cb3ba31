"""Prepares what the first visitor of a process would wait for."""

import logging
import threading

from django.conf import settings
from django.db import connection

from access.viewer import command_viewer
from categories.names import data_revision
from memories.embedding.vectors import memory_progress
from search.baseline_counts import corpus_counts
from search.engines import select_engine
from search.engines.index.engine import IndexEngine
from search.query import SearchQuery
from search.run import run
from text.secrets import prepare_scanner

logger = logging.getLogger(__name__)


def warm() -> None:
    """Count the whole corpus and prepare the bitmaps for large sets, if the configured engine can answer."""
    viewer = command_viewer()
    engine = select_engine(viewer, wait_for_index=False)
    if engine.name != settings.SEARCH_ENGINE:
        return
    if isinstance(engine, IndexEngine):
        engine.warm_up()
    corpus_counts(engine, viewer)
    memory_progress(data_revision())


def answer_once() -> None:
    """Answer the first page once, which loads its code and data; Postgres answers if the index cannot."""
    run(SearchQuery(include_facets=True), command_viewer())


def warm_in_background() -> None:
    """Warm up in a thread. Failures are logged and left to the first request."""
    threading.Thread(target=_warm, name="warming", daemon=True).start()


def _warm() -> None:
    try:
        warm()
    except Exception:  # requests work without warm caches
        logger.exception("The first requests will be slower: the warm-up failed.")
    finally:
        if settings.SECRETS != "off":
            prepare_scanner()
        connection.close()
