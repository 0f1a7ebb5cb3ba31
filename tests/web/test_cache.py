"""The cache of the process: by key and revision, bounded, cleared in one place."""

from web.cache import RevisionCache, clear_caches


def test_a_value_is_of_one_revision():
    cache = RevisionCache(2)
    cache.put("tree", "old", 1)
    assert cache.get("tree", 1) == "old"
    assert cache.get("tree", 2) is None
    cache.put("tree", "new", 2)
    assert (cache.get("tree", 1), cache.get("tree", 2), len(cache)) == (None, "new", 1)


def test_the_value_used_longest_ago_goes_first():
    cache = RevisionCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    cache.get("a")
    cache.put("c", 3)
    assert [cache.get(key) for key in "abc"] == [1, None, 3]


def test_values_are_bounded_by_their_weight_too():
    cache = RevisionCache(10, weight=5, weigh=len)
    cache.put("a", "xxx")
    cache.put("b", "xx")
    assert len(cache) == 2
    cache.put("b", "xxxx")
    assert (cache.get("a"), cache.get("b")) == (None, "xxxx")
    cache.put("heavier than all", "x" * 9)
    assert (len(cache), cache.get("heavier than all")) == (1, "x" * 9)


def test_a_value_is_forgotten_after_its_time():
    cache = RevisionCache(1, seconds=-1)
    cache.put("names", "old")
    assert cache.get("names") is None


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
