"""The files we took over are those that were published."""

import hashlib
import re

import pytest
from django.conf import settings

VENDOR = settings.BASE_DIR / "static" / "vendor"
ROW = re.compile(
    r"^\| (?P<name>\S+) \| (?P<version>\S+) \| `(?P<path>[^`]+)`.*`(?P<hash>[0-9a-f]{64})` \|$", re.MULTILINE
)
LISTED = [match.groupdict() for match in ROW.finditer((VENDOR / "README.md").read_text())]


@pytest.mark.parametrize("row", [pytest.param(row, id=row["name"]) for row in LISTED])
def test_file_has_the_hash_that_is_written_down(row):
    assert hashlib.sha256((VENDOR / row["path"]).read_bytes()).hexdigest() == row["hash"]
    assert row["version"] in row["path"]
    assert (VENDOR / row["path"]).with_name("LICENSE").exists()


def test_every_vendored_script_is_listed():
    scripts = {path.relative_to(VENDOR).as_posix() for path in VENDOR.rglob("*.js")}
    assert scripts == {row["path"] for row in LISTED}


def test_pages_fetch_nothing_from_elsewhere():
    sources = [*settings.BASE_DIR.glob("templates/**/*.html"), *settings.BASE_DIR.glob("static/css/*.css")]
    for path in sources:
        fetched = re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?(https?:)?//", path.read_text())
        assert not fetched, path
