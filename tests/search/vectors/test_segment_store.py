"""The segment store, in both its uses: killed at every step, on a full disk, and read while it is written."""

import errno
import random
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest

from access.viewer import command_viewer
from memories.models import Memory
from search.engines import segment_files
from search.engines.check import compare
from search.engines.index import follower, segments, store
from search.engines.segment_files import (
    DamagedError,
    Manifest,
    NotReadableError,
    SegmentWriter,
    SnapshotReader,
    merge_tail,
    open_segments,
    read_manifest,
    write_manifest,
)
from search.engines.vectors import replica, writer
from search.query import SearchQuery
from search.run import run
from tests.killed import run_until
from tests.search.vectors.drawn import assert_true_to_the_database, same_as_the_database, sync, write


class IndexStore:
    """The columns of the index."""

    apply = staticmethod(follower.catch_up)
    build = staticmethod(follower.rebuild)
    filled = "generation filled"

    @staticmethod
    def change(ids, seed):
        Memory.objects.filter(pk__in=ids).update(memory_type=f"type{seed}")

    @staticmethod
    def folder():
        return store.current_generation()

    @staticmethod
    def manifest():
        return store.read_manifest(store.current_generation())

    @staticmethod
    def assert_answers():
        """Readers find every memory, with the changes or without."""
        store.close_view()
        result = run(SearchQuery(include_facets=True), command_viewer(), facet_limit=1_000)
        assert result.total == sum(value.count for value in next(f for f in result.facets if f.key == "type").values)

    @classmethod
    def assert_true(cls):
        assert compare().agrees, compare()
        cls.assert_answers()


class ReplicaStore:
    """The replica of the vectors."""

    apply = staticmethod(writer.sync)
    build = staticmethod(writer.build)
    filled = "replica filled"
    folder = staticmethod(replica.folder)
    manifest = staticmethod(replica.read_manifest)
    assert_answers = staticmethod(assert_true_to_the_database)

    @staticmethod
    def change(ids, seed):
        write(ids, seed=seed)

    @staticmethod
    def assert_true():
        assert same_as_the_database()
        assert_true_to_the_database()


BOTH = pytest.mark.parametrize("kind", [IndexStore, ReplicaStore], ids=["index", "replica"])
STEPS = ["segment written", "manifest written", "changes deleted"]


@pytest.fixture
def made(kind, stored):
    """A store of all memories, which are given by their ids."""
    follower.catch_up()
    sync()
    return stored


def data_files(kind):
    return {path.name for path in kind.folder().iterdir() if path.suffix}


@pytest.mark.django_db(transaction=True)
@BOTH
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step_it_goes_on_and_nothing_is_lost(kind, made, step):
    before = kind.manifest()
    kind.change(made[:4], seed=9)
    assert run_until(step, kind.apply)
    kind.assert_answers()
    if step == "segment written":
        assert kind.manifest() == before
        assert data_files(kind) > before.files
    kind.change(made[2:5], seed=10)
    kind.assert_answers()
    kind.apply()
    kind.assert_true()
    # Files of the unfinished step are gone.
    before = kind.manifest()
    kind.change(made[:1], seed=11)
    kind.apply()
    assert data_files(kind) == kind.manifest().files | before.files
    kind.assert_true()


@pytest.mark.django_db(transaction=True)
@BOTH
@pytest.mark.parametrize("step", ["manifest written", "filled"])
def test_killed_while_it_is_built_it_is_built(kind, made, step):
    kind.change(made[:4], seed=9)
    assert run_until(kind.filled if step == "filled" else step, kind.build)
    kind.assert_answers()
    kind.change(made[2:5], seed=10)
    kind.apply()
    kind.assert_true()


@pytest.mark.django_db(transaction=True)
@BOTH
def test_killed_again_and_again_nothing_is_built_anew(kind, made):
    folder, name = kind.folder(), getattr(kind.manifest(), "name", "")
    chance = random.Random(4)
    for seed in range(5):
        kind.change(chance.sample(made, 3), seed)
        run_until(chance.choice(STEPS), kind.apply)
        kind.assert_answers()
    kind.apply()
    assert (kind.folder(), getattr(kind.manifest(), "name", "")) == (folder, name)
    kind.assert_true()


@pytest.mark.django_db(transaction=True)
@BOTH
def test_a_full_disk_loses_nothing(kind, made, monkeypatch):
    def full(path, *_):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    before = kind.manifest()
    kind.change(made[:4], seed=9)
    with monkeypatch.context() as patched:
        for module in (segments, replica):
            patched.setattr(module, "arrays_write", full)
        with pytest.raises(OSError, match="No space"):
            kind.apply()
        assert kind.manifest() == before
        kind.assert_answers()
    kind.apply()
    kind.assert_true()


@pytest.mark.django_db(transaction=True)
@BOTH
def test_a_reader_never_sees_half_a_change(kind, made, monkeypatch):
    points = []

    def look(point):
        points.append(point)
        kind.assert_answers()

    kind.change(made[:4], seed=9)
    monkeypatch.setattr(segment_files, "reached", look)
    kind.apply()
    assert [point for point in points if point in STEPS] == STEPS


# --- without a database -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NumbersManifest(Manifest):
    VERSION: ClassVar[int] = 3

    revision: int = 0
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Numbers:
    """A segment of numbers, a line each."""

    values: list[int] = field(default_factory=list)
    name: str = ""

    @property
    def size(self):
        return len(self.values)

    @staticmethod
    def read(path):
        return Numbers([int(line) for line in path.read_text().split()], path.name)


class NumbersWriter(SegmentWriter[Numbers, NumbersManifest]):
    MAX_DELETED_SHARE = 0.5

    def add(self, *values):
        name = self.new_name(".segment")
        (self.folder / name).write_text("\n".join(map(str, values)))
        live = np.concatenate([self.live, np.ones(len(values), np.bool_)])
        self.publish([*self.segments, Numbers(list(values), name)], live)


def opened(folder):
    manifest = read_manifest(folder, NumbersManifest)
    return NumbersWriter(folder, manifest, *open_segments(folder, manifest, Numbers.read))


@pytest.fixture
def numbers(tmp_path):
    return NumbersWriter(tmp_path, NumbersManifest(), [], np.empty(0, np.bool_))


def test_what_is_published_is_read_again(numbers):
    numbers.add(1, 2, 3)
    numbers.publish(numbers.segments, np.array([True, False, True]), revision=7, names=("a", "b"))
    numbers.add(4)
    again = opened(numbers.folder)
    assert again.manifest == numbers.manifest
    assert (again.manifest.revision, again.manifest.names, again.manifest.size) == (7, ("a", "b"), 4)
    assert [segment.values for segment in again.segments] == [[1, 2, 3], [4]]
    assert again.live.tolist() == [True, False, True, True]


def test_a_name_that_a_manifest_had_is_never_given_again(numbers):
    names = []
    for value in range(5):
        numbers = opened(numbers.folder) if value else numbers
        numbers.add(value)
        # A file of a step that was not finished; its name is free.
        numbers.new_name(".segment")
        live = np.arange(len(numbers.live)) % 2 == 0
        numbers.publish(numbers.segments, live)
        names += [numbers.segments[-1].name, numbers.manifest.deleted]
    assert len({name for name in names if name}) == len([name for name in names if name])


def test_only_files_of_the_last_two_manifests_are_left(numbers):
    (numbers.folder / "lock").touch()
    numbers.add(1)
    numbers.publish([], np.empty(0, np.bool_))
    assert len(list(numbers.folder.glob("*.segment"))) == 1
    numbers.add(2)
    assert [path.read_text() for path in numbers.folder.glob("*.segment")] == ["2"]
    assert (numbers.folder / "lock").exists()


def test_stores_that_follow_each_other_in_a_folder_share_no_names(tmp_path):
    writers = [NumbersWriter(tmp_path, NumbersManifest(), [], np.empty(0, np.bool_), prefix) for prefix in ("a-", "b-")]
    assert writers[0].new_name(".segment") != writers[1].new_name(".segment")


def test_segments_that_do_not_add_up_are_damage(numbers):
    numbers.add(1, 2)
    (numbers.folder / numbers.segments[0].name).write_text("1")
    with pytest.raises(DamagedError, match="add up"):
        opened(numbers.folder)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema": 3, "other": 1}'])
def test_a_manifest_that_cannot_be_read_is_damage(tmp_path, text):
    (tmp_path / "manifest").write_text(text)
    with pytest.raises(DamagedError):
        read_manifest(tmp_path, NumbersManifest)


def test_a_manifest_of_another_version_is_no_damage(tmp_path):
    write_manifest(tmp_path, NumbersManifest())
    text = (tmp_path / "manifest").read_text()
    (tmp_path / "manifest").write_text(text.replace('"schema": 3', '"schema": 4'))
    with pytest.raises(NotReadableError, match="version 4"):
        read_manifest(tmp_path, NumbersManifest)


@pytest.mark.parametrize(
    ("sizes", "limit", "expected"),
    [
        ([100, 10, 1], 1_000, [100, 10, 1]),
        ([100, 10, 3], 1_000, [100, 13]),
        ([30, 10, 3], 1_000, [43]),
        ([30, 10, 3], 20, [30, 13]),
        ([3, 3, 3], 0, [3, 3, 3]),
    ],
)
def test_neighbours_of_similar_size_are_merged(sizes, limit, expected):
    tail = [Numbers([0] * size) for size in sizes]
    merge_tail(tail, limit, lambda two: Numbers([value for one in two for value in one.values]))
    assert [segment.size for segment in tail] == expected


def test_a_reader_that_is_overtaken_tries_again():
    stamps, answers = iter([1, 2, 2, 2]), iter([DamagedError("gone"), "newer"])

    def open_newer(known):
        answer = next(answers)
        if isinstance(answer, DamagedError):
            raise answer
        return answer

    assert SnapshotReader(lambda: next(stamps), open_newer).read() == "newer"


def test_a_reader_keeps_what_it_has_while_the_newest_is_not_complete():
    stamp = [1]
    reader = SnapshotReader(lambda: stamp[0], lambda known: known or object())
    first = reader.read()
    assert reader.is_newest(first)
    stamp[0] = 2
    assert reader.read() is first
    assert not reader.is_newest(first)


def test_a_reader_gives_up_on_files_that_change_all_the_time():
    stamps = iter(range(100))

    def open_newer(known):
        raise DamagedError("gone")

    with pytest.raises(NotReadableError, match="faster"):
        SnapshotReader(lambda: next(stamps), open_newer).read()


def test_a_store_of_few_rows_is_never_wasteful(numbers, monkeypatch):
    numbers.add(*range(10))
    numbers.publish(numbers.segments, np.arange(10) < 2)
    assert not numbers.is_wasteful
    monkeypatch.setattr(segment_files, "_MIN_ROWS", 5)
    assert numbers.is_wasteful
