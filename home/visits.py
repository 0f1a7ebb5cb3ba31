"""When a person has last looked at the home page."""

from datetime import datetime, timedelta

from home.models import Visit

# Looks within this time of the last one belong to the same visit.
_ONE_VISIT = timedelta(minutes=30)
# A look is recorded at most this often.
_STAMP_EVERY = timedelta(minutes=1)


def visit_record(*, user_id: int, now: datetime) -> datetime | None:
    """Record a look at the home page. Returns the end of the visit before this one; None for the first."""
    visit, is_new = Visit.objects.get_or_create(user_id=user_id, defaults={"last_at": now})
    if is_new:
        return None
    pause = now - visit.last_at
    if pause > _STAMP_EVERY:
        if pause > _ONE_VISIT:
            visit.before_at = visit.last_at
        visit.last_at = now
        visit.save(update_fields=["last_at", "before_at"])
    return visit.before_at
