"""The files of the derived index, and how its readers and its only writer agree on them.

    lock                         held by the process that writes
    current                      the name of the generation to read
    damaged                      a reader's report of damage; the writer builds a new generation
    g-000001-0123abcd/           a generation: columns as segments (see `search.engines.segment_files`)
    g-000001-0123abcd/words/     tantivy

The manifest also names the tantivy commit. `current` is replaced atomically.
"""

import contextlib
import fcntl
import json
import secrets
import shutil
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO, ClassVar

import numpy as np
import psycopg
import tantivy
from django.conf import settings
from django.db import (
    DEFAULT_DB_ALIAS,
    DatabaseError,
    InterfaceError,
    OperationalError,
    connection,
    connections,
    transaction,
)
from psycopg.errors import LockNotAvailable

from search.engines import segment_files
from search.engines.base import EngineQuery, Ids, Value
from search.engines.index import outbox, words
from search.engines.index.segments import COLUMNS, Dictionary, Segment
from search.engines.segment_files import (
    Array,
    DamagedError,
    Mask,
    NotReadableError,
    SnapshotReader,
    arrays_verify,
    replace_file,
)
from search.facets import FACET, FacetKind
from text.analysis import VERSION

# Increased whenever files of an older format cannot be read, or would mean something else.
_FORMAT = 6
# The version of the index. It covers the columns and the analysis: a new facet or other terms lead to a new index.
SCHEMA = zlib.crc32(f"{_FORMAT} {VERSION} {' '.join(COLUMNS)}".encode())


class WriterElsewhereError(Exception):
    """Another process writes the index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest(segment_files.Manifest):
    """The segments and the tantivy commit that belong together; `commit` is its operation stamp."""

    VERSION: ClassVar[int] = SCHEMA

    commit: int = 0
    memories: int = 0
    unindexable: tuple[int, ...] = ()
    """The memories that cannot be indexed."""


def index_dir() -> Path:
    return Path(settings.SEARCH_INDEX)


def current_generation() -> Path:
    """The generation to read. Raises NotReadableError or DamagedError."""
    root = index_dir()
    try:
        name = (root / "current").read_bytes().decode(errors="replace").strip()
    except OSError:
        raise NotReadableError("there is none yet") from None
    if not name.startswith("g-") or not (root / name).is_dir():
        raise DamagedError("its files are gone")
    return root / name


def read_manifest(generation: Path) -> Manifest:
    """Raise NotReadableError if the manifest is of another version, DamagedError if it cannot be read."""
    return segment_files.read_manifest(generation, Manifest)


@dataclass(slots=True)
class View:
    """An immutable view of the index at one moment, as one process reads it."""

    generation: Path
    manifest: Manifest
    segments: tuple[Segment, ...]
    live: Mask
    dictionary: Dictionary
    """Shared with newer views, which only add to it."""
    sizes: dict[str, int]
    """The number of codes in each column of this view."""
    index: tantivy.Index
    searcher: tantivy.Searcher
    cache: dict[str, object] = field(default_factory=dict)
    """Derived values that stay true for this view."""

    @property
    def revision(self) -> str:
        return f"{self.generation.name}/{self.manifest.number}"


def _open_newer(known: View | None) -> View:
    generation = current_generation()
    if _damage()[0] == generation.name:
        raise NotReadableError("it is damaged and being rebuilt")
    if known is not None and known.generation != generation:
        known = None
    try:
        return _open_view(generation, known)
    except CommitPendingError:
        # The writer is between the commit and the manifest: the previous view is complete, and hardly older.
        if known is None:
            raise
        return known


class CommitPendingError(NotReadableError):
    """The tantivy commit is newer than the manifest: the writer is about to write the manifest, or was killed before
    it.
    """


def _stamp() -> tuple[object, ...]:
    """Changes whenever there is something new to read."""
    try:
        current = (index_dir() / "current").stat()
        found = (current_generation() / "manifest").stat()
    except (OSError, NotReadableError, DamagedError):
        return ()
    try:
        damaged = (index_dir() / "damaged").stat().st_mtime_ns
    except OSError:
        damaged = 0
    return (current.st_ino, current.st_mtime_ns, found.st_ino, found.st_mtime_ns, damaged)


def _open_view(generation: Path, known: View | None) -> View:
    manifest = read_manifest(generation)
    opened = known.segments if known else ()
    segments, live = segment_files.open_segments(generation, manifest, Segment.read, opened)
    dictionary = known.dictionary if known else Dictionary()
    for segment in segments:
        dictionary.extend(segment.values, segment.values_first)
    try:
        index = known.index if known else words.open_index(generation / "words")
        with words.panics_as_errors():
            index.reload()
            searcher = index.searcher()
        if words_commit(generation) != manifest.commit:
            raise CommitPendingError("it is being written")
    except (ValueError, KeyError, OSError) as error:
        raise DamagedError(f"the words: {error}") from error
    return View(generation, manifest, tuple(segments), live, dictionary, dictionary.sizes(), index, searcher)


def words_commit(generation: Path) -> int:
    """The operation stamp of the commit on disk."""
    stored = json.loads((generation / "words" / "meta.json").read_text())
    return int(stored["opstamp"])


_reader = SnapshotReader(_stamp, _open_newer)
# Revisions of views whose files have been verified.
_verified: set[str] = set()


def verify(view: View, *, again: bool = False) -> str:
    """Read all files of a view, once unless `again`, and return what is wrong with them; "" if nothing is."""
    if view.revision in _verified and not again:
        return ""
    try:
        for name in view.manifest.segments:
            arrays_verify(view.generation / name)
        if damaged := words.damaged_files(view.generation / "words"):
            return damaged[0]
    except (DamagedError, OSError, ValueError, KeyError) as error:
        return str(error)
    _verified.add(view.revision)
    return ""


def read_view() -> View:
    """The current view. Raises NotReadableError or DamagedError."""
    return _reader.read()


def is_newest(view: View) -> bool:
    """Whether this view is of the manifest on disk. While the writer is about to replace it, `read_view` may return an
    older view.
    """
    return _reader.is_newest(view)


def close_view() -> None:
    _reader.clear()


def report_damage(reason: str, generation: Path | None = None) -> None:
    """Report damage of a generation, by default the current one, to the writer, and stop reading that generation."""
    close_view()
    try:
        name = (generation or current_generation()).name
    except (NotReadableError, DamagedError):
        # Nothing can be read at all.
        name = ""
    with contextlib.suppress(OSError):
        replace_file(index_dir() / "damaged", f"{name}\n{reason}")


def request_rebuild(reason: str) -> None:
    """Ask the writer for a new generation; the current one answers meanwhile."""
    replace_file(index_dir() / "damaged", f"\n{reason}")


def rebuild_reason() -> str:
    """Why a new generation is wanted, or ""; reports about a generation that is gone do not count."""
    name, reason = _damage()
    try:
        return reason if not name or name == current_generation().name else ""
    except (NotReadableError, DamagedError):
        return reason


def _damage() -> tuple[str, str]:
    try:
        name, _, reason = (index_dir() / "damaged").read_text().partition("\n")
    except (OSError, UnicodeDecodeError):
        return "", ""
    return name, reason or "it is damaged"


def belongs_to_database(generation: Path, manifest: Manifest, following: outbox.FollowState | None = None) -> bool:
    """Whether this database records its changes for this generation. A generation with a later revision does not belong
    to it: the database has been restored to an earlier state.
    """
    following = following or outbox.follow_state()
    return following.indexed and following.generation == generation.name and manifest.revision <= following.revision


@contextlib.contextmanager
def writer_lock() -> Iterator[Path]:
    """Hold the lock of the only writer. Raise WriterElsewhereError. A killed process releases it at once."""
    root = index_dir()
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("a+") as handle:
        _lock_exclusively(handle)
        yield root


def _lock_exclusively(handle: IO[str]) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise WriterElsewhereError("another process writes the index") from None


def next_generation(root: Path) -> Path:
    """A new path that has never been used: readers cache by the name of a generation."""
    numbers = [int(path.name[2:8]) for path in root.glob("g-*") if path.name[2:8].isdigit()]
    return root / f"g-{max(numbers, default=0) + 1:06d}-{secrets.token_hex(4)}"


def remove_others(root: Path, kept: Path) -> None:
    """Remove all generations but one, and what imports of earlier versions wrote. Readers keep their open files."""
    for path in (*root.glob("g-*"), *root.glob("import-*")):
        if path != kept:
            shutil.rmtree(path, ignore_errors=True)


def values_at(view: View, name: str, docs: Array) -> Array:
    """The values of a column at docs, read segment by segment: a concatenated column would double the memory."""
    if len(view.segments) == 1:
        only: Array = view.segments[0].arrays[name].take(docs)
        return only
    if not len(docs):
        return np.empty(0, np.int64)
    if bool(np.all(docs[1:] >= docs[:-1])):
        return np.concatenate([segment.arrays[name].take(rows) for segment, rows in by_segment(view, docs)])
    order = np.argsort(docs)
    found = np.empty_like(sorted_values := values_at(view, name, docs[order]))
    found[order] = sorted_values
    return found


def ids_at(view: View, docs: Array) -> list[int]:
    found: list[int] = values_at(view, "id", docs).tolist()
    return found


def docs_of(view: View, ids: Ids) -> Array:
    """The docs of memories; -1 for those that have none."""
    found = np.full(len(ids), -1, np.int64)
    for n, segment in enumerate(view.segments):
        column = segment.arrays["id"]
        if not len(column):
            continue
        # Segments are written ordered by id; if one is not, its order is computed once.
        key = f"order of ids in segment {n}"
        if key not in view.cache:
            view.cache[key] = None if bool(np.all(column[1:] > column[:-1])) else np.argsort(column, kind="stable")
        order: Array | None = view.cache[key]  # type: ignore[assignment]
        # Earlier docs of a changed memory are deleted; a merged segment may hold several of them.
        at = np.maximum(np.searchsorted(column, ids, side="right", sorter=order) - 1, 0)
        at = at if order is None else order[at]
        docs = segment.first + at
        here = (column[at] == ids) & view.live[docs]
        found[here] = docs[here]
    return found


def by_segment(view: View, docs: Array) -> Iterator[tuple[Segment, Array]]:
    """Yield the segments that contain the docs, given in ascending order, each with its rows."""
    if len(view.segments) == 1:
        if len(docs):
            yield view.segments[0], docs - view.segments[0].first
        return
    cuts = np.searchsorted(docs, [segment.first for segment in view.segments] + [view.manifest.size])
    for segment, low, high in zip(view.segments, cuts, cuts[1:], strict=False):
        if high > low:
            yield segment, docs[low:high] - segment.first


def codes_of(view: View, column: str, values: Iterable[Value]) -> list[int]:
    known, length = view.dictionary.codes[column], view.sizes[column]
    return [code for value in values if value != "" and 0 < (code := known.get(value, 0)) < length]


@lru_cache(maxsize=64)
def _column_name(key: str, subcategories: bool) -> str:
    return "category_own" if FACET[key].kind == FacetKind.TREE and not subcategories else key


def column_of(key: str, plan: EngineQuery) -> str:
    """The column of a facet. Without subcategories a selected category means itself alone, and so must its count."""
    return _column_name(key, plan.subcategories)


# The key of the advisory lock: an outbox has one reader.
FOLLOW_LOCK = 0x6D6E656D78

# The server may take a moment to notice that a process with the lock was killed.
FOLLOW_LOCK_TIMEOUT = "5s"


@contextmanager
def read_snapshot() -> Iterator[None]:
    """Read everything inside from one snapshot. Within an outer transaction, use the snapshot of that one."""
    outermost = not connection.in_atomic_block
    with transaction.atomic():
        if outermost:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield


@contextmanager
def follower_lock() -> Iterator[Path]:
    """Hold the locks of the only writer of the index and the only follower of this database, on any machine.

    The advisory lock belongs to a transaction on a separate connection, so that it also works behind a transaction
    pooler. Raise WriterElsewhereError.
    """
    with writer_lock() as root:
        gate = connections.create_connection(DEFAULT_DB_ALIAS)
        try:
            gate.set_autocommit(False)
            with gate.cursor() as cursor:
                cursor.execute("SELECT set_config('lock_timeout', %s, true)", [FOLLOW_LOCK_TIMEOUT])
                try:
                    cursor.execute("SELECT pg_advisory_xact_lock(%s)", [FOLLOW_LOCK])
                except OperationalError as error:
                    if not isinstance(error.__cause__, LockNotAvailable):
                        raise
                    raise FollowedElsewhereError("another process follows this database") from None
            yield root
        finally:
            with suppress(DatabaseError, InterfaceError):
                gate.rollback()
            gate.close()


class FollowedElsewhereError(WriterElsewhereError):
    """Another process applies the changes of this database to an index elsewhere."""


# Channels are separate for each database.
_CHANNEL = "mnemoscope_index"
_LOOK_SECONDS = 0.01
_LONGEST_LOOK_SECONDS = 0.05


@contextmanager
def listening() -> Iterator[None]:
    """Receive notifications inside, for `wait_for_notification`. The thread has to keep its connection."""
    _execute(f"LISTEN {_CHANNEL}")
    try:
        yield
    finally:
        # Otherwise the next user of a pooled connection would collect notifications that it never reads.
        with suppress(DatabaseError):
            _execute(f"UNLISTEN {_CHANNEL}")


def wait_for_notification(seconds: float) -> None:
    """Wait this long, or until a reader notifies; return at once if there was a notification since the last call."""
    raw: psycopg.Connection[object] = connection.connection
    with connection.wrap_database_errors:
        for _ in raw.notifies(timeout=seconds, stop_after=1):
            pass


def notify_writer() -> None:
    """Let the writer look for changes now, if it waits."""
    with suppress(DatabaseError):
        _execute(f"NOTIFY {_CHANNEL}")


def wait_until_applied(seconds: float) -> bool:
    """Notify the writer, and wait until the index has all changes that are committed now, or the time is over. Return
    whether it has.

    Do not wait within a transaction: its own changes are not visible to the writer.
    """
    if connection.in_atomic_block:
        return False
    until = time.monotonic() + seconds
    last = outbox.newest()
    notify_writer()
    look = _LOOK_SECONDS
    # If the index is gone, the next reader finds out.
    with suppress(NotReadableError, DamagedError):
        while not (outbox.is_applied(last) and is_newest(read_view())):
            if time.monotonic() >= until:
                return False
            time.sleep(look)
            look = min(look * 1.5, _LONGEST_LOOK_SECONDS)
        return True
    return False


def _execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)
