from datetime import UTC, datetime

import pytest
from django.db import connection

from access.models import AuditEvent, MemoryChange
from access.viewer import Viewer, command_viewer
from categories.models import Category, CategoryLink, Concept, ConceptLink, Entity, MadeBy
from memories.history import memory_history
from memories.models import Corpus, Memory, Project
from memories.queries import memory_details
from memories.records import MemoryChanges, MemoryRecord
from memories.refusals import (
    AlreadyExistsError,
    ChangeRefusedError,
    MemoryNotFoundError,
    NotAllowedError,
    SuccessorError,
)
from memories.services import (
    memory_archive,
    memory_create,
    memory_delete,
    memory_restore,
    memory_update,
    memory_version_restore,
)
from memories.supersession import memory_supersede

pytestmark = pytest.mark.django_db
EVERYTHING = command_viewer()


def create(viewer=EVERYTHING, **fields):
    return memory_create(record=MemoryRecord.model_validate({"content": "A text.", **fields}), viewer=viewer)


def update(memory, viewer=EVERYTHING, **fields):
    return memory_update(memory_id=memory.pk, changes=MemoryChanges.model_validate(fields), viewer=viewer)


def member_of(*projects, writes=True, user_id=None):
    ids = frozenset(project.pk for project in projects)
    return Viewer(
        ids, frozenset({"read", "write"} if writes else {"read"}), ids if writes else frozenset(), user_id=user_id
    )


def project(slug):
    return Project.objects.create(slug=slug, name=slug)


def revision():
    return Corpus.objects.get(pk=1).revision


def found_by(word):
    """Ids that a term finds, with the weight it has there."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM memories_memory WHERE terms @@ %s::tsquery", [word])
        return [row[0] for row in cursor.fetchall()]


FULL = {
    "id": "m1",
    "project": "alpha",
    "type": "decision",
    "title": "Cache the lists",
    "summary": "Because they are slow.",
    "content": "Lists of huts are cached for a minute.",
    "tags": ["Cache", "api"],
    "categories": ["Backend/Data/Redis", "Backend"],
    "concepts": ["caching", {"name": "TTL", "type": "term", "weight": 0.25}],
    "entities": ["person:Ann", {"name": "Redis", "type": "tool"}],
    "links": [{"rel": "mentions", "target": "RF-1", "url": "https://t.example/RF-1"}],
    "created_at": "2025-01-02T03:04:05Z",
    "happened_at": "2025-01-01",
    "valid_from": "2025-01-02",
    "importance": 0.5,
    "confidence": 0.75,
    "pinned": True,
    "authors": ["Ann", "Bob"],
    "agent": "claude",
    "session": "s1",
    "source": "wiki",
    "source_url": "https://w.example/1",
}


def test_create_stores_every_field():
    memory = create(**FULL)
    assert (memory.project.slug, memory.memory_type, memory.external_id) == ("alpha", "decision", "m1")
    assert (memory.title, memory.summary) == ("Cache the lists", "Because they are slow.")
    assert memory.tags == ["cache", "api"]
    assert memory.authors == ["Ann", "Bob"]
    assert (memory.importance, memory.confidence, memory.pinned) == (0.5, 0.75, True)
    assert (memory.agent, memory.session.external_id, memory.source) == ("claude", "s1", "wiki")
    assert memory.source_uri == "https://w.example/1"
    assert memory.created_at == datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert memory.happened_at == datetime(2025, 1, 1, tzinfo=UTC)
    assert memory.state == "active"
    assert memory.raw["importance"] == 0.5
    assert "content" not in memory.raw


def test_create_keeps_links_and_facet_columns_in_step():
    memory = create(**FULL)
    by_path = dict(Category.objects.values_list("path", "id"))
    assert set(by_path) == {"backend", "backend/data", "backend/data/redis"}
    assert memory.category_ids == sorted([by_path["backend"], by_path["backend/data/redis"]])
    assert memory.category_path_ids == sorted(by_path.values())
    assert memory.concept_ids == sorted(Concept.objects.values_list("id", flat=True))
    assert memory.entity_ids == sorted(Entity.objects.values_list("id", flat=True))
    assert sorted(memory.category_links.values_list("category_id", flat=True)) == memory.category_ids
    assert set(memory.concept_links.values_list("concept__name", "weight")) == {("caching", 1.0), ("TTL", 0.25)}


def test_create_writes_an_event_and_raises_the_revision():
    before = revision()
    memory = create(project="alpha")
    event = AuditEvent.objects.get(subject_type="memory", subject_id=memory.pk)
    assert (event.verb, event.door, event.before) == ("create", "command", None)
    assert revision() == before + 1


def test_text_that_copy_would_stumble_over_is_stored_as_it_is():
    content = "back\\slash \\N \\. tab\t quote\" {brace} 'apostrophe'\r\nnext, line \\\\"
    memory = create(
        content=content, title='a "b" \\c', authors=['x "y" \\z, {w}', "NULL"], tags=['"q"', "b\\c", "null"]
    )
    assert memory.content == content
    assert memory.title == 'a "b" \\c'
    assert memory.authors == ['x "y" \\z, {w}', "NULL"]
    assert memory.tags == ['"q"', "b\\c", "null"]


def test_a_memory_that_is_there_already_is_named():
    memory = create(id="m1", project="alpha")
    with pytest.raises(
        AlreadyExistsError, match=f"alpha already has a memory with the id 'm1': #{memory.pk}"
    ) as caught:
        create(id="m1", project="alpha", content="Other.")
    assert caught.value.memory_id == memory.pk
    assert create(id="m1", project="beta").pk != memory.pk


def test_the_same_text_without_an_id_is_the_same_memory_until_it_is_deleted():
    memory = create()
    with pytest.raises(AlreadyExistsError) as caught:
        create()
    assert caught.value.memory_id == memory.pk
    memory_delete(memory_id=memory.pk, viewer=EVERYTHING, reason="old")
    assert create().pk != memory.pk


def test_without_a_project_it_goes_to_the_only_one_that_may_be_written():
    alpha = project("alpha")
    assert create(viewer=member_of(alpha)).project == alpha


@pytest.mark.parametrize("slug", ["secret", "absent"])
def test_a_project_that_may_not_be_written_is_like_one_that_is_not_there(slug):
    project("secret")
    with pytest.raises(NotAllowedError, match=rf"You cannot write to a project '{slug}'\. You can write to: alpha\."):
        create(viewer=member_of(project("alpha")), project=slug)
    assert not Project.objects.filter(slug="absent").exists()


def test_reading_alone_does_not_write():
    with pytest.raises(NotAllowedError, match="needs the scope write"):
        create(viewer=member_of(project("alpha"), writes=False))
    memory = create(project="alpha")
    reader = member_of(Project.objects.get(slug="alpha"), writes=False)
    with pytest.raises(NotAllowedError, match=f"You can read #{memory.pk} but not change it."):
        update(memory, viewer=reader, title="x")


def test_what_may_not_be_seen_is_not_found():
    memory = create(project="secret")
    stranger = member_of(project("alpha"))
    said = []
    for memory_id in (memory.pk, memory.pk + 1):
        with pytest.raises(MemoryNotFoundError) as caught:
            memory_delete(memory_id=memory_id, viewer=stranger, reason="")
        said.append(str(caught.value).replace(str(memory_id), "N"))
    assert said[0] == said[1]


def test_names_are_matched_without_regard_to_case_and_by_alias():
    Category.objects.create(
        name="Redis",
        path="data/redis",
        depth=2,
        aliases=["Cache"],
        parent=(Category.objects.create(name="Data", path="data")),
    )
    Concept.objects.create(name="Caching", aliases=["TTL"])
    Entity.objects.create(name="Ann Lee", entity_type="person", aliases=["Ann"])
    memory = create(categories=["cache", "DATA"], concepts=["caching", "ttl"], entities=["person:ann", "tool:Ann"])
    assert set(memory.category_links.values_list("category__path", flat=True)) == {"data/redis", "data"}
    assert Concept.objects.count() == 1
    assert set(Entity.objects.values_list("entity_type", "name")) == {("person", "Ann Lee"), ("tool", "Ann")}
    assert len(memory.category_path_ids) == 2


def test_links_find_memories_of_the_project_by_id_and_by_number():
    first = create(id="m1", project="alpha")
    create(id="m2", project="beta")
    memory = create(content="Links.", project="alpha", links=["m1", f"#{first.pk}", "m2"])
    assert list(memory.links.values_list("target", "target_memory_id").order_by("ordinal")) == [
        ("m1", first.pk),
        (f"#{first.pk}", first.pk),
        ("m2", None),
    ]


def test_a_dangling_link_is_resolved_when_its_target_arrives():
    memory = create(links=["m9"])
    assert memory.links.get().target_memory_id is None
    create(id="m9", project="other", content="x")
    assert memory.links.get().target_memory_id is None
    target = create(id="m9", content="y")
    assert memory.links.get().target_memory_id == target.pk


def test_a_successor_that_a_record_names_is_set_when_it_arrives():
    old = create(id="old", superseded_by="new")
    assert old.state == "active"
    new = create(id="new", content="New.")
    old.refresh_from_db()
    assert (old.state, old.superseded_by_id) == ("superseded", new.pk)
    assert AuditEvent.objects.filter(subject_id=old.pk, verb="supersede").exists()


def test_a_state_that_a_record_gives_is_kept_beside_its_successor():
    new = create(id="new")
    old = create(content="Old.", superseded_by="new", state="archived")
    assert (old.state, old.superseded_by_id) == ("archived", new.pk)


def test_update_changes_what_is_set_and_nothing_else():
    memory = create(**FULL)
    changed = update(memory, title="Cache no lists", tags=["api", "new"], importance=None)
    assert (changed.title, changed.tags, changed.importance) == ("Cache no lists", ["api", "new"], None)
    assert (changed.summary, changed.confidence, changed.category_ids) == (
        memory.summary,
        0.75,
        memory.category_ids,
    )
    assert changed.content_hash != memory.content_hash
    assert changed.updated_at > memory.updated_at
    assert found_by("'new':B") == [memory.pk]
    assert found_by("'cache':B") == []


def test_update_writes_what_changed_before_and_after():
    memory = create(**FULL)
    update(memory, title="Cache no lists", pinned=True)
    event = AuditEvent.objects.filter(subject_id=memory.pk, verb="update").get()
    assert event.before["title"] == "Cache the lists"
    assert event.after["title"] == "Cache no lists"
    assert "pinned" not in event.before
    assert "content" not in event.before


def test_update_that_changes_nothing_leaves_no_trace():
    memory = create(**FULL)
    before = revision()
    same = update(memory, title="Cache the lists", tags=["cache", "API"])
    assert same.updated_at == memory.updated_at
    assert revision() == before
    assert not AuditEvent.objects.filter(verb="update").exists()


def test_update_replaces_vocabulary_and_keeps_who_made_a_link():
    memory = create(**FULL)
    changed = update(
        memory,
        viewer=Viewer(None, frozenset({"write"}), None, user_id=1),
        categories=["backend", "Ops/Deploy"],
        concepts=["caching"],
        entities=[],
    )
    made_by = dict(CategoryLink.objects.filter(memory=memory).values_list("category__path", "made_by"))
    assert made_by == {"backend": MadeBy.IMPORT, "ops/deploy": MadeBy.HUMAN}
    assert changed.category_ids == sorted(Category.objects.filter(path__in=made_by).values_list("id", flat=True))
    assert len(changed.category_path_ids) == 3
    assert list(ConceptLink.objects.filter(memory=memory).values_list("concept__name", flat=True)) == ["caching"]
    assert (changed.entity_ids, memory.entity_links.count()) == ([], 0)


@pytest.mark.parametrize(
    ("fields", "error", "said"),
    [
        pytest.param({"project": "beta"}, ChangeRefusedError, "project: there is no project 'beta'", id="project"),
        pytest.param({"id": "taken"}, AlreadyExistsError, "already has a memory with the id 'taken'", id="taken id"),
        pytest.param(
            {"superseded_by": "gone"}, ChangeRefusedError, "'gone' is not a memory of this project", id="successor"
        ),
        pytest.param({"valid_to": "2020-01-01"}, ChangeRefusedError, "valid_to: is before valid_from", id="order"),
        pytest.param({"created_at": None}, ChangeRefusedError, "created_at: cannot be empty", id="no date"),
    ],
)
def test_update_refuses_what_makes_no_sense_and_changes_nothing(fields, error, said):
    memory = create(**FULL)
    create(id="taken", project="alpha", content="x")
    with pytest.raises(error, match=said):
        update(memory, title="Never", **fields)
    memory.refresh_from_db()
    assert memory.title == "Cache the lists"


def test_update_sets_and_clears_a_successor():
    old, new = create(id="old"), create(id="new", content="New.")
    assert (update(old, superseded_by="new").state, update(old).superseded_by_id) == ("superseded", new.pk)
    cleared = update(old, superseded_by=None)
    assert (cleared.state, cleared.superseded_by_id) == ("active", None)
    assert update(old, superseded_by=f"#{new.pk}").superseded_by_id == new.pk


def test_title_that_came_from_the_text_follows_it_and_one_that_was_written_stays():
    derived = create(content="The gate opens at five. Ring twice.")
    assert update(derived, content="The gate opens at six. Ring twice.").title == "The gate opens at six."
    assert update(derived, title="The gate", content="The gate opens at seven.").title == "The gate"
    assert update(derived, content="The gate opens at eight.").title == "The gate"


def test_restore_names_the_last_successor_and_works_where_there_is_none():
    old, middle, last = create(), create(content="Middle."), create(content="Last.")
    memory_supersede(memory_id=old.pk, by_id=middle.pk, viewer=EVERYTHING)
    memory_supersede(memory_id=middle.pk, by_id=last.pk, viewer=EVERYTHING)
    with pytest.raises(SuccessorError, match=f"superseded by #{last.pk}, 'Last.'"):
        memory_restore(memory_id=old.pk, viewer=EVERYTHING)
    memory_delete(memory_id=last.pk, viewer=EVERYTHING, reason="wrong")
    assert memory_restore(memory_id=middle.pk, viewer=EVERYTHING).state == "active"
    without = create(content="Nobody says what came after.", state="superseded")
    assert memory_restore(memory_id=without.pk, viewer=EVERYTHING).state == "active"


def test_what_was_superseded_before_it_was_deleted_is_superseded_again():
    old, new = create(), create(content="New.")
    memory_supersede(memory_id=old.pk, by_id=new.pk, viewer=EVERYTHING)
    memory_delete(memory_id=old.pk, viewer=EVERYTHING, reason="wrong")
    restored = memory_restore(memory_id=old.pk, viewer=EVERYTHING)
    assert (restored.state, restored.superseded_by_id) == ("superseded", new.pk)


def test_version_before_the_successor_is_not_restored_beside_it_unasked():
    old, new = create(), create(content="New.")
    memory_supersede(memory_id=old.pk, by_id=new.pk, viewer=EVERYTHING)
    event = memory_history(EVERYTHING, old.pk).events[-1].id
    named = {"memory_id": old.pk, "event_id": event, "viewer": EVERYTHING}
    with pytest.raises(SuccessorError):
        memory_version_restore(**named)
    assert memory_version_restore(**named, despite_successor=True).state == "active"


@pytest.mark.parametrize(
    ("changes", "tags"),
    [
        pytest.param({"add_tags": ["b"]}, ["tea", "a", "b"], id="added"),
        pytest.param({"add_tags": ["TEA", "b", "B"]}, ["tea", "a", "b"], id="what is there already"),
        pytest.param({"remove_tags": ["A", "x"]}, ["tea"], id="removed, and one that it does not have"),
        pytest.param({"add_tags": "b, c", "remove_tags": ["tea", "a"]}, ["b", "c"], id="both"),
        pytest.param({"add_tags": [], "title": "New"}, ["tea", "a"], id="none"),
    ],
)
def test_tags_are_added_and_removed_beside_those_that_others_gave(changes, tags):
    assert update(create(tags=["Tea", "a"]), **changes).tags == tags


def test_supersede_refuses_itself_rings_other_projects_and_what_is_not_there():
    a, b, c = create(), create(content="B."), create(content="C.", project="other")
    memory_supersede(memory_id=a.pk, by_id=b.pk, viewer=EVERYTHING)
    for memory_id, by_id, said in (
        (a.pk, a.pk, "cannot supersede itself"),
        (b.pk, a.pk, "is itself superseded by"),
        (a.pk, c.pk, "is in another project"),
    ):
        with pytest.raises(ChangeRefusedError, match=said):
            memory_supersede(memory_id=memory_id, by_id=by_id, viewer=EVERYTHING)
    with pytest.raises(MemoryNotFoundError):
        memory_supersede(memory_id=a.pk, by_id=0, viewer=EVERYTHING)


def test_delete_is_a_state_with_a_reason_and_restore_takes_it_back():
    memory = create(state="proposed")
    deleted = memory_delete(memory_id=memory.pk, viewer=EVERYTHING, reason="wrong")
    assert (deleted.state, deleted.state_reason) == ("deleted", "wrong")
    assert Memory.objects.filter(pk=memory.pk).exists()
    assert memory_restore(memory_id=memory.pk, viewer=EVERYTHING).state == "proposed"
    verbs = AuditEvent.objects.filter(subject_id=memory.pk).order_by("id").values_list("verb", flat=True)
    assert list(verbs) == ["create", "delete", "restore"]


def test_archive_and_restore():
    memory = create()
    assert memory_archive(memory_id=memory.pk, viewer=EVERYTHING).state == "archived"
    assert memory_restore(memory_id=memory.pk, viewer=EVERYTHING).state == "active"


def test_a_text_with_more_different_words_than_postgres_holds_is_stored_all_the_same():
    words = " ".join(f"{n:05d}" + chr(97 + n % 26) * 75 for n in range(12_000))
    memory = create(content=words[:1_000_000])
    assert found_by("'00000" + "a" * 75 + "'") == [memory.pk]


@pytest.mark.parametrize("offset", ["+23:59", "-16:00", "+15:59"])
def test_time_in_any_zone_that_can_be_written_is_stored(offset):
    memory = create(happened_at=f"2026-03-01T12:00:00{offset}", created_at=f"1970-01-02T00:00:00{offset}")
    assert memory.happened_at == datetime.fromisoformat(f"2026-03-01T12:00:00{offset}")
    assert memory.created_at == datetime.fromisoformat(f"1970-01-02T00:00:00{offset}")


# --- superseding ------------------------------------------------------------------------------------------------------


def test_new_memory_supersedes_those_that_it_names():
    older = [create(content=f"Text {n}.", id=f"m{n}") for n in range(4)]
    newer = create(
        content="The new one.",
        supersedes=["m0", f"#{older[1].pk}", older[2].pk],
        links=[{"rel": "supersedes", "target": "m3"}, {"rel": "supersedes", "target": "RFC 1"}],
    )
    for memory in older:
        memory.refresh_from_db()
        assert (memory.state, memory.superseded_by_id) == ("superseded", newer.pk)
    assert list(newer.links.values_list("rel", "target")) == [("supersedes", "RFC 1")]
    assert AuditEvent.objects.filter(verb="supersede", subject_id=older[0].pk).count() == 1


def test_link_to_the_successor_means_the_same_as_its_field():
    newer = create(content="The new one.", id="new")
    linked = create(content="One.", links=[{"rel": "superseded-by", "target": "new"}])
    named = create(content="Two.", superseded_by=newer.pk)
    changed = update(create(content="Three."), links=[{"rel": "superseded-by", "target": f"#{newer.pk}"}])
    for memory in (linked, named, changed):
        assert (memory.state, memory.superseded_by_id) == ("superseded", newer.pk)


def test_update_supersedes_others_with_its_reason():
    older, newer = create(content="Old."), create(content="New.")
    update(newer, supersedes=[older.pk])
    older.refresh_from_db()
    assert (older.state, older.superseded_by_id) == ("superseded", newer.pk)


def test_memory_that_supersedes_an_unknown_one_is_not_stored():
    before = revision() if Corpus.objects.exists() else 0
    with pytest.raises(ChangeRefusedError, match="supersedes: 'nobody' is not a memory of this project"):
        create(content="New.", supersedes=["nobody"])
    assert not Memory.objects.exists()
    assert (revision() if Corpus.objects.exists() else 0) == before


def test_memories_of_other_projects_cannot_be_superseded():
    other = create(content="Elsewhere.", project="other", id="x")
    with pytest.raises(ChangeRefusedError, match="supersedes"):
        create(content="New.", supersedes=[f"#{other.pk}"])


def test_a_store_that_supersedes_raises_the_revision_once():
    older = create(content="Old.")
    before = revision()
    create(content="New.", supersedes=[older.pk])
    assert revision() == before + 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tags": ["b"], "add_tags": ["c"]}, "tags: replaces all tags"),
        ({"add_tags": ["b"], "remove_tags": ["B"]}, "remove_tags: 'b' is also in add_tags"),
        ({"add_tags": [f"t{n}" for n in range(1_000)]}, "add_tags: the memory would have 1,001 tags"),
    ],
)
def test_contradictory_changes_of_tags_are_refused(changes, said):
    with pytest.raises(ChangeRefusedError, match=said):
        update(create(tags=["a"]), **changes)


def test_supersede_names_the_successor_and_restore_forgets_it():
    old, new = create(), create(content="New.")
    changed = memory_supersede(memory_id=old.pk, by_id=new.pk, viewer=EVERYTHING, reason="better")
    assert (changed.state, changed.superseded_by_id, changed.state_reason) == ("superseded", new.pk, "better")
    with pytest.raises(SuccessorError, match=f"#{old.pk} was superseded by #{new.pk}, 'New.', and stays so"):
        memory_restore(memory_id=old.pk, viewer=EVERYTHING)
    restored = memory_restore(memory_id=old.pk, viewer=EVERYTHING, despite_successor=True)
    assert (restored.state, restored.superseded_by_id) == ("active", None)


# --- moving to another project ----------------------------------------------------------------------------------------


def test_memory_moves_with_its_session_links_and_terms_and_comes_back():
    tea, boat = project("tea"), project("boat")
    boat.language = "german"
    boat.save()
    target = create(project="tea", id="leaf", content="Leaf.")
    memory = create(project="tea", content="Die Häuser.", session="s1", agent="claude", links=["leaf"])
    event = memory_history(EVERYTHING, memory.pk).events[0].id
    assert found_by("hauser") == [memory.pk]
    moved = update(memory, project="boat")
    assert (moved.project_id, moved.session.project_id, moved.session.external_id) == (boat.pk, boat.pk, "s1")
    # The terms are those of the language of its project.
    assert found_by("haus") == [memory.pk]
    # A link that was found stays found; readers who do not see both projects are not shown its target.
    assert moved.links.get().target_memory_id == target.pk
    assert memory_details(member_of(boat), [memory.pk])[memory.pk].links[0].memory is None
    kinds = [(row.project_id, row.kind) for row in MemoryChange.objects.filter(memory_ids=[memory.pk]).order_by("id")]
    assert kinds[-2:] == [(tea.pk, "deleted"), (boat.pk, "edited")]
    memory_version_restore(memory_id=memory.pk, event_id=event, viewer=EVERYTHING)
    again = Memory.objects.get(pk=memory.pk)
    assert (again.project_id, again.session_id, found_by("hauser")) == (tea.pk, memory.session_id, [memory.pk])


@pytest.mark.parametrize("slug", ["boat", "nowhere", ""])
def test_memory_moves_only_to_a_project_that_may_be_written_and_the_refusal_tells_no_more(slug):
    tea, boat = project("tea"), project("boat")
    memory = create(project="tea")
    readers = [Viewer(frozenset({tea.pk, boat.pk}), frozenset({"read", "write"}), frozenset({tea.pk})), member_of(tea)]
    for viewer in readers:
        with pytest.raises(ChangeRefusedError) as refused:
            update(memory, viewer=viewer, project=slug)
        assert refused.value.field == "project"
        assert "You can write to: tea." in str(refused.value)
    assert Memory.objects.get(pk=memory.pk).project_id == tea.pk
    assert not Project.objects.filter(slug="nowhere").exists()


def test_memory_does_not_move_away_from_its_successor_nor_from_what_it_replaced():
    project("tea")
    boat = project("boat")
    old, new = create(project="tea", content="Old."), create(project="tea", content="New.")
    memory_supersede(memory_id=old.pk, by_id=new.pk, viewer=EVERYTHING)
    for memory in (old, new):
        with pytest.raises(ChangeRefusedError, match=f"#{old.pk} is replaced by #{new.pk}"):
            update(memory, project="boat")
    # Without its successor it moves, in one change.
    moved = update(old, project="boat", superseded_by="")
    assert (moved.project_id, moved.state, moved.superseded_by_id) == (boat.pk, "active", None)
    # A successor in the new project may be named with the move.
    there = create(project="boat", content="There.")
    assert update(new, project="boat", superseded_by=f"#{there.pk}").state == "superseded"


def test_memory_does_not_move_where_its_id_is_taken():
    project("tea")
    project("boat")
    create(project="boat", id="one", content="There.")
    memory = create(project="tea", id="one", content="Here.")
    with pytest.raises(AlreadyExistsError, match="boat already has a memory with the id 'one'"):
        update(memory, project="boat")
    assert update(memory, project="boat", id="two").external_id == "two"


def test_project_of_before_is_named_to_those_alone_who_see_it():
    _, boat = project("tea"), project("boat")
    memory = update(create(project="tea"), project="boat")
    shown = [
        change.before
        for viewer in (EVERYTHING, member_of(boat))
        for change in memory_history(viewer, memory.pk).events[0].changes
        if change.field == "project"
    ]
    assert shown == ["tea", "another project"]
