"""Memories from an export by this program: they keep their numbers, reasons, makers of links and original records."""

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

from django.db import connection

from categories.paths import slug_of
from categories.services import Vocabulary
from memories.models import Memory
from memories.snapshot import MemorySnapshot, Ref
from memories.storage import memory_ids_draw
from transfer.formats.note_files import note_file_in, with_note_file

Stored = Mapping[str, Any]


class CopyNumbers:
    """The numbers of memories that are copies. They are kept if there were no memories before this import."""

    def __init__(self) -> None:
        self._are_kept: bool | None = None
        self._last = 0
        # The numbers of copies in their export, each followed by its memory here: 16 bytes for each copy.
        self._pairs = array("q")

    def settle(self, new: Sequence[Stored | None]) -> list[int]:
        """The ids of new memories."""
        wanted = [stored.get("number") if stored is not None else None for stored in new]
        if self._are_kept is None and any(wanted):
            self._are_kept = not Memory.objects.exists()
        numbers: list[int | None] = [None] * len(new)
        if self._are_kept:
            # An export has them in ascending order. Another order, or one twice, gives new numbers.
            for at, number in enumerate(wanted):
                if _is_number(number) and number > self._last:
                    numbers[at] = self._last = number
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT setval('memory_id_seq', greatest(nextval('memory_id_seq'), %s))", [max(self._last, 1)]
                )
        missing = numbers.count(None)
        drawn = memory_ids_draw(missing) if missing else []
        self._last = max(self._last, *drawn, 0)
        new_numbers = iter(drawn)
        return [number or next(new_numbers) for number in numbers]

    def remember(self, stored: Stored | None, memory_id: int) -> None:
        """Remember which memory a copy is, for what names it by the number that it has in its export."""
        if stored is not None and _is_number(number := stored.get("number")):
            self._pairs.extend((number, memory_id))

    def memories(self, numbers: Collection[int]) -> dict[int, int]:
        """The memories that are copies, by their numbers in the export."""
        pairs = zip(self._pairs[::2], self._pairs[1::2], strict=True)
        return {number: memory_id for number, memory_id in pairs if number in numbers}

    def __bool__(self) -> bool:
        return bool(self._pairs)


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**62


def copied(snapshot: MemorySnapshot, stored: Stored, vocabulary: Vocabulary) -> MemorySnapshot:
    """A memory with what its export has besides the record. Links by number are left out if its number has changed."""
    links, successor = snapshot.links, stored.get("superseded_by")
    if stored.get("number") != snapshot.id:
        links, successor = tuple(link for link in links if not link.target.startswith("#")), None
    made_by = stored.get("made_by") or {}
    paths, unknown = vocabulary.categories, (0,)
    categories = [(paths.get(slug_of(name), unknown)[-1], *ref) for name, *ref in made_by.get("categories", ())]
    concepts = [(vocabulary.concepts.get(name, 0), *ref) for name, *ref in made_by.get("concepts", ())]
    entities = [(vocabulary.entities.get((kind, name), 0), *ref) for (kind, name), *ref in made_by.get("entities", ())]
    made = replace(
        snapshot,
        categories=_made(snapshot.categories, categories),
        concepts=_made(snapshot.concepts, concepts),
        entities=_made(snapshot.entities, entities),
        links=links,
        superseded_by_id=successor if _is_number(successor) else None,
        state_reason=str(stored.get("state_reason") or ""),
        record_hash=str(stored.get("record_hash") or "")[:32],
        raw=snapshot.raw if stored.get("raw") is not None else None,
    )
    file = note_file_in(stored.get("raw"))
    return with_note_file(made, file, edited=_field_names(stored.get("edited"))) if file else made


def _field_names(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _made(refs: Sequence[Ref], makers: Sequence[tuple[Any, ...]]) -> tuple[Ref, ...]:
    known = {target_id: Ref(target_id, maker, weight) for target_id, maker, weight in makers}
    return tuple(known.get(ref.id, ref) for ref in refs)
