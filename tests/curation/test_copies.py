"""An export of everything makes an empty instance equal to the one that it comes from, row by row of every table."""

import json
from datetime import UTC, datetime

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection

from access.keys import make_key
from access.models import ApiKey, AuditEvent
from access.viewer import command_viewer, viewer_of_key, viewer_of_user
from categories.models import Category, Concept, LocalText
from curation.models import Curation
from curation.schemas import Merge, Rename
from curation.services import curation_apply, curation_undo
from curation.suggestions.models import Suggestion
from curation.suggestions.services import policy_set, suggestion_accept, suggestion_reject, suggestion_undo
from memories.changes import changes
from memories.history import memory_history
from memories.models import Corpus, Memory, Project, Session
from memories.recalls import RecallLog
from memories.records import MemoryChanges, MemoryRecord
from memories.services import memory_create, memory_delete, memory_update
from search.models import SavedView
from search.query import SearchQuery
from search.saved_views import saved_view_create, view_mark
from tests.curation.conftest import number
from tests.memories.imports import last_batch
from transfer.export import Selection, export_lines
from transfer.tables import ROW_TABLES
from transfer.undo import batch_undo

pytestmark = pytest.mark.django_db

EVERYTHING = command_viewer()
MODELS = {model._meta.label: model for model in apps.get_models(include_auto_created=True)}
# Tables whose rows are in the lines about memories.
IN_MEMORIES = (
    *("memories.Memory", "memories.MemoryLink"),
    *("categories.CategoryLink", "categories.ConceptLink", "categories.EntityLink"),
)
_OF_MODEL = "made by the embedding model from the texts"
_OF_INDEX = "state of this machine's search index"
_PERMISSION = "who may do what is decided by each instance"
_SECRET = "signs somebody in"
_OF_MACHINE = "about files of this machine"
NOT_EXPORTED = {
    "memories.ImportBatch": "what a batch brought belongs, in a copy, to the import of the copy",
    "memories.EmbeddingModel": _OF_MODEL,
    "memories.Chunk": _OF_MODEL,
    "memories.EmbeddedMemory": _OF_MODEL,
    "memories.MapLayout": _OF_MODEL,
    "memories.MapPlace": _OF_MODEL,
    "categories.EntityVector": _OF_MODEL,
    "categories.ConceptVector": _OF_MODEL,
    "categories.CategoryVector": _OF_MODEL,
    "categories.RelationshipVector": _OF_MODEL,
    "memories.Corpus": _OF_INDEX,
    "memories.MemoryMark": "the texts of a copy are looked at again, and a person is asked again",
    "memories.OutboxEntry": _OF_INDEX,
    "memories.VectorChange": _OF_INDEX,
    "auth.User": "rows have the names of people; their accounts stay where they are",
    "auth.Group": _PERMISSION,
    "auth.Permission": _PERMISSION,
    "auth.User_groups": _PERMISSION,
    "auth.User_user_permissions": _PERMISSION,
    "auth.Group_permissions": _PERMISSION,
    "access.ApiKey_projects": _PERMISSION,
    "access.Invitation_projects": _SECRET,
    "contenttypes.ContentType": _PERMISSION,
    "admin.LogEntry": "changes of accounts in the admin; those of memories are in the audit trail",
    "access.Membership": _PERMISSION,
    "access.Invitation": _SECRET,
    "access.AppGrant": _SECRET,
    "access.SignInToken": _SECRET,
    "sessions.Session": _SECRET,
    "search.ViewFeed": _SECRET,
    "memories.MemoryRead": "who read what here, which is nobody else's business",
    "access.IdempotentReply": "replies to requests of the last day",
    "home.Visit": "when a person last looked at this instance",
    "home.ImportJob": _OF_MACHINE,
    "memories.FollowedSource": _OF_MACHINE,
    "memories.FollowedRecord": _OF_MACHINE,
    "memories.SourceConflict": _OF_MACHINE,
}
# Columns that differ in a copy: the import that brought everything, the hidden state of readers, secrets, and the
# moment at which a link was stored, which its memory's history has.
OTHERWISE = {
    "memories.Recall": ("revision",),
    "access.ApiKey": ("key_hash", "scopes", "every_project", "requests_per_minute", "revoked_at"),
    **dict.fromkeys(("categories.CategoryLink", "categories.ConceptLink", "categories.EntityLink"), ("created_at",)),
}


@pytest.fixture
def lived_in(corpus, curator):
    """The corpus after a while: people, keys, edits, curations, decisions, saved views, recalls."""
    ann = User.objects.create_superuser("ann", password="a long pass phrase")
    person = viewer_of_user(ann)
    raw = make_key(name="robot", scopes=["read", "write"], every_project=True, acts_for=ann, viewer=person).key
    robot = viewer_of_key(raw)
    memory_update(memory_id=number("t1"), changes=MemoryChanges(content="Edited by a person."), viewer=person)
    made = memory_create(
        record=MemoryRecord(content="By the robot.", project="tea", tags=["kettle", "pot"]), viewer=robot
    )
    memory_delete(memory_id=number("b3"), viewer=person, reason="Wrong.")
    for asked in (
        Rename(kind="concept", term="heat", name="warm"),
        Merge(kind="category", source="kitchen/oven", target="kitchen/brewing"),
        Merge(kind="tag", source="kettle", target="pot"),
    ):
        curation_apply(operation=asked, viewer=person)
    undone = curation_apply(operation=Rename(kind="concept", term="boiling", name="bubbling"), viewer=curator).curation
    curation_undo(curation_id=undone.pk, viewer=person)
    tea = Project.objects.get(slug="tea")
    Session.objects.create(project=tea, external_id="s-1", title="A talk", ended_at=datetime(2026, 5, 1, tzinfo=UTC))
    LocalText.objects.create(kind="tag", tag="pot", role="alias", text="vessel", project_ids=[tea.pk])
    policy_set(project=tea, category_from=0.9, concept_from=None, viewer=person)
    for at, decide in enumerate((suggestion_reject, suggestion_accept, None)):
        link = Suggestion.objects.create(
            kind="category", project=tea, fingerprint=f"f{at}", confidence=0.5, subject_id=made.pk,
            target_id=Category.objects.order_by("id")[at].pk, proposal={"path": "x"}, reason="They are alike.",
        )  # fmt: skip
        if decide:
            decide(suggestion_id=link.pk, viewer=person)
    view = saved_view_create(name="Hot", query=SearchQuery.from_pairs([("tag", "pot")]), viewer=person)
    view_mark(view=view, viewer=person, pinned=True, is_default=True)
    recalls = RecallLog()
    recalls.add([made.pk, number("t2")], by_agent=True, at=datetime.now(UTC))
    recalls.store()
    return made.pk


def exported(path):
    call_command("export_memories", str(path), verbosity=0)
    return path


def imported(path):
    call_command("import_memories", str(path), verbosity=0)
    return last_batch()


def empty():
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        for model in MODELS.values():
            if model._meta.app_label != "contenttypes" and model._meta.label != "auth.Permission":
                cursor.execute(f"DELETE FROM {model._meta.db_table}")
        cursor.execute("SET LOCAL session_replication_role = origin")
    Corpus.objects.create(id=1)


def rows(events=None):
    """The rows of every table that a copy has, with people by name; of events, those up to a number.

    The hash of a term's own terms depends on the languages that there were when they were computed.
    """
    names = dict(User.objects.values_list("pk", "username"))
    found = {}
    for label in (*IN_MEMORIES, *ROW_TABLES):
        model = MODELS[label]
        without = [*OTHERWISE.get(label, ()), "terms_hash", *(["batch_id"] if label != "access.AuditEvent" else [])]
        people = [f.column for f in model._meta.concrete_fields if f.related_model is User]
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT (to_jsonb(t) - %s::text[])::text FROM {model._meta.db_table} t", [without])
            all_rows = [json.loads(text) for (text,) in cursor.fetchall()]
        for row in all_rows:
            row.update({column: names.get(row[column]) for column in people})
            if label == "access.AuditEvent":
                # Whether it was an import; which one is another question in a copy.
                row["batch_id"] = row["batch_id"] is not None
                row["subject_id"] = "a batch" if row["subject_type"] == "importbatch" else row["subject_id"]
            for name in ("before", "after") if label == "curation.CurationChange" else ():
                row[name] = [_without_batch(one) for one in row[name]]
        if events is not None and label in events:
            all_rows = [row for row in all_rows if row["id"] <= events[label]]
        if label == "access.AuditEvent":
            all_rows = [row for row in all_rows if row["subject_type"] not in ("apikey", "user")]
        found[label] = sorted(json.dumps(row, sort_keys=True) for row in all_rows)
    return found


def _without_batch(value):
    return {k: v for k, v in value.items() if k != "batch_id"} if isinstance(value, dict) else value


def last_events():
    labels = ("access.AuditEvent", "access.MemoryChange")
    return {label: MODELS[label].objects.latest("id").pk for label in labels}


def test_every_table_is_exported_or_there_is_a_reason_why_not():
    listed = [*IN_MEMORIES, *ROW_TABLES, *NOT_EXPORTED]
    assert len(listed) == len(set(listed))
    assert sorted(listed) == sorted(MODELS)


def test_a_copy_is_equal_in_every_row_of_every_table(lived_in, tmp_path):
    before, history = rows(), memory_history(EVERYTHING, lived_in)
    last = last_events()
    counts = {label: len(found) for label, found in before.items()}
    assert [label for label, count in counts.items() if not count] == []
    path = exported(tmp_path / "all.jsonl.gz")
    empty()
    batch = imported(path)
    after = rows(last)
    for label in before:
        assert after[label] == before[label], label
    assert (batch.refused, batch.created) == (0, counts["memories.Memory"])
    assert memory_history(EVERYTHING, lived_in) == history
    assert not User.objects.get(username="ann").is_active
    assert [note["note"] for note in batch.report["notes"]] == [
        "ann: an account that cannot sign in was made for the name in the history"
    ]
    key = ApiKey.objects.get()
    assert (key.name, key.scopes, key.every_project, key.revoked_at is None) == ("robot", [], False, False)


def test_what_was_done_before_is_undone_in_a_copy(lived_in, tmp_path, curator):
    path = exported(tmp_path / "all.jsonl")
    empty()
    imported(path)
    for curation in Curation.objects.filter(undone_at=None).order_by("-id"):
        curation_undo(curation_id=curation.pk, viewer=curator)
    assert Concept.objects.filter(name="heat").exists()
    assert Category.objects.filter(path="kitchen/oven").exists()
    suggestion_undo(suggestion_id=Suggestion.objects.get(state="accepted").pk, viewer=curator)
    assert sorted(Suggestion.objects.values_list("state", flat=True)) == ["open", "open", "rejected"]


def test_the_feed_of_changes_goes_on_after_that_of_the_other_instance(lived_in, tmp_path, curator):
    path = exported(tmp_path / "all.jsonl")
    feed = [change.memory_id for change in changes(EVERYTHING, since=datetime(2000, 1, 1, tzinfo=UTC)).changes]
    empty()
    imported(path)
    memory_update(memory_id=lived_in, changes=MemoryChanges(title="Later"), viewer=curator)
    found = [change.memory_id for change in changes(EVERYTHING, since=datetime(2000, 1, 1, tzinfo=UTC)).changes]
    assert found[: len(feed)] == feed
    assert found[-1] == lived_in


def test_undoing_the_import_of_a_copy_leaves_nothing_but_the_audit_trail(lived_in, tmp_path, curator):
    path = exported(tmp_path / "all.jsonl")
    empty()
    batch = imported(path)
    batch_undo(batch_id=batch.pk, viewer=curator)
    left = {label for label, found in rows().items() if found}
    assert left == {"access.ApiKey", "access.AuditEvent", "access.MemoryChange"}
    imported(path)
    assert Memory.objects.filter(pk=lived_in).exists()
    assert (Curation.objects.count(), SavedView.objects.get().owner.username) == (4, "ann")


def test_a_copy_that_was_edited_is_not_undone_by_accident(lived_in, tmp_path, curator):
    path = exported(tmp_path / "all.jsonl")
    empty()
    batch = imported(path)
    memory_update(memory_id=number("t4"), changes=MemoryChanges(title="Later"), viewer=curator)
    with pytest.raises(Exception, match=f"1 memory was changed since .* #{number('t4')}"):
        batch_undo(batch_id=batch.pk, viewer=curator)


def test_an_instance_with_memories_takes_no_rows_and_says_so(lived_in, tmp_path, curator):
    path = exported(tmp_path / "all.jsonl")
    empty()
    memory_create(record=MemoryRecord(content="Here before."), viewer=curator)
    batch = imported(path)
    assert (batch.refused, Curation.objects.count(), SavedView.objects.count()) == (0, 0, 0)
    assert batch.report["notes"][0]["note"] == (
        "history, journals, suggestions, saved views, recalls and numbers are left out: there are memories here "
        "already; import into an empty instance to have them"
    )


def test_only_who_administrates_everything_exports_rows(lived_in):
    curator = viewer_of_user(User.objects.get())

    def has_rows(scopes):
        key = make_key(name=str(scopes), scopes=scopes, every_project=True, viewer=curator).key
        return any(line.get("record") == "row" for line in export_lines(Selection(viewer_of_key(key))))

    assert has_rows(["read", "write", "curate", "admin"])
    assert not has_rows(["read", "write", "curate"])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"table": "auth.User"}, "line 2: table: is not one that an export has"),
        ({"values": {"id": 1, "colour": "red"}}, "line 2: curation.Curation has no column 'colour' here."),
        ({"values": {"id": "x"}}, "line 2 and the 0 rows after it: cannot be stored"),
        ({"values": {"id": 1, "user_id": ["ann"]}}, "line 2 and the 0 rows after it: cannot be stored"),
        ({"table": "access.AuditEvent", "values": {"id": "x"}}, "line 2 and the 0 rows after it: cannot be stored"),
        (
            {"table": "access.AuditEvent", "values": {"id": 1, "subject_type": "importbatch", "subject_id": []}},
            "line 2 and the 0 rows after it: cannot be stored",
        ),
        (
            {"table": "curation.CurationChange", "values": {"id": 1, "before": 7}},
            "line 2 and the 0 rows after it: cannot be stored",
        ),
        (
            {"table": "memories.Project", "values": {"id": 1, "slug": "tea", "language": "elvish"}},
            "line 2 and the 0 rows after it: cannot be stored (language 'elvish' is not known).",
        ),
    ],
)
def test_rows_that_are_no_rows_of_an_export_are_refused(db, tmp_path, capsys, change, reason):
    path = tmp_path / "odd.jsonl"
    row = {"record": "row", "table": "curation.Curation", "values": {"id": 1}} | change
    lines = [{"record": "export", "version": 1}, row, {"content": "x", "stored": {"number": 1}}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    try:
        call_command("import_memories", str(path))
        said = capsys.readouterr().out
    except Exception as error:
        said = str(error)
    assert reason in said
    assert not Curation.objects.exists()


def test_a_copy_of_a_copy_names_no_batch_of_its_own_for_those_of_others(lived_in, tmp_path):
    for generation in (1, 2):
        path = exported(tmp_path / f"{generation}.jsonl")
        empty()
        batch = imported(path)
        assert batch.refused == 0
    batches = AuditEvent.objects.filter(subject_type="importbatch").order_by("id").values_list("subject_id", flat=True)
    assert [number < 0 for number in batches] == [True, True, False]
