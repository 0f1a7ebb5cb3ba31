"""Steps that are repeated: the pauses after failures grow while nothing succeeds, and only then."""

import pytest
from django.db import OperationalError

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


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("error", "has_traceback"),
    [
        pytest.param(OperationalError("the server closed the connection"), False, id="outage"),
        pytest.param(ValueError("No space left on device (os error 28)"), False, id="full disk"),
        pytest.param(ValueError("a bug"), True, id="bug"),
    ],
)
def test_only_what_nobody_expected_has_a_traceback(pauses, monkeypatch, caplog, error, has_traceback):
    monkeypatch.setattr(polling.connection, "close", lambda: None)

    def step(healthy):
        raise error

    polling.repeat(step, "It failed", lambda: len(pauses) == 1)
    (record,) = caplog.records
    assert bool(record.exc_info) is has_traceback
    assert record.getMessage() == f"It failed; trying again in 1 s: {error}"
