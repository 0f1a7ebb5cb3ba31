"""The README and the pages in docs/ agree with the code: settings, commands, folders, and links between the pages."""

import re
from pathlib import Path

from django.core.management import get_commands

ROOT = Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text()
SETTINGS = (ROOT / "docs" / "settings.md").read_text()
PAGES = {page: page.read_text() for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))}
READERS = re.compile(r"""(?:env_\w+\(|switched_on\(|os\.environ\.get\(|os\.environ\[)\s*"([A-Z_]+)\"""")


def variables_read():
    sources = [*(ROOT / "config").rglob("*.py"), ROOT / "bootstrap.py", ROOT / "tests" / "browser" / "chromium.py"]
    return {name for source in sources for name in READERS.findall(source.read_text())}


def test_every_variable_is_in_the_table_and_none_that_nothing_reads():
    in_table = set(re.findall(r"^\| `([A-Z_]+)` \|", SETTINGS, re.MULTILINE))
    assert in_table == variables_read()
    assert {"PORT", "DATABASE_URL", "MNEMOSCOPE_HOME"} <= in_table


def test_every_command_that_the_pages_name_exists():
    named = {command for text in PAGES.values() for command in re.findall(r"manage\.py (\w+)", text)}
    assert named <= set(get_commands())


def test_every_link_between_the_pages_leads_somewhere():
    for page, text in PAGES.items():
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", text):
            place = (page.parent / target).resolve() if target else page
            assert place.exists(), (page, target)
            if anchor:
                headings = re.findall(r"^#+ (.+)$", place.read_text(), re.MULTILINE)
                anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
                assert anchor in anchors, (page, target, anchor)


def test_every_target_of_make_explains_itself():
    makefile = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    explained = re.findall(r"^([\w-]+): ## .+$", makefile, re.MULTILINE)
    assert sorted(phony.split()) == sorted(explained)
    assert len(explained) <= 12


def test_every_folder_and_file_of_the_map_exists():
    map_of_it = README.partition("## The map")[2].partition("## Licence")[0]
    named = re.findall(r"`([\w./]+(?:/|\.py|\.toml|\.md)|Makefile)`", map_of_it)
    assert len(named) > 10
    for name in named:
        assert (ROOT / name).exists(), name
