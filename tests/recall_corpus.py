"""Recalls of the memories that a test has stored."""

from datetime import UTC, datetime

from memories.models import Memory
from memories.recalls import RecallLog

# When memories are recalled.
SPRING, SUMMER = datetime(2025, 4, 1, 12, tzinfo=UTC), datetime(2025, 8, 1, 12, tzinfo=UTC)


def recall_some():
    """Recall every third memory in spring, and the ones after those up to five times until summer."""
    recalls = RecallLog()
    for n, memory_id in enumerate(Memory.objects.order_by("id").values_list("id", flat=True)):
        if n % 3 < 2:
            recalls.add([memory_id], by_agent=True, at=SPRING)
        for _ in range(1 + n % 4 if n % 3 == 1 else 0):
            recalls.add([memory_id], by_agent=False, at=SUMMER)
    recalls.store()
