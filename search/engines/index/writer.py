"""The index open for writing: its words, its columns and its manifest."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tantivy

from search.engines import segment_files
from search.engines.index import store, words
from search.engines.index.segments import Dictionary, FoundRows, Segment, SegmentBuilder, merge_segments
from search.engines.index.store import Manifest
from search.engines.segment_files import (
    DamagedError,
    Mask,
    SegmentWriter,
    merge_tail,
    open_segments,
    remove_unreferenced,
)

SEGMENT_ROWS = 100_000


class Writer(SegmentWriter[Segment, Manifest]):
    """The index, open for writing."""

    MAX_DELETED_SHARE = 0.5

    def __init__(self, generation: Path, manifest: Manifest, segments: list[Segment], live: Mask) -> None:
        super().__init__(generation, manifest, segments, live)
        self.dictionary = Dictionary()
        for segment in segments:
            self.dictionary.extend(segment.values, segment.values_first)
        self._index = words.open_index(generation / "words")
        self._writer: tantivy.IndexWriter | None = words.index_writer(self._index)
        self._sorted: dict[str, Any] = {}

    @staticmethod
    def open(generation: Path) -> "Writer":
        """Open a generation and undo what a killed writer left unfinished. Raise NotReadableError or DamagedError."""
        manifest = store.read_manifest(generation)
        segments, live = open_segments(generation, manifest, Segment.read)
        try:
            writer = Writer(generation, manifest, segments, live)
            if store.words_commit(generation) != manifest.commit:
                writer.roll_back()
        except (ValueError, OSError) as error:
            raise DamagedError(f"the words: {error}") from error
        remove_unreferenced(generation, [writer.manifest])
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
        words.delete_from(documents, self.manifest.size)
        documents.commit()
        self._index.reload()
        searcher = self._index.searcher()
        every = words.docs_of(searcher, tantivy.Query.all_query(), 0, self.manifest.size + 1)
        missing = np.setdiff1d(np.flatnonzero(self.live), every)
        # These were to be replaced or removed. They stay deleted and are not found until their changes, which are still
        # in the outbox, are applied.
        self.live[missing] = False
        self._publish(self.segments, commit=store.words_commit(self.folder))

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
        builder = SegmentBuilder(self.manifest.size, self.dictionary)
        for row, terms in found.rows:
            documents.add_document(words.document(builder.add(row), terms))
        words.delete_docs(documents, deleted)
        segment_files.reached("documents added")
        commit = documents.commit()
        segment_files.reached("words committed")
        segments = [self.write_segment(builder.build())] if len(builder) else []
        segment_files.reached("segment written")
        unindexable = sorted({*self.manifest.unindexable} - {*ids} | {*found.unindexable})
        self.append(segments, deleted, commit=commit, revision=revision, unindexable=tuple(unindexable))

    def write_segment(self, segment: Segment) -> Segment:
        """Write a segment, and map it from disk, which frees its memory."""
        path = self.folder / self.new_name(".segment")
        segment.write(path)
        return Segment.read(path)

    def append(
        self, segments: Sequence[Segment], deleted: Sequence[int] = (), *, merged: bool = False, **changes: Any
    ) -> None:
        """Show new segments, whose documents are committed, to readers, and hide the deleted docs.

        With `merged`, merge all segments. `changes` are fields of the manifest.
        """
        self.live[list(deleted)] = False
        fresh = sum(segment.size for segment in segments)
        if fresh:
            self.live = np.concatenate([self.live, np.ones(fresh, np.bool_)])
        every = [*self.segments, *segments]
        if merged and len(every) > 1:
            every = [self._merge(every)]
        merge_tail(every, 4 * SEGMENT_ROWS, self._merge)
        self._publish(every, **changes)

    def _merge(self, segments: Sequence[Segment]) -> Segment:
        return self.write_segment(merge_segments(segments, self.live))

    def _publish(self, segments: list[Segment], **changes: Any) -> None:
        self.publish(segments, self.live, memories=int(np.count_nonzero(self.live)), **changes)
        self._sorted = {name: known for name, known in self._sorted.items() if name in self.manifest.segments}

    def merge_all(self) -> None:
        """Merge all segments: one is the fastest to read."""
        if len(self.segments) > 1:
            self.append([], merged=True)

    def docs_of(self, ids: list[int]) -> list[int]:
        """The live docs of these memories."""
        wanted = np.array(ids, np.int64)
        docs: list[int] = []
        for segment in self.segments:
            name = segment.name
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
