"""Static files: style sheets that a page loads as one file, and names of scripts in those that import them."""

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.staticfiles import finders
from django.contrib.staticfiles.finders import AppDirectoriesFinder, BaseFinder
from django.core.checks import CheckMessage
from django.core.files.storage import FileSystemStorage, Storage
from whitenoise.storage import CompressedManifestStaticFilesStorage

# The parts in the order in which they take effect. A bundle is in the folder of its parts, to which their addresses
# are relative.
BUNDLES = {
    # Not the one for printing, which has to come after those of a page.
    "css/every_page.css": ("css/tokens.css", "css/header.css", "css/site.css"),
    "css/explore_page.css": (
        "css/explore.css",
        "css/memory.css",
        "css/panel.css",
        "css/sheet.css",
        "css/view_bar.css",
        "css/ask.css",
    ),
}


class ModuleStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]  # without annotations
    """Stores files under names with their hash, by which scripts import each other too."""

    support_js_module_import_aggregation = True


class AppFinder(AppDirectoriesFinder):
    """Finds the files of apps but for extensions of htmx, which no page loads and which import what is not there."""

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterator[tuple[str, Storage]]:
        yield from super().list([*(ignore_patterns or ()), "hx-*.js", "htm*-4*.js"])


class BundleFinder(BaseFinder):
    """Finds each bundle as a file, which it writes again when a part has changed."""

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        return []

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        """The path of a bundle; as in Django an empty list if there is none, and a list for `find_all`."""
        if path not in BUNDLES:
            return []
        found = _written(path)
        return [found] if find_all else found

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterator[tuple[str, Storage]]:
        storage = FileSystemStorage(_folder())
        for path in BUNDLES:
            _written(path)
            yield path, storage


def _folder() -> Path:
    return Path(settings.HOME) / "static-bundles"


def _written(bundle: str) -> str:
    """The path of a bundle with its present content."""
    content, path = _content(bundle), _folder() / bundle
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Another process may read it.
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as fresh:
            fresh.write(content)
        Path(fresh.name).replace(path)
    return str(path)


def _content(bundle: str) -> bytes:
    parts = []
    for name in BUNDLES[bundle]:
        path = finders.find(name)
        if path is None:
            raise FileNotFoundError(f"{name} is a part of {bundle}, and there is no such static file.")
        parts.append(Path(path).read_bytes())
    return b"\n".join(parts)
