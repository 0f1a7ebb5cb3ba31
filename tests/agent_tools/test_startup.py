"""`manage.py mcp`: what it imports before it answers the first request, and a database that is away."""

import subprocess
import sys

from django.conf import settings

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
