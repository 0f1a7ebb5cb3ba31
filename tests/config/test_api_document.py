"""The OpenAPI document passes the validators that others hold it against."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from django.conf import settings
from openapi_spec_validator import OpenAPIV31SpecValidator

FOLDER = Path(os.environ.get("NPM_CLIENTS") or settings.BASE_DIR / "var" / "npm")
REDOCLY = FOLDER / "node_modules" / "@redocly" / "cli" / "bin" / "cli.js"


@pytest.fixture
def document(client, db):
    return client.get("/api/openapi.json").json()


def faults_of(document):
    return [str(error.message) for error in OpenAPIV31SpecValidator(document).iter_errors()]


def test_document_is_valid(document):
    assert document["openapi"].startswith("3.1")
    assert faults_of(document) == []


def test_document_says_where_it_is_served_and_who_may_call_what(document):
    assert document["servers"] == [{"url": "/"}]
    assert document["info"]["license"]["identifier"] == "Apache-2.0"
    security = {
        path: operation["security"] for path, methods in document["paths"].items() for operation in methods.values()
    }
    assert [path for path, needed in security.items() if not needed] == ["/api/health"]


@pytest.mark.skipif(
    not (shutil.which("node") and REDOCLY.exists()), reason=f"node or {REDOCLY} is absent (see docs/contributing.md)"
)
def test_redocly_finds_nothing_to_say(document, tmp_path):
    path = tmp_path / "openapi.json"
    path.write_text(json.dumps(document))
    command = ["node", str(REDOCLY), "lint", str(path), "--format", "json"]
    quiet = {**os.environ, "REDOCLY_TELEMETRY": "off", "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true"}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, env=quiet, cwd=tmp_path)
    assert json.loads(ran.stdout)["totals"] == {"errors": 0, "warnings": 0, "ignored": 0}, ran.stdout
