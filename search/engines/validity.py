"""When a memory was valid, as SQL over the table `m`: from `SINCE` to before `UNTIL`, which is null while it still is.

A memory that is neither active nor proposed was valid until the one that superseded it was created or, without one,
until its own last change.
"""

SINCE = "coalesce(m.valid_from, m.created_at)"
# The successor is found by its primary key.
_SUCCEEDED = "(SELECT s.created_at FROM memories_memory s WHERE s.id = m.superseded_by_id)"
_RETIRED = f"CASE WHEN m.state NOT IN ('active', 'proposed') THEN coalesce({_SUCCEEDED}, m.updated_at) END"
UNTIL = f"least(m.valid_to, {_RETIRED})"

# Shards do not see each other's memories: there the successors are read first, those that were created by then and
# those that were not.
_SUCCESSORS = """(SELECT s.id FROM memories_memory s WHERE s.created_at {comparison} {then} AND s.id IN (
  SELECT superseded.superseded_by_id FROM memories_memory superseded WHERE superseded.superseded_by_id IS NOT NULL))"""


def valid_at(then: str, *, distributed: bool) -> str:
    """The condition that a memory was valid at a moment, given as a bound parameter."""
    if not distributed:
        return f"{SINCE} < {then} AND ({UNTIL} >= {then}) IS NOT FALSE"
    later = _SUCCESSORS.format(comparison=">=", then=then)
    earlier = _SUCCESSORS.format(comparison="<", then=then)
    return (
        f"{SINCE} < {then} AND (m.valid_to >= {then}) IS NOT FALSE AND (m.state IN ('active', 'proposed')"
        f" OR (m.superseded_by_id IN {later}) IS TRUE"
        f" OR (m.updated_at >= {then} AND (m.superseded_by_id IN {earlier}) IS NOT TRUE))"
    )
