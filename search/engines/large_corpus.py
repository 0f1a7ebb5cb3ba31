"""The size from which SQL does not read all memories again after every change."""

LARGE = 1_000_000


def is_large(memories: int) -> bool:
    """Whether numbers of this many memories may be older than the latest change."""
    return memories > LARGE
