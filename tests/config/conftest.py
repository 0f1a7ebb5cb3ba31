"""A folder that a Postgres can live in."""

import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from config.home import folder_mode


@contextmanager
def folder_for_a_server():
    # Not in pytest's own: whenever another run of pytest starts, that one is closed to other accounts again, and
    # as root the server runs as one of those.
    with tempfile.TemporaryDirectory(prefix="mnemoscope-test-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(folder_mode())
        yield Path(folder).resolve()


@pytest.fixture
def server_folder():
    with folder_for_a_server() as folder:
        yield folder
