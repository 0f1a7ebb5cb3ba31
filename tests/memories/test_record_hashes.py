"""Records of an import that were met already."""

import random

from transfer import record_hashes
from transfer.record_hashes import RecordHashes


def test_every_record_is_known_by_its_identity(monkeypatch):
    monkeypatch.setattr(record_hashes, "_RECENT", 7)
    rng, hashes = random.Random(4), RecordHashes()
    expected = {rng.getrandbits(64) - (1 << 63): rng.getrandbits(64) - (1 << 63) for _ in range(100)}
    for count, (key, record_hash) in enumerate(expected.items()):
        assert hashes.get(key) is None
        hashes.add(key, record_hash)
        assert hashes.get(key) == record_hash
        assert [hashes.get(known) for known in list(expected)[:count]] == list(expected.values())[:count]
