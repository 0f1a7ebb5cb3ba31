"""What of the memories is embedded, and what waits: the tables of vectors, read and written.

Nothing is queued. A memory waits for a model while the hash of its text is not the one that the model embedded last;
both are read side by side from two narrow indexes, memory_text_idx and embeddedmemory_hash_idx.
"""

from collections.abc import Collection

from django.db import connection

from memories.models import EmbeddingModel

# No model has this id: everything waits for it.
NO_MODEL = 0

_WAITING = (
    "FROM memories_memory memory LEFT JOIN memories_embeddedmemory embedded"
    " ON embedded.memory_id = memory.id AND embedded.model_id = %s"
    " WHERE embedded.content_hash IS DISTINCT FROM memory.content_hash"
)


def serving_id() -> int:
    """The id of the model that serves, or NO_MODEL."""
    serving = EmbeddingModel.objects.filter(state=EmbeddingModel.State.SERVING)
    return serving.values_list("id", flat=True).first() or NO_MODEL


def pending_count(project_ids: Collection[int] | None = None) -> int:
    """How many memories of these projects cannot be found by meaning as they are now."""
    condition, values = ("", []) if project_ids is None else (" AND memory.project_id = ANY(%s)", [list(project_ids)])
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) {_WAITING}{condition}", [serving_id(), *values])
        return int(cursor.fetchone()[0])
