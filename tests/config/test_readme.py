"""The README keeps its promises: every setting and every command it should name is there, and nothing else is."""

import re
from pathlib import Path

import pytest
from django.core.management import get_commands

ROOT = Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text()
READERS = re.compile(r"""(?:env_\w+\(|switched_on\(|os\.environ\.get\(|os\.environ\[)\s*"([A-Z_]+)\"""")


def variables_read():
    sources = [*(ROOT / "config").rglob("*.py"), ROOT / "bootstrap.py", ROOT / "tests" / "browser" / "chromium.py"]
    return {name for source in sources for name in READERS.findall(source.read_text())}


def test_every_variable_is_in_the_table_and_none_that_nothing_reads():
    in_table = set(re.findall(r"^\| `([A-Z_]+)` \|", README, re.MULTILINE))
    assert in_table == variables_read()
    assert {"PORT", "DATABASE_URL", "MNEMOSCOPE_HOME"} <= in_table


@pytest.mark.parametrize("command", sorted(set(re.findall(r"manage\.py (\w+)", README))))
def test_every_command_it_names_exists(command):
    assert command in get_commands()


def test_every_target_of_make_explains_itself():
    makefile = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    explained = re.findall(r"^(\w+): ## .+$", makefile, re.MULTILINE)
    assert sorted(phony.split()) == sorted(explained)
    assert len(explained) <= 10


def test_every_folder_and_file_of_the_map_exists():
    map_of_it = README.partition("## The map")[2].partition("## Licence")[0]
    named = re.findall(r"`([\w./]+(?:/|\.py|\.toml|\.md)|Makefile)`", map_of_it)
    assert len(named) > 10
    for name in named:
        places = [ROOT, ROOT / "config", ROOT / "docs", ROOT / "tests"]
        assert any((place / name).exists() for place in places), name
