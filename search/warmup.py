"""Warms up caches when a process starts, so that its first requests are fast."""

import logging
import threading

from django.conf import settings
from django.db import connection

from access.viewer import command_viewer
from search.baseline_counts import corpus_counts
from search.engines import select_engine

logger = logging.getLogger(__name__)


def warm() -> None:
    """Warm up the engine and count the whole corpus; nothing if the configured engine is not ready."""
    viewer = command_viewer()
    engine = select_engine(viewer, wait_for_index=False)
    if engine.name != settings.SEARCH_ENGINE:
        return
    engine.warm_up()
    corpus_counts(engine, viewer)


def warm_in_background() -> None:
    """Run `warm` in a thread; failures are logged."""
    threading.Thread(target=_warm, name="warming", daemon=True).start()


def _warm() -> None:
    try:
        warm()
    except Exception:  # requests work without warm caches
        logger.exception("The first answers will take longer: what they need could not be made ready.")
    finally:
        connection.close()
