"""docs/recipes.md under test: its recipes run against a server, and those in Python print what the page says."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from django.conf import settings

from access.keys import make_key
from access.viewer import command_viewer

TEXT = (settings.BASE_DIR / "docs" / "recipes.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture
def surroundings(transactional_db, live_server):
    rights = {"scopes": ["read", "write", "curate"], "every_project": True, "viewer": command_viewer()}
    return {**os.environ, "SITE": live_server.url, "KEY": make_key(name="recipes", **rights).raw}


def run(program, surroundings):
    done = subprocess.run(program, env=surroundings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_recipes_in_python_print_what_the_page_says(surroundings):
    program = "".join(text for kind, text in BLOCKS if kind == "python")
    printed = run([sys.executable, "-c", program], surroundings)
    assert printed.splitlines() == "".join(text for kind, text in BLOCKS if kind == "text").splitlines()


@pytest.mark.skipif(not shutil.which("curl"), reason="these recipes are for curl, which is not here")
def test_recipes_for_curl_run(surroundings):
    program = "\n".join(text for kind, text in BLOCKS if kind == "sh" and "create_api_key" not in text)
    printed = run(["bash", "-euc", program.replace("curl -s", "curl -s --fail-with-body")], surroundings)
    assert '"total": 1' in printed
    assert "X-RateLimit-Remaining: " in printed
