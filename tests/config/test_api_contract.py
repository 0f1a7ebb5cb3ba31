"""The API keeps to its own document, whatever is sent that the document allows, and much that it does not.

`API_CASES=800` sets the number of cases of each operation, for a long run.
"""

import json
import os

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from access.keys import make_key
from access.viewer import command_viewer
from config.api import api
from tests.corpus import bring_in
from tests.database import fill

CASES = int(os.environ.get("API_CASES", "3"))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]

schema = schemathesis.openapi.from_dict(json.loads(json.dumps(api.get_openapi_schema(), default=str)))
schema.app = get_wsgi_application()


@pytest.fixture
def headers(db, tmp_path):
    fill("memories", lambda: bring_in(tmp_path))
    raw = make_key(
        name="agent", scopes=["admin"], every_project=True, viewer=command_viewer(), requests_per_minute=1_000_000
    ).raw
    # The connection of the test's transaction must outlive a request, as Django's own client sees to it.
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    # The client of these tests calls the application directly, and decompresses nothing.
    yield {"Authorization": f"Bearer {raw}", "Host": "localhost", "Accept-Encoding": "identity"}
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


OPERATIONS = [operation.ok() for operation in schema.get_all_operations()]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_every_answer_is_one_that_the_document_lists(headers, operation):
    # Without parameters there are no invalid requests.
    asks = operation.query or operation.body or operation.path_parameters
    modes = list(GenerationMode) if asks else [GenerationMode.POSITIVE]

    @settings(
        max_examples=CASES,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in modes)))
    def check(case):
        case.validate_response(case.call(headers=headers), checks=CHECKS)

    check()
