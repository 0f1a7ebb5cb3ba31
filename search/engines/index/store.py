"""Where the derived index lies, and how readers and the one writer agree on what is in it.

    lock                        held by the one process that writes
    current                     the name of the generation that is read
    damaged                     a reader's word that something is wrong; the writer makes a new generation
    g-000001-0123abcd/manifest  what belongs together: the parts, the dead slots, the commit of the words
    g-000001-0123abcd/words/    tantivy
    g-000001-0123abcd/*.part    columns
    g-000001-0123abcd/*.dead    a bit for each slot that is no memory any more

Files are written whole, under another name or a new one, and made to last before the manifest names them; the manifest
and `current` are replaced in one step. A reader keeps what it has read until it can have all of something newer.
"""

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO

import numpy as np
import tantivy
from django.conf import settings

from search.engines.array_files import Array, DamagedError, Mask, arrays_verify, bits_read
from search.engines.base import EngineQuery, Ids, Value
from search.engines.index import outbox, words
from search.engines.index.segments import Dictionary, Part
from search.facets import FACET, FacetKind

# Raised whenever files of an older version cannot be read any more, or would mean something else.
SCHEMA = 3

# A reader that is overtaken by the writer starts over so many times.
_TRIES = 5


class NoIndexError(Exception):
    """There is no index that can be read. The message says why."""


class WriterElsewhereError(Exception):
    """Another process writes the index."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What belongs together. `commit` is the operation stamp of tantivy's commit."""

    number: int = 0
    commit: int = 0
    slots: int = 0
    memories: int = 0
    parts: tuple[str, ...] = ()
    dead: str = ""
    revision: int = 0
    """The revision that the corpus had when the last changes were read from it."""
    unfit: tuple[int, ...] = ()
    """The memories that cannot be in an index, as far as changes were taken in."""
    schema: int = SCHEMA


def index_dir() -> Path:
    return Path(settings.SEARCH_INDEX)


def current_generation() -> Path:
    """The generation that is read. Raises NoIndexError or DamagedError."""
    root = index_dir()
    try:
        name = (root / "current").read_bytes().decode(errors="replace").strip()
    except OSError:
        raise NoIndexError("there is none yet") from None
    if not name.startswith("g-") or not (root / name).is_dir():
        raise DamagedError("its files are gone")
    return root / name


def read_manifest(generation: Path) -> Manifest:
    """Raises NoIndexError where it is of another version, DamagedError where it cannot be read."""
    try:
        stored = json.loads((generation / "manifest").read_text())
        if stored["schema"] != SCHEMA:
            raise NoIndexError(f"it is of version {stored['schema']}, and this is version {SCHEMA}")
        return Manifest(**{**stored, "parts": tuple(stored["parts"]), "unfit": tuple(stored.get("unfit", ()))})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"its manifest cannot be read ({error})") from error


def write_manifest(generation: Path, manifest: Manifest) -> None:
    replace_file(generation / "manifest", json.dumps(asdict(manifest)))


def replace_file(path: Path, text: str) -> None:
    """Put a text in the place of a file, all of it or nothing, and make it last."""
    beside = path.with_name(path.name + ".new")
    with beside.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_live(generation: Path, manifest: Manifest) -> Mask:
    """Which slots hold a memory."""
    if not manifest.dead:
        return np.ones(manifest.slots, np.bool_)
    return ~bits_read(generation / manifest.dead, manifest.slots)


@dataclass(slots=True)
class View:
    """The index as one process reads it at one moment: nothing in it changes."""

    generation: Path
    manifest: Manifest
    parts: tuple[Part, ...]
    live: Mask
    dictionary: Dictionary
    """Shared with newer views, which only ever add to it."""
    sizes: dict[str, int]
    """How many codes of each column are in this view."""
    index: tantivy.Index
    searcher: tantivy.Searcher
    kept: dict[str, object] = field(default_factory=dict)
    """What was worked out of it and stays true as long as it is read."""

    @property
    def revision(self) -> str:
        return f"{self.generation.name}/{self.manifest.number}"


class _Reader:
    """The view of this process, and how it comes by a newer one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Together, so that a thread never sees one of them without the other.
        self._known: tuple[View | None, tuple[object, ...]] = (None, ())

    def view(self) -> View:
        """The newest view that is whole. Raises NoIndexError or DamagedError."""
        view, known = self._known
        if view is not None and known == _stamp():
            return view
        with self._lock:
            view, known = self._known
            if view is not None and known == _stamp():
                return view
            for _ in range(_TRIES):
                stamp = _stamp()
                try:
                    found = self._newer()
                except (NoIndexError, DamagedError):
                    # Files that went while they were opened were replaced by newer ones.
                    if stamp == _stamp():
                        raise
                    continue
                if found is not view:
                    self._known = (found, stamp)
                return found
            raise NoIndexError("it changes faster than it can be read")

    def is_newest(self, view: View) -> bool:
        known, stamp = self._known
        return known is view and stamp == _stamp()

    def _newer(self) -> View:
        known = self._known[0]
        generation = current_generation()
        if _damage()[0] == generation.name:
            raise NoIndexError("it is damaged, and is being made anew")
        if known is not None and known.generation != generation:
            known = None
        try:
            return _open_view(generation, known)
        except NotYetError:
            # The writer is between its two steps: what was read before is whole, and a moment old.
            if known is None:
                raise
            return known

    def forget(self) -> None:
        with self._lock:
            self._known = (None, ())


class NotYetError(NoIndexError):
    """The words are newer than the manifest: the writer is about to say so, or did not get to it."""


def _stamp() -> tuple[object, ...]:
    """What changes when there is something new to read."""
    try:
        current = (index_dir() / "current").stat()
        found = (current_generation() / "manifest").stat()
    except (OSError, NoIndexError, DamagedError):
        return ()
    try:
        damaged = (index_dir() / "damaged").stat().st_mtime_ns
    except OSError:
        damaged = 0
    return (current.st_ino, current.st_mtime_ns, found.st_ino, found.st_mtime_ns, damaged)


def _open_view(generation: Path, known: View | None) -> View:
    manifest = read_manifest(generation)
    have = {part_name(part): part for part in known.parts} if known else {}
    parts = []
    dictionary = known.dictionary if known else Dictionary()
    for name in manifest.parts:
        part = have.get(name) or Part.read(generation / name)
        dictionary.extend(part.values, part.values_first)
        parts.append(part)
    live = read_live(generation, manifest)
    if sum(part.size for part in parts) != manifest.slots:
        raise DamagedError("the parts do not add up to the manifest")
    try:
        index = known.index if known else words.open_index(generation / "words")
        with words.panics_as_errors():
            index.reload()
            searcher = index.searcher()
        if words_commit(generation) != manifest.commit:
            raise NotYetError("it is being written")
    except (ValueError, KeyError, OSError) as error:
        raise DamagedError(f"the words: {error}") from error
    return View(generation, manifest, tuple(parts), live, dictionary, dictionary.sizes(), index, searcher)


def words_commit(generation: Path) -> int:
    """The operation stamp of the commit that lies on the disk."""
    stored = json.loads((generation / "words" / "meta.json").read_text())
    return int(stored["opstamp"])


def part_name(part: Part) -> str:
    return f"{part.first:010d}-{part.first + part.size:010d}.part"


_reader = _Reader()
# Manifests whose files were looked through and found whole.
_whole: set[str] = set()


def verify(view: View) -> str:
    """What is wrong with the files of a view, if anything is: each is read from beginning to end, once."""
    if view.revision in _whole:
        return ""
    try:
        for name in view.manifest.parts:
            arrays_verify(view.generation / name)
        if damaged := words.damaged_files(view.generation / "words"):
            return damaged[0]
    except (DamagedError, OSError, ValueError, KeyError) as error:
        return str(error)
    _whole.add(view.revision)
    return ""


def read_view() -> View:
    """The index as it is now. Raises NoIndexError or DamagedError."""
    return _reader.view()


def is_newest(view: View) -> bool:
    """Whether the manifest says by now what it said when this view was read. While the writer is about to replace it,
    `read_view` may give one of which that is not so.
    """
    return _reader.is_newest(view)


def forget_view() -> None:
    """Close what this process reads."""
    _reader.forget()


def report_damage(reason: str, generation: Path | None = None) -> None:
    """Tell the writer that something is wrong with a generation, by default the current one, and read it no more."""
    forget_view()
    try:
        name = (generation or current_generation()).name
    except (NoIndexError, DamagedError):
        # Nothing there can be read at all.
        name = ""
    with contextlib.suppress(OSError):
        replace_file(index_dir() / "damaged", f"{name}\n{reason}")


def ask_for_rebuild(reason: str) -> None:
    """Have the writer make a new generation; the one there is answers meanwhile."""
    replace_file(index_dir() / "damaged", f"\n{reason}")


def damage_reported() -> str:
    """Why a new generation is wanted, if one is; a word about one that is gone is none."""
    name, reason = _damage()
    try:
        return reason if not name or name == current_generation().name else ""
    except (NoIndexError, DamagedError):
        return reason


def _damage() -> tuple[str, str]:
    try:
        name, _, reason = (index_dir() / "damaged").read_text().partition("\n")
    except (OSError, UnicodeDecodeError):
        return "", ""
    return name, reason or "it is damaged"


def belongs_to_database(generation: Path, manifest: Manifest, following: outbox.Following | None = None) -> bool:
    """Whether the changes of this database are written down for this generation, and it is not of a later past: of a
    database that was put back to what it was before.
    """
    following = following or outbox.following()
    return following.indexed and following.generation == generation.name and manifest.revision <= following.revision


@contextlib.contextmanager
def writing() -> Iterator[Path]:
    """Be the one process that writes. Raises WriterElsewhereError. A process that is killed lets go at once."""
    root = index_dir()
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("a+") as handle:
        _take(handle)
        yield root


def _take(handle: IO[str]) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise WriterElsewhereError("another process writes the index") from None


def next_generation(root: Path) -> Path:
    """The path of a generation that is not there yet, and never was: readers keep what they know under its name."""
    numbers = [int(path.name[2:8]) for path in root.glob("g-*") if path.name[2:8].isdigit()]
    return root / f"g-{max(numbers, default=0) + 1:06d}-{secrets.token_hex(4)}"


def remove_others(root: Path, kept: Path) -> None:
    """Remove every generation but one. Readers that still have one open keep it until they let go."""
    for path in root.glob("g-*"):
        if path != kept:
            shutil.rmtree(path, ignore_errors=True)


def remove_unnamed(generation: Path, manifest: Manifest, also_kept: Sequence[str] = ()) -> None:
    """Remove the parts that the manifest does not name: of steps that were not finished, or of before a merge."""
    named = {*manifest.parts, manifest.dead, *also_kept}
    for path in generation.iterdir():
        if path.suffix in {".part", ".dead"} and path.name not in named:
            path.unlink(missing_ok=True)


def values_at(view: View, name: str, slots: Array) -> Array:
    """What a column has in these slots. Each part is read by itself: put together they would be there twice."""
    if len(view.parts) == 1:
        only: Array = view.parts[0].arrays[name].take(slots)
        return only
    if not len(slots):
        return np.empty(0, np.int64)
    if bool(np.all(slots[1:] >= slots[:-1])):
        return np.concatenate([part.arrays[name].take(places) for part, places in stretches(view, slots)])
    order = np.argsort(slots)
    found = np.empty_like(sorted_values := values_at(view, name, slots[order]))
    found[order] = sorted_values
    return found


def ids_at(view: View, slots: Array) -> list[int]:
    """The memories that stand in these slots."""
    found: list[int] = values_at(view, "id", slots).tolist()
    return found


def slots_of(view: View, ids: Ids) -> Array:
    """The slots that memories stand in; -1 for those that have none."""
    found = np.full(len(ids), -1, np.int64)
    for n, part in enumerate(view.parts):
        column = part.arrays["id"]
        if not len(column):
            continue
        # Parts are written in the order of ids; should one not be, its order is worked out once.
        key = f"order of ids in part {n}"
        if key not in view.kept:
            view.kept[key] = None if bool(np.all(column[1:] > column[:-1])) else np.argsort(column, kind="stable")
        order: Array | None = view.kept[key]  # type: ignore[assignment]
        # Of a memory that was changed the older slots are dead, and parts that became one hold them too.
        at = np.maximum(np.searchsorted(column, ids, side="right", sorter=order) - 1, 0)
        at = at if order is None else order[at]
        slots = part.first + at
        here = (column[at] == ids) & view.live[slots]
        found[here] = slots[here]
    return found


def stretches(view: View, slots: Array) -> Iterator[tuple[Part, Array]]:
    """The parts that slots, in order, lie in, each with its places."""
    cuts = np.searchsorted(slots, [part.first for part in view.parts] + [view.manifest.slots])
    for part, low, high in zip(view.parts, cuts, cuts[1:], strict=False):
        if high > low:
            yield part, slots[low:high] - part.first


def codes_of(view: View, column: str, values: Iterable[Value]) -> list[int]:
    """The codes of values, of those that this view has."""
    known, length = view.dictionary.codes[column], view.sizes[column]
    return [code for value in values if value != "" and 0 < (code := known.get(value, 0)) < length]


@lru_cache(maxsize=64)
def _column_name(key: str, subcategories: bool) -> str:
    return "category_own" if FACET[key].kind == FacetKind.TREE and not subcategories else key


def column_of(key: str, plan: EngineQuery) -> str:
    """Without subcategories a tick means the node alone, and so must its number."""
    return _column_name(key, plan.subcategories)
