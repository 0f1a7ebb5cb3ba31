"""docs/api.md under test: its examples run, and it names every parameter, field, facet and error there is."""

import inspect
import os
import re
import shutil
import subprocess
import sys
from datetime import date

import pytest
from django.conf import settings

from access import keys
from access.keys import make_key
from access.viewer import SCOPES, command_viewer
from config import api as api_module
from config.api import api
from memories import refusals
from memories.records import StrictMemoryRecord
from search.facets import FACETS
from search.histogram import NO_DAYS, build_histogram
from search.query import ALIASES, Interval, SearchQuery
from web import errors, params, responses
from web.validation import field_names

TEXT = (settings.BASE_DIR / "docs" / "api.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
SOURCES = [inspect.getsource(module) for module in (api_module, errors, responses, params, keys, refusals)]
ERROR = re.compile(r'(?:ApiError\(\s*\d{3},\s*|\bcode(?:: str)? = )"(\w+)"')
EXAMPLES = [text for kind, text in BLOCKS if kind == "sh" and "curl" in text]


def test_every_parameter_and_alias_is_named():
    for parameter in SearchQuery.openapi_parameters():
        assert f"`{parameter['name']}`" in TEXT
    for alias in ALIASES:
        assert f"`{alias}`" in TEXT


def test_every_field_of_a_record_is_named():
    for name in field_names(StrictMemoryRecord):
        assert f"`{name}`" in TEXT


def test_every_facet_scope_address_and_error_is_named():
    for spec in FACETS:
        assert f'"{spec.api_name}":' in TEXT
    for scope in SCOPES:
        assert f"| `{scope}` |" in TEXT
    kinds = {kind for source in SOURCES for kind in ERROR.findall(source)}
    assert {"unauthorized", "invalid_query", "unsupported_media_type", "database_busy"} <= kinds
    for kind in kinds:
        assert f"`{kind}`" in TEXT
    for path, methods in api.get_openapi_schema()["paths"].items():
        for method in methods:
            assert f"`{method.upper()} {re.sub('{(memory|suggestion)_id}', '{id}', path)}`" in TEXT


def test_bar_of_the_histogram_is_called_what_it_is_called():
    shown = re.search(r'"first": "(\S+)", "last": "(\S+)", "label": "([^"]+)"', TEXT).groups()
    first, last = map(date.fromisoformat, shown[:2])
    (bar,) = build_histogram(NO_DAYS, (first, last), Interval.MONTH).bars
    assert shown == (bar.first, bar.last, bar.label)


@pytest.fixture
def surroundings(transactional_db, live_server):
    """The answers that the page documents for its examples."""
    key = make_key(name="example", scopes=["read", "write", "curate"], every_project=True, viewer=command_viewer()).raw
    return {**os.environ, "SITE": live_server.url, "KEY": key}


@pytest.mark.skipif(not shutil.which("curl"), reason="the examples are for curl, which is not here")
def test_examples_run_in_the_order_of_the_page(surroundings):
    """Those for curl, with the memory that the page stores as `$ID`; then, beside what they made, the one in Python."""
    script = "\n".join(text for text in EXAMPLES if "create_api_key" not in text)
    program = ["bash", "-euc", script.replace("curl -s", "curl -s --fail-with-body")]
    done = subprocess.run(program, env=surroundings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"error": "' not in done.stdout
    assert '"superseded_by": {"id": ' in done.stdout
    (example,) = [text for kind, text in BLOCKS if kind == "python"]
    done = subprocess.run(
        [sys.executable, "-c", example], env=surroundings, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 {")
    assert "'supper': 1" in done.stdout
