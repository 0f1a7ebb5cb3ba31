"""What took the place of terms that were merged away, for what still names them, such as the events of an import."""

from collections.abc import Iterable

from django.apps import apps

from categories.models import Curation


def ids_now(kind: str, ids: Iterable[int]) -> dict[int, int]:
    """For each id its own where the term is there, else that of the one it was merged into; 0 where neither is."""
    wanted = set(ids)
    if not wanted:
        return {}
    model = apps.get_model("categories", kind)
    there = set(model._default_manager.filter(pk__in=wanted).values_list("pk", flat=True))
    if wanted <= there:
        return {one: one for one in wanted}
    taken: dict[int, int] = {}
    for merged in Curation.objects.filter(kind=kind, verb="merge", undone_at=None).values_list("merged", flat=True):
        taken.update({int(gone): kept for gone, kept in merged.items()})
    found = {}
    for one in wanted:
        now = one
        while now in taken and now not in there:
            now = taken[now]
        found[one] = now
    alive = set(model._default_manager.filter(pk__in=found.values()).values_list("pk", flat=True))
    return {one: now if now in alive else 0 for one, now in found.items()}
