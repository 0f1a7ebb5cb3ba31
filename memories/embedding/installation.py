"""Search by meaning, installed by the worker of a server that was started without its packages.

They are large: people look around by words meanwhile, and the pages say how far it is.
"""

import importlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread

from django.conf import settings

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_LOGGED_LINES = 12


def can_install() -> bool:
    """Whether this is the environment that `make run` made, and search by meaning is wanted."""
    environment = Path(settings.BASE_DIR) / ".venv"
    is_own = Path(sys.prefix) == environment and _script().exists() and any(environment.glob("installed-*"))
    return is_own and not settings.WITHOUT_EMBEDDINGS


def install(stopped: Callable[[], bool]) -> bool:
    """Install the packages and the model where they are not those of the lock files, unless `stopped`.

    Returns whether they are now.
    """
    command = [sys.executable, "-u", str(_script()), "embeddings"]
    lines: list[str] = []
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    ) as process:
        reader = Thread(target=_follow, args=(process, lines), daemon=True)
        reader.start()
        while process.poll() is None:
            if stopped():
                # With what it has started, which holds the pipe too.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
            reader.join(_POLL_SECONDS)
        reader.join()
    importlib.invalidate_caches()
    if process.returncode == 0 or stopped():
        _state_file().unlink(missing_ok=True)
    else:
        _state_file().write_text("it could not be installed; the log of the server says why")
        logger.warning(
            "Search by meaning could not be installed, and is tried again at the next start:\n%s",
            "\n".join(lines[-_LOGGED_LINES:]),
        )
    return process.returncode == 0


def state() -> str:
    """How far an installation is, as a clause; empty if there is none."""
    try:
        return _state_file().read_text(encoding="utf-8")
    except OSError:
        return ""


def _follow(process: "subprocess.Popen[str]", lines: list[str]) -> None:
    """Collect the lines that a process prints, and let the pages show the last one that announces a step."""
    assert process.stdout is not None  # noqa: S101  # it is a pipe
    for line in process.stdout:
        lines.append(line.rstrip())
        step, dots, _ = line.partition(" ...")
        if dots:
            _state_file().write_text(f"it is being installed ({step[:1].lower()}{step[1:]})", encoding="utf-8")


def _script() -> Path:
    return Path(settings.BASE_DIR) / "bootstrap.py"


def _state_file() -> Path:
    return Path(settings.HOME) / "installing-embeddings"
