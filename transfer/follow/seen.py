"""The records of a followed source as they were last seen: a hash of each, by a hash of its location."""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from django.db import connection
from numpy.typing import NDArray

from memories.models import FollowedRecord
from memories.vocabulary_records import is_vocabulary
from transfer.formats.base import RefusedRecord, SourceRecord

Numbers = NDArray[np.int64]
# Location, hash of the record, and its memory: 0 for vocabulary, None for what could not be taken.
Row = tuple[int, int, int | None]

_FETCHED = 20_000
_ENCODE = json.JSONEncoder(ensure_ascii=False, default=str).encode


def hashed(text: str) -> int:
    """A number for a text; never 0, which stands for a record that is gone."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True) or 1


def key_of(found: SourceRecord | RefusedRecord) -> int:
    """The hash of where a record is. A session that is in several projects has a record for each."""
    if isinstance(found, SourceRecord) and is_vocabulary(found.data):
        return hashed(f"{found.location}\0{found.data.get('project')}")
    return hashed(found.location)


def stamp_of(found: SourceRecord | RefusedRecord) -> int:
    """The hash of a record, without what is no change of it."""
    if isinstance(found, RefusedRecord):
        return hashed(found.reason)
    lasting = [{name: value for name, value in found.data.items() if name not in found.volatile}]
    if found.raw is not None:
        lasting.append({name: value for name, value in found.raw.items() if name not in found.volatile_raw})
    try:
        return hashed(_ENCODE(lasting))
    except (ValueError, RecursionError):
        # It is refused, and read again when it can be stored.
        return hashed(f"cannot be stored\0{found.location}")


@dataclass(frozen=True, slots=True)
class Seen:
    """The records of a source, in the order of the hashes of their locations. Memory 0 stands for none."""

    keys: Numbers
    stamps: Numbers
    memories: Numbers

    def __len__(self) -> int:
        return len(self.keys)

    def stamps_of(self, keys: Numbers) -> Numbers:
        """The hashes of records by location; 0 for those that are unknown or gone."""
        if not len(self.keys):
            return np.zeros(len(keys), np.int64)
        places = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        return np.where(self.keys[places] == keys, self.stamps[places], 0)

    def at(self, key: int) -> tuple[int, int]:
        """The hash of the record at a location, and its memory; 0 for what is unknown."""
        place = int(np.searchsorted(self.keys, key))
        if place == len(self.keys) or self.keys[place] != key:
            return 0, 0
        return int(self.stamps[place]), int(self.memories[place])

    def missing(self, present: Sequence[Numbers]) -> Numbers:
        """The locations that had a record, and are not among the present ones."""
        had = self.keys[self.stamps != 0]
        gone: Numbers = had[~np.isin(had, np.concatenate(present))] if present else had
        return gone


def seen_read(source_id: int) -> Seen:
    """Everything seen of a source, with 24 bytes in memory for each record."""
    blocks: list[Numbers] = []
    with connection.chunked_cursor() as cursor:
        cursor.execute(
            "SELECT key, stamp, coalesce(memory_id, 0) FROM memories_followedrecord WHERE source_id = %s ORDER BY key",
            [source_id],
        )
        while rows := cursor.fetchmany(_FETCHED):
            blocks.append(np.array(rows, np.int64))
    table = np.concatenate(blocks) if blocks else np.zeros((0, 3), np.int64)
    return Seen(*(np.ascontiguousarray(table[:, column]) for column in range(3)))


def seen_write(source_id: int, rows: Iterable[Row]) -> None:
    """Store what was seen. A record that can no longer be taken keeps its memory."""
    by_key = {key: (stamp, memory_id) for key, stamp, memory_id in rows}
    if not by_key:
        return
    columns: list[list[Any]] = [
        list(by_key),
        [stamp for stamp, _ in by_key.values()],
        [memory_id for _, memory_id in by_key.values()],
    ]
    with connection.cursor() as cursor:
        # The primary key.
        cursor.execute(
            "INSERT INTO memories_followedrecord AS seen (source_id, key, stamp, memory_id)"
            " SELECT %s, * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[])"
            " ON CONFLICT (source_id, key) DO UPDATE SET stamp = excluded.stamp,"
            " memory_id = coalesce(excluded.memory_id, seen.memory_id)",
            [source_id, *columns],
        )


def seen_gone(source_id: int, keys: Numbers, others: Collection[int] = ()) -> list[int]:
    """Mark records as gone. Returns their memories, and of others, those that no record of the source has now."""
    with connection.cursor() as cursor:
        # The primary key, then followedrecord_memory_idx.
        cursor.execute(
            "UPDATE memories_followedrecord SET stamp = 0 WHERE source_id = %s AND key = ANY(%s) RETURNING memory_id",
            [source_id, keys.tolist()],
        )
        ids = sorted({memory_id for (memory_id,) in cursor.fetchall() if memory_id}.union(others))
        cursor.execute(
            "SELECT memory_id FROM memories_followedrecord WHERE source_id = %s AND memory_id = ANY(%s) AND stamp <> 0",
            [source_id, ids],
        )
        return sorted(set(ids) - {memory_id for (memory_id,) in cursor.fetchall()})


def seen_memories(source_id: int, keys: Numbers) -> list[int]:
    """The memories of records."""
    rows = FollowedRecord.objects.filter(source_id=source_id, key__in=keys.tolist(), memory_id__isnull=False)
    return [memory_id for memory_id in rows.values_list("memory_id", flat=True) if memory_id]


def seen_forget(source_id: int, keys: Numbers | None = None) -> None:
    """Forget records, or all of a source."""
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM memories_followedrecord WHERE source_id = %s AND (%s OR key = ANY(%s))",
            [source_id, keys is None, [] if keys is None else keys.tolist()],
        )


def seen_count(source_id: int) -> tuple[int, int]:
    """The numbers of memories of a source, and of its records that could not be taken."""
    with connection.cursor() as cursor:
        # An index-only scan of followedrecord_memory_idx.
        cursor.execute(
            "SELECT count(DISTINCT memory_id) FILTER (WHERE memory_id > 0), count(*) FILTER (WHERE memory_id IS NULL)"
            " FROM memories_followedrecord WHERE source_id = %s AND stamp <> 0",
            [source_id],
        )
        memories, refused = cursor.fetchone()
        return memories, refused
