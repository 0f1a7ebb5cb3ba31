"""The index open for writing: its words, its columns and its manifest."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tantivy

from search.engines import crash_points
from search.engines.array_files import DamagedError, Mask, bits_write
from search.engines.index import store, words
from search.engines.index.segments import Dictionary, FoundRows, Segment, SegmentBuilder, merge_segments
from search.engines.index.store import Manifest

SEGMENT_ROWS = 100_000
# Above this share of deleted docs, a new generation is smaller and faster.
_MAX_DELETED_SHARE = 0.5
_MIN_DOCS = 10_000


class Writer:
    """The index open for writing. After any error open it again: the files have a consistent state."""

    def __init__(self, generation: Path, manifest: Manifest, segments: list[Segment], live: Mask) -> None:
        self.generation = generation
        self.manifest = manifest
        self.segments = segments
        self.live = live
        self.dictionary = Dictionary()
        for segment in segments:
            self.dictionary.extend(segment.values, segment.values_first)
        self._index = words.open_index(generation / "words")
        self._writer: tantivy.IndexWriter | None = words.index_writer(self._index)
        self._sorted: dict[str, Any] = {}

    @staticmethod
    def open(generation: Path) -> "Writer":
        """Open a generation and undo what a killed writer left unfinished. Raise NoIndexError or DamagedError."""
        manifest = store.read_manifest(generation)
        segments = [Segment.read(generation / name) for name in manifest.segments]
        if sum(segment.size for segment in segments) != manifest.docs:
            raise DamagedError("the segments do not add up to the manifest")
        live = store.read_live(generation, manifest)
        try:
            writer = Writer(generation, manifest, segments, live)
            if store.words_commit(generation) != manifest.commit:
                writer.roll_back()
        except (ValueError, OSError) as error:
            raise DamagedError(f"the words: {error}") from error
        store.remove_unreferenced(generation, writer.manifest)
        return writer

    @staticmethod
    def create(generation: Path) -> "Writer":
        """Create an empty generation."""
        words.make_index(generation / "words")
        return Writer(generation, Manifest(), [], np.ones(0, np.bool_))

    @words.panics_as_errors()
    def roll_back(self) -> None:
        """Return the words to the state in the manifest, after a commit that no manifest followed."""
        documents = self.documents
        words.delete_from(documents, self.manifest.docs)
        documents.commit()
        self._index.reload()
        searcher = self._index.searcher()
        every = words.docs_of(searcher, tantivy.Query.all_query(), 0, self.manifest.docs + 1)
        missing = np.setdiff1d(np.flatnonzero(self.live), every)
        # These were to be replaced or removed. They stay deleted and are not found until their changes, which are still
        # in the outbox, are applied.
        self.live[missing] = False
        self._write_manifest(self.segments, commit=store.words_commit(self.generation))

    def close(self) -> None:
        """Release tantivy's lock when its merges are done."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.wait_merging_threads()

    @property
    def documents(self) -> tantivy.IndexWriter:
        """The tantivy writer, opened at first use."""
        if self._writer is None:
            self._writer = words.index_writer(self._index)
        return self._writer

    @words.panics_as_errors()
    def write(self, ids: list[int], found: FoundRows, revision: int) -> None:
        """Replace all that the index has under these ids by the memories in `found`."""
        documents = self.documents
        deleted = self.docs_of(ids)
        builder = SegmentBuilder(self.manifest.docs, self.dictionary)
        for row, terms in found.rows:
            documents.add_document(words.document(builder.add(row), terms))
        words.delete_docs(documents, deleted)
        crash_points.reached("documents added")
        commit = documents.commit()
        crash_points.reached("words committed")
        segments = [self.write_segment(builder)] if len(builder) else []
        crash_points.reached("segment written")
        unindexable = sorted({*self.manifest.unindexable} - {*ids} | {*found.unindexable})
        self.publish(segments, deleted, commit, revision, unindexable)
        crash_points.reached("manifest written")

    def write_segment(self, builder: SegmentBuilder) -> Segment:
        """Write the rows of a builder as a segment, and map it from disk."""
        segment = builder.segment()
        path = self.generation / store.segment_name(segment)
        segment.write(path)
        return Segment.read(path)

    def publish(
        self,
        segments: Sequence[Segment],
        deleted: Sequence[int],
        commit: int,
        revision: int,
        unindexable: Sequence[int],
        *,
        as_one: bool = False,
    ) -> None:
        """Show new segments, whose documents are committed, to readers, and hide the deleted docs."""
        self.live[deleted] = False
        fresh = sum(segment.size for segment in segments)
        if fresh:
            self.live = np.concatenate([self.live, np.ones(fresh, np.bool_)])
        every = [*self.segments, *segments]
        if as_one and len(every) > 1:
            every = [self._merge(every)]
        self._merge_tail(every)
        self._write_manifest(every, commit=commit, revision=revision, unindexable=unindexable)

    def docs_of(self, ids: list[int]) -> list[int]:
        """The live docs of these memories."""
        wanted = np.array(ids, np.int64)
        docs: list[int] = []
        for segment in self.segments:
            name = store.segment_name(segment)
            if name not in self._sorted:
                # Memories mostly come ordered by id.
                ascending = bool(np.all(segment.ids[1:] > segment.ids[:-1])) if segment.size else True
                order = None if ascending else np.argsort(segment.ids, kind="stable")
                self._sorted[name] = (segment.ids if order is None else segment.ids[order], order)
            known, order = self._sorted[name]
            left = np.searchsorted(known, wanted, "left")
            right = np.searchsorted(known, wanted, "right")
            for low, high in zip(left[right > left], right[right > left], strict=True):
                rows = np.arange(low, high) if order is None else order[low:high]
                docs.extend(int(doc) for doc in rows + segment.first if self.live[doc])
        return docs

    def unchanged(self, found: FoundRows) -> set[int]:
        """The memories that the index already has in exactly this state."""
        digests = {row.id: row.digest for row, _ in found.rows}
        docs = np.array(self.docs_of(list(digests)), np.int64)
        same: set[int] = set()
        for segment in self.segments:
            rows = docs[(docs >= segment.first) & (docs < segment.first + segment.size)] - segment.first
            pairs = zip(segment.ids[rows].tolist(), segment.arrays["digest"][rows].tolist(), strict=True)
            same.update(memory_id for memory_id, digest in pairs if digests[memory_id] == digest)
        return same

    def _merge_tail(self, segments: list[Segment]) -> None:
        """Merge neighbours of similar size, so that there are few segments and each row is rarely copied."""
        while len(segments) > 1 and segments[-2].size < 4 * segments[-1].size and segments[-2].size < 4 * SEGMENT_ROWS:
            segments[-2:] = [self._merge(segments[-2:])]

    def _merge(self, segments: Sequence[Segment]) -> Segment:
        segment = merge_segments(segments, self.live)
        path = self.generation / store.segment_name(segment)
        segment.write(path)
        return Segment.read(path)

    def _write_manifest(
        self,
        segments: list[Segment],
        *,
        commit: int,
        revision: int | None = None,
        unindexable: Sequence[int] | None = None,
    ) -> None:
        before = self.manifest
        deleted = ""
        if not self.live.all():
            deleted = f"{before.number + 1:010d}.deleted"
            bits_write(self.generation / deleted, ~self.live)
        store.sync_folder(self.generation)
        self.manifest = Manifest(
            number=before.number + 1,
            commit=commit,
            docs=len(self.live),
            memories=int(np.count_nonzero(self.live)),
            segments=tuple(store.segment_name(segment) for segment in segments),
            deleted=deleted,
            revision=before.revision if revision is None else revision,
            unindexable=before.unindexable if unindexable is None else tuple(unindexable),
        )
        store.write_manifest(self.generation, self.manifest)
        self.segments = segments
        names = set(self.manifest.segments)
        self._sorted = {name: known for name, known in self._sorted.items() if name in names}
        # Readers may be about to open files of the previous manifest.
        store.remove_unreferenced(self.generation, self.manifest, (*before.segments, before.deleted))

    def merge_all(self) -> None:
        """Merge all segments: one is the fastest to read."""
        if len(self.segments) > 1:
            self._write_manifest([self._merge(self.segments)], commit=self.manifest.commit)

    @property
    def is_wasteful(self) -> bool:
        docs = self.manifest.docs
        return docs > _MIN_DOCS and docs - self.manifest.memories > _MAX_DELETED_SHARE * docs
