"""Style sheets that a page loads as one file, and scripts that import others."""

import json
import re
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.staticfiles import finders
from django.core.management import call_command

from web.bundles import BUNDLES


@pytest.fixture
def folder(tmp_path, settings):
    settings.HOME, settings.STATIC_ROOT = tmp_path, tmp_path / "static"
    return tmp_path


@pytest.mark.parametrize("bundle", BUNDLES)
def test_a_bundle_has_the_text_of_its_parts_in_their_order(folder, bundle):
    text = Path(finders.find(bundle)).read_text()
    places = [text.index(Path(finders.find(part)).read_text()) for part in BUNDLES[bundle]]
    assert places == sorted(places)
    assert {Path(bundle).suffix} == {Path(part).suffix for part in BUNDLES[bundle]}


def test_bundles_are_collected_and_scripts_import_each_other_by_names_with_a_hash(folder, settings):
    settings.STORAGES = settings.REAL_STORAGES
    call_command("collectstatic", interactive=False, verbosity=0)
    assert {path for path in BUNDLES if (folder / "static" / path).is_file()} == set(BUNDLES)
    names = json.loads((folder / "static" / "staticfiles.json").read_text())["paths"]
    imported = set()
    for script in (folder / "static" / "js").rglob("*.js"):
        source = str(script.relative_to(folder / "static"))
        if source in names.values():
            found = re.findall(r'^(?:import|.*\bfrom)\s*"(\.[^"]+)"', script.read_text(), re.MULTILINE)
            imported |= {str((script.parent / one).resolve().relative_to(folder / "static")) for one in found}
    assert {names["js/explore.js"], names["js/swap.js"], names["js/map/tile.js"]} <= imported
    assert imported <= set(names.values())


def test_the_explore_page_loads_no_file_that_is_in_its_bundles():
    loaded = set()
    for name in ("base.html", "explorer/explore.html"):
        source = (settings.BASE_DIR / "templates" / name).read_text()
        loaded |= set(re.findall(r"""static\(["']([^"']+)["']\)""", source))
    parts = {part for bundle in BUNDLES.values() for part in bundle}
    assert set(BUNDLES) <= loaded
    assert not loaded & parts
