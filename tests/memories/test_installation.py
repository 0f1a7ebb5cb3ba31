"""Search by meaning is installed while people look around by words, and the pages say how far it is."""

from pathlib import Path

import pytest

from memories.embedding import installation, models
from memories.embedding.installation import can_install, install, state


@pytest.fixture
def script(tmp_path, settings):
    """Makes the installer of a checkout that consists of these lines."""
    settings.BASE_DIR = settings.HOME = tmp_path

    def written(*lines):
        (tmp_path / "bootstrap.py").write_text("\n".join(("import sys, time", *lines)))

    return written


def never():
    return False


def test_installed_and_nothing_is_said_afterwards(script):
    script("assert sys.argv[1:] == ['embeddings']", "print('Installing torch, for search by meaning ...')")
    assert install(never)
    assert state() == ""


def test_pages_say_how_far_it_is(script):
    child = "subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    script("import subprocess", "print('A warning of pip')", "print('Installing torch ...')", child)
    seen = []

    def stopped():
        seen.append(state())
        return bool(seen[-1])

    assert not install(stopped)
    assert seen[-1] == "it is being installed (installing torch)"
    assert state() == ""


def test_failure_is_said_and_logged(script, caplog, monkeypatch):
    script("print('Installing torch ...')", "sys.exit('There is no network.')")
    assert not install(never)
    assert "There is no network." in caplog.text
    monkeypatch.setattr(models, "find_spec", lambda package: None)
    assert models.missing_packages("") == "it could not be installed; the log of the server says why"


def test_only_the_environment_of_a_checkout_is_added_to(script, monkeypatch, settings):
    script()
    assert not can_install()
    monkeypatch.setattr(installation.sys, "prefix", str(Path(settings.BASE_DIR) / ".venv"))
    assert not can_install()
    (Path(settings.BASE_DIR) / ".venv").mkdir()
    (Path(settings.BASE_DIR) / ".venv" / "installed-run").touch()
    assert can_install()
    settings.WITHOUT_EMBEDDINGS = True
    assert not can_install()
