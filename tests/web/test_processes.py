"""Child processes of a server that end by themselves."""

import logging
import os
import signal
import time

import pytest

from web import processes
from web.processes import SupervisedProcess, cause_of

LIVES = "import time, sys\nopen('starts', 'a').write(f'{time.monotonic()}\\n')\n"


@pytest.fixture
def child(settings, tmp_path, monkeypatch):
    """Make a child that runs a script, and wait until it has started a number of times."""
    settings.BASE_DIR = tmp_path
    monkeypatch.chdir(tmp_path)
    made = []

    def make(script):
        (tmp_path / "manage.py").write_text(LIVES + script)
        made.append(SupervisedProcess(["worker"], "Nothing is embedded"))
        made[-1].start()
        return made[-1]

    def starts(count):
        until = time.monotonic() + 20
        while time.monotonic() < until:
            path = tmp_path / "starts"
            found = path.read_text().split() if path.exists() else []
            if len(found) >= count:
                return [float(one) for one in found]
            time.sleep(0.02)
        raise AssertionError("the child was not started as often")

    make.starts = starts
    yield make
    for one in made:
        one.ask_to_stop()
        one.wait()


def test_child_that_was_killed_is_back_at_once_and_its_end_is_logged_and_counted(child, monkeypatch, caplog):
    monkeypatch.setattr(processes, "_STEADY_SECONDS", 0.1)
    counted = []
    monkeypatch.setattr(processes, "ended", [*processes.ended, counted.append])
    one = child("time.sleep(60)")
    child.starts(1)
    time.sleep(0.2)
    with caplog.at_level(logging.WARNING):
        killed = time.monotonic()
        os.kill(one._child.pid, signal.SIGKILL)
        child.starts(2)
    assert time.monotonic() - killed < processes._RESTART_SECONDS[1]
    assert "`worker` ended" in caplog.text
    assert "by SIGKILL" in caplog.text
    assert "Nothing is embedded until it is back" in caplog.text
    assert counted == ["worker"]


def test_pauses_grow_for_a_child_that_keeps_failing(child, monkeypatch):
    monkeypatch.setattr(processes, "_RESTART_SECONDS", (0, 0.2, 0.4, 0.6))
    child("sys.exit(3)")
    first, second, third, fourth, *_ = child.starts(5)
    assert second - first >= 0.2
    assert third - second >= 0.4
    assert fourth - third >= 0.6


def test_end_that_was_asked_for_is_not_counted(child, monkeypatch, caplog):
    counted = []
    monkeypatch.setattr(processes, "ended", [counted.append])
    one = child("time.sleep(60)")
    child.starts(1)
    one.ask_to_stop()
    one.wait()
    one._thread.join(5)
    assert (caplog.text, counted) == ("", [])


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-signal.SIGKILL, "short of memory"),
        (-signal.SIGSEGV, "by SIGSEGV"),
        (-250, "by the signal 250"),
        (0, "with the exit code 0"),
        (3, "with the exit code 3"),
    ],
)
def test_cause_is_named(code, words):
    assert words in cause_of(code)
