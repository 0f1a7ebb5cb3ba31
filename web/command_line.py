"""The commands that messages tell people to run, as this installation has them. Imports nothing of Django."""

import os
import shlex
import sys
from pathlib import Path

_SITE = Path(__file__).resolve().parent.parent
_PACKAGED = ("mnemoscope", "site")


def command(arguments: str) -> str:
    """A command with its program: `mnemoscope` of a package, or `manage.py` with the Python of the checkout."""
    if _is_packaged():
        return f"mnemoscope {arguments}"
    python = ".venv/bin/python" if Path(sys.prefix) == _SITE / ".venv" else "python"
    return f"{python} manage.py {arguments}"


def start_command() -> str:
    """The command that starts the site."""
    return "mnemoscope up" if _is_packaged() else "make run"


def documentation(name: str) -> str:
    """The place of a page of the documentation, such as `embeddings.md`."""
    return str(_SITE / "docs" / name) if _is_packaged() else f"docs/{name}"


def _is_packaged() -> bool:
    return _SITE.parts[-2:] == _PACKAGED


def local_command(arguments: str) -> str:
    """The same for the terminal of this machine: with MNEMOSCOPE_HOME, without which it would use another database."""
    home = os.environ.get("MNEMOSCOPE_HOME", "")
    is_usual = home == os.environ.get("MNEMOSCOPE_USUAL_HOME", "")
    return command(arguments) if is_usual else f"MNEMOSCOPE_HOME={shlex.quote(home)} {command(arguments)}"
