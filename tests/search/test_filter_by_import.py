"""The facet of imports: its values and names for each viewer, and imports of followed sources."""

from datetime import UTC, datetime

import pytest
from django.core.management import call_command

from access.models import AuditEvent
from access.viewer import Viewer, command_viewer
from memories.models import FollowedSource, ImportBatch, Memory, Project
from memories.records import MemoryRecord
from memories.services import memory_create
from search.listings import facet_page
from search.plan import UnknownExclusionError
from search.query import SearchQuery
from search.result import FacetListing
from search.run import run
from search.typed import understand
from tests.search.conftest import BOTH_ENGINES, EVERY_COUNT, following_engine
from tests.search.queries import facet

DAY = datetime(2026, 11, 3, 12, tzinfo=UTC)


@pytest.fixture
def imports(db, engine, index, jsonl):
    """Three imports: two of the project tea, of which one is of a followed source with another one, and one of boat."""
    for name, project, count in (("one", "tea", 3), ("two", "tea", 2), ("three", "tea", 1), ("four", "boat", 4)):
        lines = [{"content": f"{name} {n}", "project": project} for n in range(count)]
        call_command("import_memories", str(jsonl(*lines, name=f"{name}.jsonl")), verbosity=0)
    memory_create(record=MemoryRecord(content="Written here.", project="tea"), viewer=command_viewer())
    ImportBatch.objects.update(started_at=DAY)
    found = dict(Memory.objects.exclude(batch=None).values_list("title", "batch_id"))
    ids = {title.split()[0]: batch for title, batch in found.items()}
    source = FollowedSource.objects.create(path="/home/notes/vault", format="markdown")
    ImportBatch.objects.filter(pk__in=[ids["two"], ids["three"]]).update(followed=source)
    if engine != "postgres":
        following_engine()
    return {**ids, "source": source.pk}


def values(result, key="import"):
    return {v.label: v.count for v in facet(result, key).values}


def viewer_of(*slugs, **fields):
    ids = Project.objects.filter(slug__in=slugs).values_list("pk", flat=True)
    return Viewer(project_ids=frozenset(ids), scopes=frozenset({"read", "write"}), **fields)


@EVERY_COUNT
def test_imports_are_counted_and_named_by_what_was_imported(imports, everyone):
    result = run(SearchQuery(), everyone, include_facets=True)
    assert values(result) == {
        f"{name}.jsonl, jsonl, 3 Nov 2026": n
        for name, n in zip(["four", "one", "two", "three"], [4, 3, 2, 1], strict=True)
    }
    assert facet(result, "import").no_value == 1
    one = SearchQuery(import_=(str(imports["one"]),))
    assert (run(one, everyone).total, run(one.toggle_exclusion("import", str(imports["one"])), everyone).total) == (
        3,
        8,
    )
    assert run(SearchQuery(no=("import",)), everyone).total == 1
    assert run(SearchQuery(has=("import",)), everyone).total == 10
    both = one.toggle("import", str(imports["four"]))
    assert run(both, everyone).total == 7
    assert both.querystring() == f"import={imports['one']}&import={imports['four']}"
    assert understand(SearchQuery(text=f"import:{imports['two']} two")).query.import_ == (str(imports["two"]),)


@BOTH_ENGINES
def test_a_followed_source_is_all_of_its_imports_in_one_row(imports, everyone):
    name = f"followed:{imports['source']}"
    result = run(SearchQuery(import_=(name,)), everyone, include_facets=True)
    assert result.total == 3
    assert result.labels["import", name] == "vault, followed"
    rows = {v.label: (v.value, v.count, v.selected) for v in facet(result, "import").values}
    assert rows.pop("vault, followed") == (name, 3, True)
    assert {value for value, _, selected in rows.values() if not selected} == {
        str(imports["one"]),
        str(imports["four"]),
    }
    assert facet(result, "import").distinct == 3
    without = run(SearchQuery(not_import=(name,)), everyone, include_facets=True)
    assert without.total == 8
    assert {v.label: (v.count, v.excluded) for v in facet(without, "import").values}["vault, followed"] == (3, True)


@BOTH_ENGINES
def test_readers_of_some_projects_see_neither_other_imports_nor_origins(imports):
    viewer = viewer_of("tea")
    result = run(SearchQuery(), viewer, include_facets=True)
    assert values(result) == {
        f"Import {imports[name]}, 3 Nov 2026": n for name, n in (("one", 3), ("two", 2), ("three", 1))
    }
    for hidden in (imports["four"], 999_999_999):
        result = run(SearchQuery(import_=(str(hidden),)), viewer, include_facets=True)
        assert (result.total, [w.message for w in result.warnings]) == (0, [f"No import is named “{hidden}”."])
        with pytest.raises(UnknownExclusionError):
            run(SearchQuery(not_import=(str(hidden),)), viewer)
    name = f"followed:{imports['source']}"
    assert run(SearchQuery(import_=(name,)), viewer).labels["import", name] == f"Followed source {imports['source']}"
    assert run(SearchQuery(import_=(name,)), viewer_of("boat")).total == 0
    assert not run(SearchQuery(import_=(name,)), viewer_of("boat")).labels


def test_who_imported_something_reads_its_name(imports, django_user_model):
    user = django_user_model.objects.create(username="ada")
    AuditEvent.objects.filter(verb="import", subject_id=imports["one"]).update(user=user)
    labels = set(values(run(SearchQuery(), viewer_of("tea", user_id=user.pk), include_facets=True)))
    assert labels == {"one.jsonl, jsonl, 3 Nov 2026", *(f"Import {imports[n]}, 3 Nov 2026" for n in ("two", "three"))}
    other = viewer_of("tea", user_id=user.pk + 1)
    assert "one.jsonl, jsonl, 3 Nov 2026" not in values(run(SearchQuery(), other, include_facets=True))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("nonsense", id="no number"),
        pytest.param("9" * 30, id="too large"),
        pytest.param("-1", id="negative"),
        pytest.param("followed:x", id="no number of a source"),
        pytest.param("other:1", id="another kind"),
        pytest.param("²", id="a digit that is no number"),
    ],
)
def test_what_is_no_import_matches_nothing(imports, everyone, name):
    result = run(SearchQuery(import_=(name,)), everyone, include_facets=True)
    assert (result.total, len(result.warnings)) == (0, 1)


def test_values_page_searches_and_sorts_by_name(imports, everyone):
    page = facet_page(SearchQuery(), "import", FacetListing(sort="name"), everyone)
    assert [v.label.split(".")[0] for v in page.facet.values] == ["four", "one", "three", "two"]
    found = facet_page(SearchQuery(), "import", FacetListing(search="tw"), everyone)
    assert [v.value for v in found.facet.values] == [str(imports["two"])]


def test_an_undone_import_has_no_memories_left(imports, everyone):
    call_command("import_memories", undo=imports["one"], verbosity=0)
    result = run(SearchQuery(import_=(str(imports["one"]),)), everyone, include_facets=True)
    assert result.total == 0
    assert result.labels["import", str(imports["one"])] == "one.jsonl, jsonl, 3 Nov 2026"
