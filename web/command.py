"""How the commands of this installation are called, for messages and pages."""

import sys
from pathlib import Path

from django.conf import settings
from django.http import HttpRequest


def _command() -> str:
    root: Path = settings.BASE_DIR
    # See mnemoscope/__init__.py.
    if (root.name, root.parent.name) == ("site", "mnemoscope"):
        return "mnemoscope"
    return ".venv/bin/python manage.py" if Path(sys.prefix) == root / ".venv" else "python manage.py"


COMMAND = _command()


def command(request: HttpRequest) -> dict[str, str]:
    """Context processor."""
    return {"command": COMMAND}
