"""A stage: an index that an import writes while its transaction runs.

A stage starts as a copy of the current generation, by hard links. The process of the import adds to it. Once the
transaction has committed and the writer of the index finds the batch in the outbox, it promotes the stage to the next
generation, after applying the changes that the current generation has received meanwhile. A stage whose transaction did
not commit is removed by the import or, if that was killed, by the next process.
"""

import contextlib
import fcntl
import json
import logging
import os
import shutil
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import numpy as np
from django.conf import settings

from search.engines import crash_points
from search.engines.array_files import DamagedError
from search.engines.index import outbox, store, words
from search.engines.index.segments import IndexRow, Segment, SegmentBuilder, load_rows
from search.engines.index.store import Manifest
from search.engines.index.transactions import read_snapshot
from search.engines.index.writer import SEGMENT_ROWS, Writer
from search.engines.segment_store import NotReadableError, sync_folder, write_manifest
from text.bulk_terms import PlacedTerms

logger = logging.getLogger(__name__)

_PREFIX = "import-"
_TRIES = 5
# An import of at least this share of the index leaves a single segment, which is the fastest to read.
_SINGLE_SEGMENT_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class StageBase:
    """The generation that a stage was copied from, and its size then."""

    generation: str
    docs: int


def _folder(root: Path, batch_id: int) -> Path:
    return root / f"{_PREFIX}{batch_id}"


@contextlib.contextmanager
def open_stage(batch_id: int) -> Iterator[Path | None]:
    """Open a stage for a batch while its transaction runs; yield None if there is no index to add to. The stage remains
    if the block ends without an error.
    """
    base = _base_generation() if settings.SEARCH_ENGINE == "tantivy" else None
    stage = _folder(store.index_dir(), batch_id)
    with contextlib.ExitStack() as held:
        if base is None or not _create_locked(stage, held):
            yield None
            return
        try:
            linked = _link_generation(base, stage)
            crash_points.reached("stage begun")
            yield stage if linked else None
        except BaseException:
            shutil.rmtree(stage, ignore_errors=True)
            raise
        crash_points.reached("import over")
        if not (stage / "base").exists():
            shutil.rmtree(stage, ignore_errors=True)


def memories() -> int:
    """The number of memories in the current generation; 0 without one."""
    with contextlib.suppress(NotReadableError, DamagedError):
        return store.read_manifest(store.current_generation()).memories
    return 0


def _create_locked(stage: Path, held: contextlib.ExitStack) -> bool:
    """Create a stage and lock it until the transaction is over, so that no process takes it for abandoned. Return
    whether that was possible.
    """
    remove_abandoned(stage.parent)
    try:
        stage.mkdir()
        handle = held.enter_context((stage / "lock").open("a+"))
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        logger.warning("The import continues without the search index: %s.", error)
        return False
    return True


def _base_generation() -> Path | None:
    """The current generation, if it belongs to this database and no other import is pending."""
    try:
        generation = store.current_generation()
        manifest = store.read_manifest(generation)
    except (NotReadableError, DamagedError):
        return None
    if not store.belongs_to_database(generation, manifest) or store.rebuild_reason() or outbox.pending_batches():
        return None
    return generation


def _link_generation(generation: Path, stage: Path) -> bool:
    """Link the files of a generation, which may be written to meanwhile. Return whether that was possible."""
    for _ in range(_TRIES):
        with contextlib.suppress(OSError, ValueError, KeyError, DamagedError):
            manifest = store.read_manifest(generation)
            meta = (generation / "words" / "meta.json").read_bytes()
            if json.loads(meta)["opstamp"] == manifest.commit:
                _link_files(generation, stage, manifest, meta)
                write_manifest(stage, manifest)
                (stage / "began").write_text(json.dumps(asdict(StageBase(generation.name, manifest.size))))
                return True
        # The writer was between two steps, or has replaced a file.
        time.sleep(0.2)
    return False


def _link_files(generation: Path, stage: Path, manifest: Manifest, meta: bytes) -> None:
    shutil.rmtree(stage / "words", ignore_errors=True)
    (stage / "words").mkdir()
    for name in manifest.files:
        _link(generation / name, stage / name)
    kept = ["meta.json"]
    for path in words.segment_files(generation / "words", meta):
        _link(path, stage / "words" / path.name)
        kept.append(path.name)
    # The files that tantivy may remove after a merge.
    (stage / "words" / ".managed.json").write_text(json.dumps(kept))
    (stage / "words" / "meta.json").write_bytes(meta)
    if words.missing_files(stage / "words"):
        raise FileNotFoundError


def _link(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        # The file system does not support links.
        shutil.copyfile(source, target)


def remove_abandoned(root: Path) -> None:
    """Remove the stages of imports that are over and did not commit."""
    for stage in root.glob(f"{_PREFIX}*"):
        number = stage.name.removeprefix(_PREFIX)
        with contextlib.suppress(OSError), (stage / "lock").open("a+") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Check after taking the lock: a committed batch is in the outbox until its stage is promoted.
            if not number.isdigit() or int(number) not in outbox.pending_batches():
                shutil.rmtree(stage, ignore_errors=True)


class StageWriter:
    """A stage open for writing, in a process of the import. Terms are added before the memories are stored, the other
    columns after that, in the same order.
    """

    def __init__(self, stage: Path) -> None:
        self._stage = stage
        self._writer = Writer.open(stage)
        self._docs = self._writer.manifest.size
        self._builder = SegmentBuilder(self._docs, self._writer.dictionary)
        self._segments: list[Segment] = []
        self._expected: deque[int] = deque()

    @words.panics_as_errors()
    def add(self, ids: Sequence[int], terms: Sequence[PlacedTerms]) -> None:
        documents = self._writer.documents
        for memory_id, one in zip(ids, terms, strict=True):
            if one.fields is None:
                document = words.document(self._docs, one.vector)
            else:
                document = words.placed_document(self._docs, one.fields, is_joined=one.is_joined)
            documents.add_document(document)
            self._expected.append(memory_id)
            self._docs += 1

    def confirm(self, stored: Iterable[IndexRow]) -> None:
        """Raise ValueError if other memories were stored than announced."""
        for row in stored:
            expected = self._expected.popleft() if self._expected else None
            if row.id != expected:
                raise ValueError(f"#{row.id} was stored instead of #{expected}")
            self._builder.add(row)
            if len(self._builder) == SEGMENT_ROWS:
                self._write_segment()

    def _write_segment(self) -> None:
        segment = self._writer.write_segment(self._builder.build())
        self._segments.append(segment)
        self._builder = SegmentBuilder(segment.first + segment.size, self._writer.dictionary)

    @words.panics_as_errors()
    def finish(self) -> None:
        """Write everything to disk, and mark the stage complete."""
        if self._expected:
            raise ValueError(f"{len(self._expected):,} memories were not stored")
        if len(self._builder):
            self._write_segment()
        commit = self._writer.documents.commit()
        merged = sum(segment.size for segment in self._segments) >= _SINGLE_SEGMENT_SHARE * self._docs
        self._writer.append(self._segments, commit=commit, merged=merged)
        self._writer.close()
        (self._stage / "began").replace(self._stage / "base")
        sync_folder(self._stage)

    def close(self) -> None:
        self._writer.close()


def promote(root: Path, writer: Writer, batch_id: int) -> Path | None:
    """Turn the stage of a committed batch into a generation with all changes that the current one has. Return None if
    there is no stage, or it was copied from another generation.
    """
    stage = _folder(root, batch_id)
    try:
        base = StageBase(**json.loads((stage / "base").read_text()))
        if base.generation != writer.folder.name or store.rebuild_reason():
            return None
        with _stage_lock(stage):
            _apply_missed_changes(stage, base, writer)
    except (OSError, ValueError, TypeError, NotReadableError, DamagedError):
        return None
    crash_points.reached("stage filled up")
    generation = store.next_generation(root)
    stage.rename(generation)
    sync_folder(root)
    for name in ("base", "lock"):
        (generation / name).unlink(missing_ok=True)
    crash_points.reached("stage named")
    return generation


@contextlib.contextmanager
def _stage_lock(stage: Path) -> Iterator[IO[str]]:
    """The lock of the stage, once the import has released it."""
    with (stage / "lock").open("a+") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle


def _apply_missed_changes(stage: Path, base: StageBase, writer: Writer) -> None:
    """Apply the changes that the current generation has received since the stage was copied from it."""
    newer = Writer.open(stage)
    try:
        gone = np.flatnonzero(newer.live[: base.docs] & ~writer.live[: base.docs])
        ids: set[int] = set()
        for segment in writer.segments:
            inside = gone[(gone >= segment.first) & (gone < segment.first + segment.size)] - segment.first
            ids.update(segment.ids[inside].tolist())
            ids.update(segment.ids[max(0, base.docs - segment.first) :].tolist())
        ids.update(writer.manifest.unindexable, newer.manifest.unindexable)
        wanted = sorted(ids)
        with read_snapshot():
            revision = outbox.follow_state().revision
            found = load_rows(wanted, store.SCHEMA)
        newer.write(wanted, found, revision)
    finally:
        newer.close()
