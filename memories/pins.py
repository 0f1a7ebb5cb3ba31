"""For whom a pin counts: an agent's for that agent alone, those of people and of keys that may curate for all."""

from collections.abc import Collection
from typing import Any

from django.db.models import Case, Exists, IntegerField, OuterRef, Q, QuerySet, Subquery, Value, When

from access.models import ApiKey, AuditEvent
from access.viewer import Viewer, viewer_of_user
from memories.models import Memory

_MACHINES = (AuditEvent.Door.API, AuditEvent.Door.MCP)
# Stands for a key that was deleted: its pins count for nobody.
_LOST_KEY = -1


def with_pinner(memories: QuerySet[Memory]) -> QuerySet[Any]:
    """The memories, each with `pinner`: the key that pinned it last, None where a person or a command did.

    For each that is pinned it reads auditevent_subject_idx.
    """
    of_key = Case(
        When(api_key__isnull=False, then="api_key_id"),
        When(user__isnull=True, door__in=_MACHINES, then=Value(_LOST_KEY)),
        output_field=IntegerField(),
    )
    own = AuditEvent.objects.filter(subject_type="memory", subject_id=OuterRef("pk"), after__has_key="pinned")
    arrival = AuditEvent.objects.filter(subject_type="importbatch", subject_id=OuterRef("batch_id"), verb="import")
    pinner = Case(
        When(pinned=False, then=None),
        When(Exists(own), then=Subquery(own.order_by("-id").annotate(key=of_key).values("key")[:1])),
        default=Subquery(arrival.order_by("-id").annotate(key=of_key).values("key")[:1]),
        output_field=IntegerField(),
    )
    return memories.annotate(pinner=pinner)


def counting_pins(viewer: Viewer) -> Q:
    """The pins that count for a viewer, among memories with their `pinner`."""
    keys = ApiKey.objects.select_related("acts_for")
    own = next((key for key in keys if key.pk == viewer.api_key_id), None)
    counting = [key.pk for key in keys if (own and _is_same_agent(key, own)) or _may_curate(key)]
    return Q(pinned=True) & (Q(pinner__isnull=True) | Q(pinner__in=counting))


def agents_pinned_for(memory_ids: Collection[int]) -> dict[int, str]:
    """The agents for which alone some pinned memories are pinned, by the memory."""
    pinned = with_pinner(Memory.objects.filter(pk__in=memory_ids, pinned=True)).filter(pinner__isnull=False)
    rows = dict(pinned.values_list("pk", "pinner"))
    keys = ApiKey.objects.in_bulk(set(rows.values()) - {_LOST_KEY}) if rows else {}
    limited = {pk: key.name for pk, key in keys.items() if not _may_curate(key)}
    names = {**limited, _LOST_KEY: "a deleted key"}
    return {memory: names[key] for memory, key in rows.items() if key in names}


def _is_same_agent(key: ApiKey, own: ApiKey) -> bool:
    """Whether one of the keys is the other, or came in its place: by the same person, under the same name.

    Many people call a key after the program that has it.
    """
    return all(getattr(key, name) == getattr(own, name) for name in ("name", "acts_for_id", "created_by_id"))


def _may_curate(key: ApiKey) -> bool:
    """Whether a key may curate; that of an app may no more than its person."""
    return "curate" in key.scopes and (key.acts_for is None or "curate" in viewer_of_user(key.acts_for).scopes)
