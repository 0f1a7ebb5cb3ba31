"""`manage.py mcp`: what it imports before it answers the first request, and a database that is away."""

import subprocess
import sys

import pytest
from django.conf import settings
from django.db import OperationalError

from agent_tools.calls import ToolRefusedError
from agent_tools.management.commands import mcp

PROGRAM = """
import os, sys
import django
django.setup()
from agent_tools.server import serve_stdio
late = ["torch", "sentence_transformers", "agent_tools.catalogue", "search.run", "explorer.memory.admin", "config.api"]
print(*(name for name in late if name in sys.modules), sep=",")
"""


def test_tools_admin_and_model_are_imported_after_the_handshake():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=settings.BASE_DIR,
        env={"DJANGO_SETTINGS_MODULE": "config.settings", "PATH": "", "MNEMOSCOPE_HOME": str(settings.HOME)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == ""


def test_call_while_the_database_is_away_tells_the_model_so(monkeypatch):
    def away():
        raise OperationalError("couldn't get a connection after 5.00 sec")

    monkeypatch.setattr(mcp, "current_viewer", away)
    monkeypatch.setattr(mcp, "prepare", lambda: None)
    with pytest.raises(ToolRefusedError, match="Try again in a few seconds"):
        mcp.viewer_of(None)
