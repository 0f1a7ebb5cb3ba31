"""The templates can be read: djade keeps the style of their tags, and no formatter breaks their lines."""

from pathlib import Path

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"
MAX_LINE_LENGTH = 140


def test_no_line_of_a_template_is_too_long():
    too_long = [
        f"{path.relative_to(TEMPLATES)}:{number}: {len(line)} characters"
        for path in sorted(TEMPLATES.rglob("*.html"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > MAX_LINE_LENGTH
    ]
    assert too_long == []
