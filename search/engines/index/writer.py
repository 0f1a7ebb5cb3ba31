"""The index open for writing: its words, its columns and the manifest that says what of them belongs together."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tantivy

from search.engines.array_files import DamagedError, Mask, bits_write, step
from search.engines.index import segments, store, words
from search.engines.index.segments import Dictionary, Part, PartBuilder, merged
from search.engines.index.store import Manifest

PART_ROWS = 100_000
# Once so much of the slots is dead, a new generation is smaller and faster.
_MOST_DEAD = 0.5
_LEAST_SLOTS = 10_000


class Writer:
    """The index open for writing. Whatever goes wrong, open it anew: the files say how far it came."""

    def __init__(self, generation: Path, manifest: Manifest, parts: list[Part], live: Mask) -> None:
        self.generation = generation
        self.manifest = manifest
        self.parts = parts
        self.live = live
        self.dictionary = Dictionary()
        for part in parts:
            self.dictionary.extend(part.values, part.values_first)
        self._index = words.open_index(generation / "words")
        self._writer: tantivy.IndexWriter | None = words.index_writer(self._index)
        self._sorted: dict[str, Any] = {}

    @staticmethod
    def open(generation: Path) -> "Writer":
        """Raises NoIndexError or DamagedError. What a killed writer left half done is undone."""
        manifest = store.read_manifest(generation)
        parts = [Part.read(generation / name) for name in manifest.parts]
        if sum(part.size for part in parts) != manifest.slots:
            raise DamagedError("the parts do not add up to the manifest")
        live = store.read_live(generation, manifest)
        try:
            writer = Writer(generation, manifest, parts, live)
            if store.words_commit(generation) != manifest.commit:
                writer.roll_back()
        except (ValueError, OSError) as error:
            raise DamagedError(f"the words: {error}") from error
        store.remove_unnamed(generation, writer.manifest)
        return writer

    @staticmethod
    def create(generation: Path) -> "Writer":
        """A new, empty generation."""
        words.make_index(generation / "words")
        return Writer(generation, Manifest(), [], np.ones(0, np.bool_))

    @words.panics_as_errors()
    def roll_back(self) -> None:
        """Bring the words back to what the manifest says: a commit came, and no manifest after it."""
        documents = self.documents
        words.delete_from(documents, self.manifest.slots)
        documents.commit()
        self._index.reload()
        searcher = self._index.searcher()
        every = words.slots_of(searcher, tantivy.Query.all_query(), 0, self.manifest.slots + 1)
        missing = np.setdiff1d(np.flatnonzero(self.live), every)
        # These were to be replaced or removed. They stay dead: the outbox still has the rows that say what became
        # of them, and until those are taken in they are not found.
        self.live[missing] = False
        self._write_manifest(self.parts, commit=store.words_commit(self.generation))

    def close(self) -> None:
        """Let go of tantivy's lock, once its merges are done."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.wait_merging_threads()

    @property
    def documents(self) -> tantivy.IndexWriter:
        """What documents are added by, until the next `publish`."""
        if self._writer is None:
            self._writer = words.index_writer(self._index)
        return self._writer

    @words.panics_as_errors()
    def write(self, ids: list[int], found: segments.Found, revision: int) -> None:
        """Put the memories as they were found in the place of what the index has under these ids."""
        documents = self.documents
        dead = self.slots_of(ids)
        builder = PartBuilder(self.manifest.slots, self.dictionary)
        for row, terms in found.rows:
            documents.add_document(words.document(builder.add(row), terms))
        words.delete_slots(documents, dead)
        step("documents added")
        commit = documents.commit()
        step("words committed")
        parts = [self.written(builder)] if len(builder) else []
        step("part written")
        unfit = sorted({*self.manifest.unfit} - {*ids} | {*found.unfit})
        self.publish(parts, dead, commit, revision, unfit)
        step("manifest written")

    def written(self, builder: PartBuilder) -> Part:
        """The rows of a builder as a part on the disk, mapped like the others from here on instead of held."""
        part = builder.part()
        path = self.generation / store.part_name(part)
        part.write(path)
        return Part.read(path)

    def publish(
        self,
        parts: Sequence[Part],
        dead: Sequence[int],
        commit: int,
        revision: int,
        unfit: Sequence[int],
        *,
        as_one: bool = False,
    ) -> None:
        """Let readers see new parts, whose documents are committed, and what is dead by now."""
        self.live[dead] = False
        fresh = sum(part.size for part in parts)
        if fresh:
            self.live = np.concatenate([self.live, np.ones(fresh, np.bool_)])
        every = [*self.parts, *parts]
        if as_one and len(every) > 1:
            every = [self._as_one(every)]
        self._merge_tail(every)
        self._write_manifest(every, commit=commit, revision=revision, unfit=unfit)

    def slots_of(self, ids: list[int]) -> list[int]:
        """The live slots of these memories."""
        wanted = np.array(ids, np.int64)
        slots: list[int] = []
        for part in self.parts:
            name = store.part_name(part)
            if name not in self._sorted:
                # Memories mostly come in the order of their ids.
                ascending = bool(np.all(part.ids[1:] > part.ids[:-1])) if part.size else True
                order = None if ascending else np.argsort(part.ids, kind="stable")
                self._sorted[name] = (part.ids if order is None else part.ids[order], order)
            known, order = self._sorted[name]
            left = np.searchsorted(known, wanted, "left")
            right = np.searchsorted(known, wanted, "right")
            for low, high in zip(left[right > left], right[right > left], strict=True):
                places = np.arange(low, high) if order is None else order[low:high]
                slots.extend(int(slot) for slot in places + part.first if self.live[slot])
        return slots

    def unchanged(self, found: segments.Found) -> set[int]:
        """The memories that the index has just as they were found."""
        digests = {row.id: row.digest for row, _ in found.rows}
        slots = np.array(self.slots_of(list(digests)), np.int64)
        same: set[int] = set()
        for part in self.parts:
            places = slots[(slots >= part.first) & (slots < part.first + part.size)] - part.first
            pairs = zip(part.ids[places].tolist(), part.arrays["digest"][places].tolist(), strict=True)
            same.update(memory_id for memory_id, digest in pairs if digests[memory_id] == digest)
        return same

    def _merge_tail(self, parts: list[Part]) -> None:
        """Neighbours of like size become one, so that there are ever only a few, and each row is rarely copied."""
        while len(parts) > 1 and parts[-2].size < 4 * parts[-1].size and parts[-2].size < 4 * PART_ROWS:
            parts[-2:] = [self._as_one(parts[-2:])]

    def _as_one(self, parts: Sequence[Part]) -> Part:
        part = merged(parts, self.live)
        path = self.generation / store.part_name(part)
        part.write(path)
        return Part.read(path)

    def _write_manifest(
        self, parts: list[Part], *, commit: int, revision: int | None = None, unfit: Sequence[int] | None = None
    ) -> None:
        before = self.manifest
        dead = ""
        if not self.live.all():
            dead = f"{before.number + 1:010d}.dead"
            bits_write(self.generation / dead, ~self.live)
        store.sync_folder(self.generation)
        self.manifest = Manifest(
            number=before.number + 1,
            commit=commit,
            slots=len(self.live),
            memories=int(np.count_nonzero(self.live)),
            parts=tuple(store.part_name(part) for part in parts),
            dead=dead,
            revision=before.revision if revision is None else revision,
            unfit=before.unfit if unfit is None else tuple(unfit),
        )
        store.write_manifest(self.generation, self.manifest)
        self.parts = parts
        names = set(self.manifest.parts)
        self._sorted = {name: known for name, known in self._sorted.items() if name in names}
        # A reader may have read the manifest before this one, and be about to open what it names.
        store.remove_unnamed(self.generation, self.manifest, (*before.parts, before.dead))

    def merge_all(self) -> None:
        """All parts as one: the fastest to read."""
        if len(self.parts) > 1:
            self._write_manifest([self._as_one(self.parts)], commit=self.manifest.commit)

    @property
    def is_wasteful(self) -> bool:
        slots = self.manifest.slots
        return slots > _LEAST_SLOTS and slots - self.manifest.memories > _MOST_DEAD * slots
