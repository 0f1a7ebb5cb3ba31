"""The recipe of docs/contributing.md for a new facet is followed in a copy of the code, which then shows the facet."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection

ROOT = Path(__file__).resolve().parent.parent.parent
RECIPE = (ROOT / "docs" / "contributing.md").read_text()

# Run in the copy, on the database of the test.
SCRIPT = """
import re, sys
import django
from django.conf import settings

settings.DATABASES["default"]["NAME"] = sys.argv[1]
django.setup()
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client

before = MigrationRecorder.Migration.objects.filter(app="memories").latest("id").name
call_command("makemigrations", "memories", verbosity=0)
call_command("migrate", "memories", verbosity=0)
try:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE memories_memory SET language = 'nl' WHERE title LIKE 'Tea%%'")
    client = Client()
    client.force_login(User.objects.create_superuser("reader"))
    page = client.get("/explore/?language=nl", headers={"host": "localhost", "X-Open": "facet-language"})
    names = re.findall(r'name="(?:language|no)" value="(?:nl|language)" aria-label="([^"]*)"', page.content.decode())
    print(page.status_code, *names)
    print(*re.findall(r'<h1 id="total"[^>]*>\\s*(\\d+)', page.content.decode()))
    page = client.get("/facets/language/", headers={"host": "localhost"}).content.decode()
    print(*re.findall(r'name="language" value="nl" aria-label="([^"]*)"', page))
    print("The natural language of the text." in page)
finally:
    call_command("migrate", "memories", before, verbosity=0)
"""


def _code_of(row: str) -> list[str]:
    """The code in the row of a file in the tables of the recipe."""
    cells = re.search(rf"^\| `{re.escape(row)}` \| (.*) \|$", RECIPE, re.MULTILINE)
    assert cells, f"the recipe has no row for {row}"
    return [code for code in re.findall(r"`([^`]+)`", cells[1]) if "(" in code]


def _insert_before(path: Path, line: str, *added: str) -> None:
    text = path.read_text()
    assert text.count(line) == 1
    path.write_text(text.replace(line, "".join(added) + line))


@pytest.mark.django_db(transaction=True)
def test_facet_added_by_the_recipe_is_shown_with_exact_counts(tmp_path, jsonl):
    titles = ["Tea is green", "Tea is black", "Tea is white", "Coffee", "Cocoa"]
    lines = [{"title": title, "content": title, "project": "kitchen"} for title in titles]
    call_command("import_memories", str(jsonl(*lines)), verbosity=0)
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in ROOT.iterdir():
        if path.name in {"memories", "search"}:
            shutil.copytree(path, copy / path.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif not path.name.startswith(".") and path.name != "var":
            (copy / path.name).symlink_to(path)
    _insert_before(
        copy / "search" / "facets.py", '    FacetSpec(\n        "author"', f"    {_code_of('search/facets.py')[0]},\n"
    )
    fields = [f"    {code}\n" for code in _code_of("search/query.py")]
    _insert_before(copy / "search" / "query.py", "    match_all: bool = Field", *fields)
    column = _code_of("memories/models.py")[0]
    _insert_before(copy / "memories" / "models.py", "    terms = SearchVectorField", f"    {column}\n")

    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, connection.settings_dict["NAME"]],
        cwd=copy,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["200 nl, 3 of 3 No language, 2", "3", "nl, 3 of 3", "True"]
