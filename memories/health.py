"""Whether the site is well: does the database answer, and how far along is the work behind it."""

from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLate
from dataclasses import dataclass

import psycopg
from django.db import Error, connection

from access.viewer import Viewer, visible_to
from memories.models import Corpus
from memories.vectors import pending_count

# Whoever asks about health wants an answer now; waiting for a free connection may take far longer.
DEADLINE = 1.0

# One thread: however many ask while the database hangs, one waits for it and the others stop waiting at their deadline.
_probes = ThreadPoolExecutor(max_workers=1, thread_name_prefix="health")


@dataclass(frozen=True, slots=True)
class CorpusState:
    """What a viewer's part of the corpus looks like."""

    memories: int
    # None where not every project may be seen: how much goes on in the others is nobody's business.
    revision: int | None
    pending_embeddings: int


def database_answers(within: float = DEADLINE) -> bool:
    """Whether the database answers a statement before the deadline, in seconds."""
    probe = _probes.submit(_ask_database)
    try:
        probe.result(within)
    except (Error, psycopg.Error, TooLate):
        # One that has not begun need not begin.
        probe.cancel()
        return False
    return True


def corpus_state(viewer: Viewer) -> CorpusState:
    """The counts, of what this viewer may see."""
    memories = visible_to(viewer)
    return CorpusState(
        memories=memories.count(),
        revision=None
        if viewer.project_ids is not None
        else Corpus.objects.values_list("revision", flat=True).get(pk=1),
        pending_embeddings=pending_count(viewer.project_ids),
    )


def _ask_database() -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    finally:
        # The thread lives on; its connection goes back to the pool.
        connection.close()
