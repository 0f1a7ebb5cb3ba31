"""Results on real records: matches compared to a scan, counts to counting, across all interfaces."""

import json
import re
from urllib.parse import urlencode

import pytest
from django.core.management import call_command
from django.test import Client

from access.keys import make_key
from access.models import AuditEvent
from access.viewer import command_viewer
from memories.models import ImportBatch
from search.facets import FACETS
from search.query import SearchQuery
from search.run import run
from tests import development_data
from tests.oracle import facet_counts, load_documents, matching

pytestmark = [
    pytest.mark.release,
    pytest.mark.development_data,
    pytest.mark.skipif(not development_data.PATH.exists(), reason=development_data.MISSING),
]


@pytest.fixture(scope="module")
def records(django_db_setup, django_db_blocker):
    """All records, imported once for this module and removed after it, including audit events."""
    with django_db_blocker.unblock():
        audited = set(AuditEvent.objects.values_list("pk", flat=True))
        call_command("import_memories", str(development_data.PATH), verbosity=0)
        batch = ImportBatch.objects.latest("id")
        documents = load_documents()
    yield documents
    with django_db_blocker.unblock():
        call_command("import_memories", undo=str(batch.pk), force=True, verbosity=0)
        AuditEvent.objects.exclude(pk__in=audited).delete()
        ImportBatch.objects.filter(pk=batch.pk).delete()


@pytest.mark.parametrize(
    "words",
    [
        "C++",
        "rm -rf",
        "asyncio.run",
        "__init__",
        "CVE-2023-27043",
        "gh-101000",
        '"memory leak"',
        "asyncio or tkinter",
        "asyncio -subprocess",
        '+asyncio "event loop" crash hang deadlock',
        "how do I use a context manager with a lock",
        "--enable-optimizations",
        "os.path",
        "MatTooltip",
        "can't",
        "3.8.0a1",
        "the",
        "-the",
        "naïve",
        "@angular/cdk",
        "src/lib",
        "'; drop table memories_memory; --",
        "a | b & !c:*",
        "async*",
        "connections*",
        "os.pa*",
        '"event lo*"',
        "lock -dead*",
        "title:asyncio",
        "title:async*",
        'title:"memory leak*"',
        "-title:fix asyncio",
        "+title:asyncio crash hang deadlock",
        "title:release or title:docs",
    ],
)
def test_words_and_symbols_find_what_a_scan_finds(records, db, words):
    query = SearchQuery.from_mapping({"q": words, "page_size": 100})
    expected = {document.id for document in matching(records, query)}
    found = set()
    while True:
        result = run(query, command_viewer())
        found |= {hit.id for hit in result.hits}
        if not result.has_more or query.page == 30:
            break
        query = query.model_copy(update={"page": query.page + 1})
    assert result.total == len(expected)
    assert found <= expected
    assert len(found) == min(len(expected), 3_000)


QUERIES = [
    {},
    {"project": "cpython", "type": ["fix", "feature"]},
    {"category": "modules", "tag": "library", "-type": "fix"},
    {"q": "asyncio", "from": "2019-01-01", "to": "2021-12-31"},
    {"entity": "module:asyncio", "no": "author"},
    {"q": "the", "has": "entity", "-category": "releases"},
    {"tag": ["fix", "material"], "tag.all": True},
]


@pytest.mark.parametrize("arguments", QUERIES, ids=lambda arguments: urlencode(arguments, doseq=True) or "nothing")
def test_every_facet_count_equals_a_plain_count(records, db, arguments):
    query = SearchQuery.from_mapping({**arguments, "include_facets": True})
    result = run(query, command_viewer(), facet_limit=100_000)
    assert result.total == len(matching(records, query))
    for spec, found in zip(FACETS, result.facets, strict=True):
        values, no_value = facet_counts(records, query, spec.key)
        shown = {v.value: v.count for v in found.values if v.count and not v.excluded}
        excluded = set(query.selection(spec.key).exclude)
        assert shown == {value: n for value, n in values.items() if value not in excluded}, spec.key
        assert found.no_value == no_value, spec.key


@pytest.mark.parametrize("arguments", QUERIES, ids=lambda arguments: urlencode(arguments, doseq=True) or "nothing")
def test_page_api_and_direct_call_agree(records, db, admin_client, arguments):
    query = SearchQuery.from_mapping(arguments)
    direct = run(query.model_copy(update={"include_facets": True}), command_viewer(), facet_limit=1_000)
    secret = make_key(name="doors", scopes=("read",), every_project=True, viewer=command_viewer()).raw
    reply = Client().get(
        f"/api/search?include_facets=1&{query.querystring()}", headers={"authorization": f"Bearer {secret}"}
    )
    answer = json.loads(reply.content)
    assert answer["total"] == direct.total
    assert [memory["id"] for memory in answer["memories"]] == [hit.id for hit in direct.hits]
    for spec, found in zip(FACETS, direct.facets, strict=True):
        assert answer["facets"][spec.api_name] == {v.value: v.count for v in found.values if v.count or v.selected}
    page = admin_client.get(f"/explore/?{query.querystring()}").content.decode()
    heading = re.search(r"<h1[^>]*>(.*?)</h1>", page, re.DOTALL)
    assert f"{direct.total:,}" in heading[1]
    assert [int(n) for n in re.findall(r'<article[^>]*\bid="hit-(\d+)"', page)] == [hit.id for hit in direct.hits]
