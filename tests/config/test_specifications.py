"""docs/specifications.md under test: its requirements are numbered, and the tests that it names exist."""

import re

from django.conf import settings

TEXT = (settings.BASE_DIR / "docs" / "specifications.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in re.findall(r"^\| \d+ \|.*$", TEXT, re.M)]


def test_requirements_are_numbered_and_have_a_state_and_tests():
    for section in re.split(r"^## ", TEXT, flags=re.M)[1:]:
        numbers = re.findall(r"^\| (\d+) \|", section, re.M)
        assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    for row in ROWS:
        assert len(row) == 5, row
        assert row[3] in {"works", "better", "open"}, row
        assert row[4] or row[3] == "open", row


def test_every_test_that_the_page_names_exists():
    for named in set(re.findall(r"`(tests/[^`]+)`", TEXT)):
        path, _, name = named.partition("::")
        assert re.search(rf"^ *def {name}\(", (settings.BASE_DIR / path).read_text(), re.M), named
