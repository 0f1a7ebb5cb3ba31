"""What the first visitor of a process would wait for, made ready when it begins to serve."""

import logging
import threading

from django.conf import settings
from django.db import connection

from access.viewer import command_viewer
from search.baseline_counts import corpus_counts
from search.engines import select_engine

logger = logging.getLogger(__name__)


def warm() -> None:
    """Count the whole corpus, and have ready what large sets are counted by. Nothing, where the index cannot answer."""
    viewer = command_viewer()
    engine = select_engine(viewer, wait_for_index=False)
    if engine.name != settings.SEARCH_ENGINE:
        return
    engine.warm_up()
    corpus_counts(engine, viewer)


def warm_in_background() -> None:
    """Begin to; what fails is left to the first visitor."""
    threading.Thread(target=_warm, name="warming", daemon=True).start()


def _warm() -> None:
    try:
        warm()
    except Exception:  # whatever it is: every answer makes for itself what it needs
        logger.exception("The first requests will be slower: the warm-up failed.")
    finally:
        connection.close()
