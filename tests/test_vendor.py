"""The files we took over are those that were published."""

import hashlib
import re

import pytest
from django.conf import settings

FOLDERS = (settings.BASE_DIR / "static" / "vendor", settings.BASE_DIR / "tests" / "browser" / "vendor")
ROW = re.compile(
    r"^\| (?P<name>\S+) \| (?P<version>\S+) \| `(?P<path>[^`]+)`.*`(?P<hash>[0-9a-f]{64})` \|$", re.MULTILINE
)
LISTED = [
    pytest.param(folder / row["path"], row["version"], row["hash"], id=row["name"])
    for folder in FOLDERS
    for row in ROW.finditer((folder / "README.md").read_text())
]


@pytest.mark.parametrize(("path", "version", "written"), LISTED)
def test_file_has_the_hash_that_is_written_down(path, version, written):
    assert hashlib.sha256(path.read_bytes()).hexdigest() == written
    assert path.parent.name.endswith(version)
    assert path.with_name("LICENSE").exists()


def test_every_vendored_script_is_listed():
    scripts = {path for folder in FOLDERS for path in folder.rglob("*.js")}
    assert scripts == {row.values[0] for row in LISTED}


def test_pages_fetch_nothing_from_elsewhere():
    sources = [*settings.BASE_DIR.glob("templates/**/*.*"), *settings.BASE_DIR.glob("static/css/*.css")]
    for path in sources:
        fetched = re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?(https?:)?//", path.read_text())
        assert not fetched, path
