"""Notes are known again, whatever their vault is called now, and wherever they were moved here."""

import zipfile

import pytest

from access.viewer import Viewer, command_viewer
from curation.schemas import Retag
from curation.services import curation_apply
from memories.models import ImportBatch, Memory, MemoryLink, Project
from memories.records import MemoryChanges
from memories.services import memory_update
from tests.memories.test_following import follow
from transfer.blocks import validate_source
from transfer.formats.base import Options, SourceRecord
from transfer.formats.registry import importer_for
from transfer.match import count_known
from transfer.run import ImportChoices, import_path
from transfer.undo import batch_undo

pytestmark = pytest.mark.django_db
EVERYTHING = command_viewer()
NOTES = {f"Notes/{name}.md": f"A note about {name}, with some words of its own." for name in "abcdef"}


@pytest.fixture
def vault(tmp_path):
    def write(files, name="vault"):
        for place, text in files.items():
            path = tmp_path / name / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path / name

    return write


def zipped(folder, name):
    path = folder.parent / name
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*.md")):
            archive.write(file, file.relative_to(folder.parent))
    return path


def imported(path, viewer=EVERYTHING, origin="", project="one"):
    choices = ImportChoices(project)
    found = import_path(path=path, importer=importer_for(path), viewer=viewer, choices=choices, origin=origin)
    tally = found.tally
    return tally.created, tally.updated, tally.unchanged, tally.refused


def memory(name):
    return Memory.objects.get(external_id=f"Notes/{name}.md")


def edited_here():
    """Move two notes to another project, rename one, and edit one."""
    Project.objects.get_or_create(slug="two", name="two")
    memory_update(memory_id=memory("a").pk, changes=MemoryChanges(project="two"), viewer=EVERYTHING)
    curation_apply(operation=Retag(memories=[memory("b").pk], set_project="two"), viewer=EVERYTHING)
    memory_update(memory_id=memory("b").pk, changes=MemoryChanges(title="Another name"), viewer=EVERYTHING)
    memory_update(memory_id=memory("c").pk, changes=MemoryChanges(content="Edited here."), viewer=EVERYTHING)


@pytest.mark.parametrize("way", ["folder", "zip", "other name", "followed"])
def test_a_vault_is_known_again_whatever_it_is_called(vault, way):
    folder = vault(NOTES)
    assert imported(zipped(folder, "one.zip"), origin="one.zip") == (6, 0, 0, 0)
    edited_here()
    before = list(Memory.objects.order_by("pk").values("pk", "title", "content", "project__slug", "updated_at"))
    if way == "followed":
        follow(folder, project="one")
    else:
        path = folder if way == "folder" else zipped(folder, "two.zip" if way == "other name" else "one.zip")
        assert imported(path, origin=path.name) == (0, 0, 6, 0)
    assert list(Memory.objects.order_by("pk").values("pk", "title", "content", "project__slug", "updated_at")) == before


def test_a_moved_note_that_changes_is_changed_where_it_is(vault):
    folder = vault(NOTES)
    imported(folder)
    Project.objects.create(slug="two", name="two")
    for name in "abc":
        curation_apply(operation=Retag(memories=[memory(name).pk], set_project="two"), viewer=EVERYTHING)
    vault({"Notes/a.md": "Another text about a.", "Notes/d.md": "Another text about d."})
    # A move is an edit, which the note does not undo.
    assert imported(zipped(folder, "other.zip"), origin="other.zip") == (0, 1, 4, 1)
    assert memory("a").content == NOTES["Notes/a.md"]
    assert memory("d").content == "Another text about d."


def test_another_vault_with_notes_at_the_same_places_is_not_taken_for_it(vault):
    imported(vault(NOTES))
    Project.objects.create(slug="two", name="two")
    ids = list(Memory.objects.values_list("pk", flat=True))
    curation_apply(operation=Retag(memories=ids, set_project="two"), viewer=EVERYTHING)
    other = {place: f"Something else altogether: {place}." for place in NOTES}
    # One of them is equal, such as a template.
    other["Notes/a.md"] = NOTES["Notes/a.md"]
    assert imported(vault(other, "other"), origin="other") == (6, 0, 0, 0)
    assert Memory.objects.filter(pk__in=ids, project__slug="two").count() == 6
    assert set(Memory.objects.exclude(pk__in=ids).values_list("project__slug", flat=True)) == {"one"}


def test_a_copy_in_another_project_is_no_move(vault):
    folder = vault(NOTES)
    imported(folder)
    assert imported(folder, project="two") == (6, 0, 0, 0)


@pytest.mark.parametrize("sees_it", [True, False])
def test_a_note_moved_to_where_the_importer_may_not_write_stays(vault, sees_it):
    folder = vault(NOTES)
    imported(folder)
    one, two = Project.objects.get(slug="one"), Project.objects.create(slug="two", name="two")
    curation_apply(operation=Retag(memories=[memory("a").pk, memory("b").pk], set_project="two"), viewer=EVERYTHING)
    ids = frozenset({one.pk, two.pk} if sees_it else {one.pk})
    viewer = Viewer(ids, frozenset({"read", "write"}), frozenset({one.pk}))
    vault({"Notes/a.md": "Another text about a."})
    moved = Memory.objects.filter(project=two).order_by("pk")
    before = list(moved.values())
    # A hidden note must not be known either.
    assert imported(folder, viewer) == ((0, 0, 5, 1) if sees_it else (2, 0, 4, 0))
    assert list(moved.values()) == before
    if sees_it:
        assert "moved to a project that you cannot write to" in str(ImportBatch.objects.latest("pk").report)


def records_of(folder, project):
    found = importer_for(folder).read(folder, Options(project=project)).records
    return [validate_source(one) for one in found if isinstance(one, SourceRecord)]


def test_a_preview_counts_what_is_here_already(vault):
    folder = vault(NOTES)
    assert not count_known(records_of(folder, "other"), EVERYTHING)
    imported(folder)
    edited_here()
    vault({"Notes/f.md": "Another text.", "Notes/new.md": "A new note."})
    # As the file, whatever the project is called.
    assert count_known(records_of(folder, "other"), EVERYTHING) == {"one": 3, "two": 2}
    one = Project.objects.get(slug="one")
    assert count_known(records_of(folder, "other"), Viewer(frozenset({one.pk}), frozenset({"read"}))) == {"one": 3}


def test_another_vault_overwrites_no_note_at_the_same_place(vault):
    assert imported(vault(NOTES)) == (6, 0, 0, 0)
    other = {"Notes/a.md": "Quite another text.", "Notes/x.md": "A new note of the other vault."}
    assert imported(vault(other, "garden")) == (1, 0, 0, 1)
    assert memory("a").content.startswith("A note about a")
    assert "another note of this name" in str(ImportBatch.objects.latest("id").report)


def test_a_vault_that_is_called_otherwise_now_takes_its_changes_along(vault):
    assert imported(vault(NOTES)) == (6, 0, 0, 0)
    assert imported(vault(NOTES | {"Notes/a.md": "Changed since."}, "renamed")) == (0, 1, 5, 0)
    assert memory("a").content == "Changed since."


def test_a_vault_of_another_name_comes_in_once(vault):
    notes = NOTES | {"Notes/o.md": "---\nproject: oven\n---\nA note of the oven."}
    assert imported(vault(notes), project="") == (7, 0, 0, 0)
    assert imported(zipped(vault(notes, "archive"), "archive.zip"), project="") == (0, 0, 7, 0)
    assert set(Memory.objects.values_list("project__slug", flat=True)) == {"vault", "oven"}


def test_a_vault_goes_into_another_project_if_that_is_named(vault):
    assert imported(vault(NOTES), project="") == (6, 0, 0, 0)
    assert imported(vault(NOTES, "archive"), project="copy") == (6, 0, 0, 0)


def test_an_undo_gives_links_their_targets_back(vault):
    assert imported(vault(NOTES | {"Notes/a.md": "See [[b]]."})) == (6, 0, 0, 0)
    assert MemoryLink.objects.get(memory=memory("a")).target_memory_id == memory("b").pk
    assert imported(vault({"Notes/a.md": "No link any more."})) == (0, 1, 5, 0)
    batch_undo(batch_id=ImportBatch.objects.latest("id").pk, viewer=EVERYTHING)
    assert memory("a").content == "See [[b]]."
    assert MemoryLink.objects.get(memory=memory("a")).target_memory_id == memory("b").pk


def test_a_vault_of_a_third_name_takes_its_changes_along(vault):
    assert imported(vault(NOTES), project="") == (6, 0, 0, 0)
    assert imported(vault(NOTES | {"Notes/a.md": "Changed since."}, "renamed"), project="") == (0, 1, 5, 0)
    assert memory("a").content == "Changed since."
    assert set(Memory.objects.values_list("project__slug", flat=True)) == {"vault"}
