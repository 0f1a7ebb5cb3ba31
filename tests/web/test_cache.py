"""The cache of the process: by key and revision, bounded, cleared in one place."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

from web.cache import RepeatedReads, RevisionCache, clear_caches


def test_a_value_is_of_one_revision():
    cache = RevisionCache(2)
    cache.put("tree", "old", 1)
    assert cache.get("tree", 1) == "old"
    assert cache.get("tree", 2) is None
    cache.put("tree", "new", 2)
    assert (cache.get("tree", 1), cache.get("tree", 2), len(cache)) == (None, "new", 1)


def test_values_are_bounded_by_their_weight_too():
    cache = RevisionCache(10, weight=5, weigh=len)
    cache.put("a", "xxx")
    cache.put("b", "xx")
    assert len(cache) == 2
    cache.put("b", "xxxx")
    assert (cache.get("a"), cache.get("b")) == (None, "xxxx")
    cache.put("heavier than all", "x" * 9)
    assert (len(cache), cache.get("heavier than all")) == (1, "x" * 9)


def test_a_value_is_made_once():
    made = []
    cache = RevisionCache(1)
    assert [cache.get_or_make("a", lambda: made.append(1) or "made", 7) for _ in range(3)] == ["made"] * 3
    assert made == [1]


def test_every_cache_is_cleared_at_once():
    caches = [RevisionCache(1), RevisionCache(1)]
    for cache in caches:
        cache.put("key", "value")
    clear_caches()
    assert [len(cache) for cache in caches] == [0, 0]


# --- reads that are repeated --------------------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self):
        return self.now

    def reading(self, value, seconds):
        def read():
            self.now += seconds
            return value

        return read


def test_a_quick_read_is_repeated_for_a_new_revision_after_twenty_times_its_time():
    clock = Clock()
    reads = RepeatedReads(clock)
    assert reads.get("share", 1, clock.reading("first", 0.01)) == "first"
    clock.now += 100
    assert reads.get("share", 1, clock.reading("unread", 0.01)) == "first"
    assert reads.get("share", 2, clock.reading("second", 0.01)) == "second"
    clock.now += 0.19
    assert reads.get("share", 3, clock.reading("too early", 0.01)) == "second"
    clock.now += 0.02
    assert reads.get("share", 3, clock.reading("third", 0.01)) == "third"


def test_a_result_that_may_not_be_older_is_read_again_at_once():
    clock = Clock()
    reads = RepeatedReads(clock, may_be_older=lambda text: len(text) > 5)
    assert reads.get("share", 1, clock.reading("small", 1.0)) == "small"
    assert reads.get("share", 2, clock.reading("larger", 1.0)) == "larger"
    assert reads.get("share", 3, clock.reading("unread", 1.0)) == "larger"


def test_nobody_waits_for_a_slow_read_to_be_repeated():
    clock = Clock()
    begin, done = Event(), Event()
    reads = RepeatedReads(clock, after_repeat=done.set)

    def slow():
        begin.wait(10)
        return "second"

    assert reads.get("share", 1, clock.reading("first", 1.0)) == "first"
    clock.now += 21
    assert [reads.get("share", 2, slow) for _ in range(3)] == ["first"] * 3
    begin.set()
    assert done.wait(10)
    assert reads.get("share", 2, slow) == "second"


def test_one_read_serves_all_who_ask_at_once_and_no_result_is_older_than_its_seconds():
    clock = Clock()
    reads = RepeatedReads(clock, limit=2, seconds=30)
    begun, finish, counted = Event(), Event(), []

    def slow():
        counted.append(1)
        begun.set()
        finish.wait(10)
        return "counted"

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(reads.get, "home", 1, slow)
        assert begun.wait(10)
        others = [pool.submit(reads.get, "home", 1, slow) for _ in range(2)]
        finish.set()
        assert [one.result(10) for one in (first, *others)] == ["counted"] * 3
    assert len(counted) == 1
    clock.now += 31
    assert reads.get("home", 1, lambda: "anew") == "anew"
    for other in ("a", "b"):
        reads.get(other, 1, lambda: "other")
    assert reads.get("home", 1, lambda: "forgotten") == "forgotten"
