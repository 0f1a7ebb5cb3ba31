"""Steps that are repeated: the pauses after failures grow while nothing succeeds, and only then."""

import pytest

from search.engines import polling


@pytest.fixture
def pauses(monkeypatch):
    """The pauses between steps, which take no time."""
    found = []
    monkeypatch.setattr(polling, "wait", lambda seconds, stop: found.append(seconds))
    return found


def drops(*, after_work):
    """A step that never returns: the connection is lost each time, with or without work before."""

    def step(healthy):
        if after_work:
            healthy()
        raise OSError("the connection is lost")

    return step


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("after_work", "expected"),
    [pytest.param(True, [1, 1, 1, 1, 1, 1], id="healthy"), pytest.param(False, [1, 2, 5, 15, 30, 30], id="unhealthy")],
)
def test_pauses_grow_only_while_nothing_succeeds(pauses, monkeypatch, after_work, expected):
    monkeypatch.setattr(polling.connection, "close", lambda: None)
    polling.repeat(drops(after_work=after_work), "It failed", lambda: len(pauses) == 6)
    assert pauses == expected
