"""Vaults that come in go out as the same files, with what was edited here and nothing else."""

import io
from dataclasses import fields, replace
from datetime import UTC, datetime
from random import Random

import pytest
from django.core.management import call_command

from access.viewer import command_viewer
from memories.models import ImportBatch, Memory
from memories.records import MemoryChanges, MemoryRecord
from memories.services import memory_archive, memory_create, memory_delete, memory_link, memory_update
from memories.snapshot import MemorySnapshot
from memories.supersession import memory_supersede
from tests.memories.imports import run
from tests.memories.vaults import dead_links, exported_vault, made_vault, write_vault
from transfer.formats import note_files, vault

pytestmark = pytest.mark.django_db

EVERYTHING = command_viewer()
_COMPARED = (
    *("content", "title", "summary", "tags", "state", "memory_type", "authors", "happened_at", "valid_to", "pinned"),
    *("importance", "agent"),
)


def imported(tmp_path, files, name="vault", **options):
    root = write_vault(tmp_path / name, files)
    run(root, format="markdown", **options)
    return root


def check_unedited(tmp_path, seed):
    files = made_vault(Random(seed))
    imported(tmp_path, files, f"vault{seed}")
    assert exported_vault(f"vault{seed}", projects=[f"vault{seed}"]) == files, f"seed {seed}"


def changes_drawn(random, memory):
    """An edit of a memory; each changes something."""
    day = datetime(2024, random.randrange(1, 13), random.randrange(1, 28), tzinfo=UTC)
    return random.choice(
        (
            {"title": f"Renamed: {memory.pk} ‘so’ #{random.randrange(99)}"},
            {"content": f"# A new text {memory.pk}\n\nWith *two* paragraphs.\n\n- and a list {random.randrange(99)}"},
            {"add_tags": [f"new-{random.randrange(9)}", "ünï"]},
            {"tags": [f"only-{random.randrange(9)}"]},
            {"remove_tags": list(memory.tags), "add_tags": [f"left-{len(memory.tags)}"]},
            {"type": f"kind-{random.randrange(9)}"},
            {"created_at": day},
            {"happened_at": day.replace(hour=9)},
            {"valid_to": datetime(2031, 1, 1, tzinfo=UTC)},
            {"summary": "In short: yes.\nAnd no."},
            {"authors": ["Cem", "Dora"]},
            {"categories": ["Kitchen/Oven", "New/Place"]},
            {"importance": round(random.random(), 2), "pinned": not memory.pinned},
            {"agent": "an-agent"},
        )
    )


def edit_some(random, project):
    """Edits a third of the memories of a project. Returns those that were edited, by path."""
    found = list(Memory.objects.filter(project__slug=project).order_by("pk"))
    chosen = random.sample(found, max(1, len(found) // 3)) if found else []
    for memory in chosen:
        others = [one for one in found if one.pk != memory.pk and one.superseded_by_id is None and one not in chosen]
        kind = random.random()
        if kind < 0.1 and memory.state in ("active", "proposed"):
            memory_archive(memory_id=memory.pk, viewer=EVERYTHING, reason="Old.")
        elif kind < 0.2 and others and memory.superseded_by_id is None:
            memory_supersede(memory_id=memory.pk, by_id=random.choice(others).pk, viewer=EVERYTHING)
        elif kind < 0.3 and others:
            memory_link(memory_id=memory.pk, target_id=random.choice(others).pk, rel="explains", viewer=EVERYTHING)
        else:
            for _ in range(random.randrange(1, 4)):
                memory.refresh_from_db()
                changes = MemoryChanges.model_validate(changes_drawn(random, memory))
                memory_update(memory_id=memory.pk, changes=changes, viewer=EVERYTHING)
    return {one.raw["note_file"]["path"]: one.pk for one in Memory.objects.filter(pk__in=[one.pk for one in chosen])}


def check_edited(tmp_path, seed):
    random, slug = Random(seed), f"vault{seed}"
    files = made_vault(random)
    imported(tmp_path, files, slug)
    changed = edit_some(random, slug)
    out = exported_vault(slug, projects=[slug])
    assert out.keys() == files.keys(), f"seed {seed}"
    assert {name for name in files if out[name] != files[name]} <= changed.keys(), f"seed {seed}"
    assert not dead_links(out) - dead_links(files), f"seed {seed}"
    imported(tmp_path / "again", out, slug, project=f"again{seed}")
    for path, pk in changed.items():
        here = Memory.objects.get(pk=pk)
        there = Memory.objects.get(project__slug=f"again{seed}", raw__note_file__path=path)
        encoding = "utf-16" if out[path][:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
        is_matter_alone = out[path].decode(encoding, errors="replace").rstrip().endswith(("---", "...", "+++"))
        for name in _COMPARED[is_matter_alone:]:
            ours, theirs = getattr(here, name), getattr(there, name)
            ours, theirs = (sorted(one) if isinstance(one, list) else one for one in (ours, theirs))
            ours, theirs = (one.strip() if isinstance(one, str) else one for one in (ours, theirs))
            assert ours == theirs, f"seed {seed}: {name} of {path}: {out[path]!r}"
        assert here.category_ids == there.category_ids, f"seed {seed}: {path}: {out[path]!r}"
        assert (here.superseded_by_id is None) == (there.superseded_by_id is None), f"seed {seed}: {path}"
        added = {one.links.filter(rel="explains").count() for one in (here, there)}
        assert len(added) == 1, f"seed {seed}: {path}: {out[path]!r}"


@pytest.mark.parametrize("seed", range(12))
def test_a_vault_goes_out_byte_for_byte(tmp_path, seed):
    check_unedited(tmp_path, seed)


@pytest.mark.parametrize("seed", range(100, 124))
def test_edits_are_in_their_notes_and_nowhere_else(tmp_path, seed):
    check_edited(tmp_path, seed)


@pytest.mark.release
def test_a_thousand_vaults_go_out_byte_for_byte(tmp_path):
    for seed in range(1_000, 2_000):
        check_unedited(tmp_path, seed)


@pytest.mark.release
def test_edits_of_three_hundred_vaults_are_in_their_notes_and_nowhere_else(tmp_path):
    for seed in range(2_000, 2_300):
        check_edited(tmp_path, seed)


NOTE = "---\ntitle: Oolong\ntags: [Green Tea, hot]\nstatus: Accepted\naliases: [Wulong]\ncssclass: wide\n---\n\nText.\n"


def note_of(title="Oolong"):
    return Memory.objects.get(title=title)


def changed(named="Oolong", **changes):
    memory_update(memory_id=note_of(named).pk, changes=MemoryChanges(**changes), viewer=EVERYTHING)


@pytest.mark.parametrize(
    ("changes", "former", "now"),
    [
        pytest.param({"add_tags": ["new"]}, "tags: [Green Tea, hot]", "tags: [Green Tea, hot, new]", id="a tag more"),
        pytest.param({"remove_tags": ["hot"]}, "tags: [Green Tea, hot]", "tags: [Green Tea]", id="a tag less"),
        pytest.param({"state": "archived"}, "status: Accepted", "status: Archived", id="a state"),
        pytest.param({"content": "Other."}, "Text.", "Other.", id="a text"),
        pytest.param(
            {"title": "Black"},
            "title: Oolong\n",
            "title: Black\n",
            id="a title",
        ),
        pytest.param(
            {"importance": 0.5, "type": "decision"},
            "cssclass: wide\n",
            "cssclass: wide\nmnemoscope:\n  importance: 0.5\n  type: decision\n",
            id="fields that the note has not",
        ),
    ],
)
def test_an_edit_is_in_the_note_s_own_field_if_it_has_one(tmp_path, changes, former, now):
    imported(tmp_path, {"a.md": NOTE.encode()})
    changed(**changes)
    text = exported_vault("vault")["a.md"].decode()
    if "title" in changes:
        now, text = now, text.replace("mnemoscope:\n  aliases:\n  - Oolong\n", "")
    assert text == NOTE.replace(former, now)


def test_a_state_has_the_word_of_its_vault(tmp_path):
    other = b"---\nstatus: deprecated\n---\nOld."
    imported(tmp_path, {"a.md": NOTE.encode(), "b.md": other})
    memory_archive(memory_id=note_of().pk, viewer=EVERYTHING, reason="Old.")
    assert b"\nstatus: Deprecated\n" in exported_vault("vault")["a.md"]


def test_a_title_that_others_link_to_is_still_found(tmp_path):
    files = {"a.md": NOTE.encode(), "b.md": b"See [[Oolong]]."}
    imported(tmp_path, files)
    changed(title="Black")
    out = exported_vault("vault")
    imported(tmp_path / "again", out, project="again")
    link = Memory.objects.get(project__slug="again", title="b").links.get()
    assert link.target_memory.title == "Black"


def test_an_edit_that_is_taken_back_leaves_the_bytes(tmp_path):
    files = {"a.md": NOTE.replace("\n", "\r\n").encode()}
    imported(tmp_path, files)
    changed(title="Black", content="Other.")
    changed("Black", title="Oolong", content="Text.")
    assert exported_vault("vault") == files


def test_what_an_import_supersedes_is_no_edit(tmp_path):
    files = {"1.md": b"# Old\n\nOne.\n", "2.md": b"---\nsupersedes: '[[1]]'\n---\n\n# New\n"}
    root = imported(tmp_path, {"1.md": files["1.md"]})
    write_vault(root, files)
    run(root, format="markdown")
    assert note_of("Old").state == "superseded"
    assert exported_vault("vault") == files


def test_bytes_that_make_no_other_record_are_the_newest(tmp_path):
    root = imported(tmp_path, {"a.md": b"# A\n\nOne.\n"})
    changed("A", add_tags=["mine"])
    write_vault(root, {"a.md": b"\r\n# A\r\n\r\nOne.\r\n\r\n"})
    run(root, format="markdown")
    assert exported_vault("vault") == {
        "a.md": b"---\r\nmnemoscope:\r\n  tags:\r\n  - mine\r\n---\r\n\r\n# A\r\n\r\nOne.\r\n\r\n"
    }


def test_notes_of_earlier_versions_get_their_files_with_the_next_import(tmp_path):
    files = {"a.md": b"# A\n\nOne.\n"}
    root = imported(tmp_path, files)
    Memory.objects.update(raw={"id": "a.md"})
    run(root, format="markdown")
    assert exported_vault("vault") == files


def test_files_that_became_no_memories_are_there_too(tmp_path):
    files = {
        "a.md": b"[[empty]] [[odd]]",
        "empty.md": b"\n",
        "odd.md": b"caf\xe9",
        "A.md": b"other",
        "b/A.md": b"other",
    }
    root = imported(tmp_path, files)
    assert exported_vault("vault") == files
    (root / "odd.md").unlink()
    run(root, format="markdown")
    assert "odd.md" not in exported_vault("vault")


def test_a_deleted_note_stays_out_unless_others_link_to_it(tmp_path):
    imported(tmp_path, {"a.md": NOTE.encode(), "b.md": b"# B\n\n[[a]]", "c.md": b"# C"})
    memory_delete(memory_id=note_of().pk, viewer=EVERYTHING, reason="Wrong.")
    memory_delete(memory_id=note_of("C").pk, viewer=EVERYTHING, reason="Wrong.")
    out = exported_vault("vault")
    assert out.keys() == {"a.md", "b.md"}
    assert b"\nstatus: Deleted\n" in out["a.md"]


def test_memories_that_came_from_no_note_are_new_notes_beside(tmp_path):
    imported(tmp_path, {"Oolong.md": NOTE.encode(), "sub/Kettle.md": b"# K"})
    for title in ("oolong", "Kettle", "../../etc/passwd", "A/B: C?"):
        record = MemoryRecord(content="Made here.", title=title, project="vault", links=["sub/Kettle.md"])
        memory_create(record=record, viewer=EVERYTHING)
    out = exported_vault("vault")
    number = note_of("oolong").pk
    assert out.keys() == {
        *("Oolong.md", "sub/Kettle.md", f"oolong ({number}).md", "Kettle.md", "etc passwd.md", "A B C.md")
    }
    assert b"- links-to [[sub/Kettle]]" in out["Kettle.md"]


def test_a_copy_by_json_lines_knows_the_edits(tmp_path):
    imported(tmp_path, {"a.md": NOTE.encode(), "b.md": b"# B\n"})
    changed(add_tags=["new"])
    before = exported_vault("vault")
    lines = tmp_path / "copy.jsonl"
    call_command("export_memories", str(lines), project=["vault"], stderr=io.StringIO())
    run("--undo", ImportBatch.objects.latest("id").pk, force=True)
    assert not Memory.objects.exists()
    run(lines)
    assert exported_vault("vault") == before
    assert b"new" in before["a.md"]


@pytest.mark.parametrize(
    "path",
    [
        *("../out.md", "/etc/out.md", "a/../../out.md", "a\\..\\out.md", "", "a//b.md", 7, "main.js", "a.md.html"),
        *(".obsidian/plugins/one/main.js", ".claude/commands/do.md", "a/.hidden.md"),
    ],
)
def test_a_path_that_somebody_invented_leads_nowhere(tmp_path, jsonl, path):
    note = {"path": path, "head": "", "vault": "..", "whole": "not base64"}
    run(jsonl({"content": "Text.", "title": "A", "project": "p", "note_file": note}))
    run(jsonl({"content": "Text 2.", "title": "B", "project": "p", "note_file": note | {"vault": "", "whole": ""}}))
    assert exported_vault("p").keys() == {"A.md", "B.md"}


@pytest.mark.parametrize(
    "matter",
    [
        "---\nlinks: [{rel: [a], target: {b: c}}, 5]\n---\n",
        "---\ntitle: Old\nmnemoscope:\n  aliases: {a: 1}\n---\n",
        "---\ntitle: Old\nmnemoscope:\n  aliases: [[a], {b: c}, 7]\n  links: 7\n---\n",
        "+++\nlinks = [{rel=[1]}]\n+++\n",
    ],
)
def test_edits_of_notes_with_any_front_matter_are_exported(tmp_path, matter):
    imported(tmp_path, {"a.md": f"{matter}Text.\n".encode()})
    changes = MemoryChanges(title="New title", links=[{"rel": "see", "target": "Tea"}])
    memory_update(memory_id=Memory.objects.get().pk, changes=changes, viewer=EVERYTHING)
    assert b"New title" in exported_vault("vault")["a.md"]
    assert b"Tea" in exported_vault("vault")["a.md"]


@pytest.mark.parametrize("year", [1, 1979, 2107, 2108, 2150, 9998])
def test_a_memory_of_any_date_is_exported(year):
    day = datetime(year, 1, 1, tzinfo=UTC)
    memory_create(record=MemoryRecord(content="Text.", title="A", project="p", updated_at=day), viewer=EVERYTHING)
    assert exported_vault("p").keys() == {"A.md"}


def test_an_export_has_no_files_of_projects_that_its_reader_may_not_see(tmp_path):
    imported(tmp_path, {"a.md": b"# A", "empty.md": b""}, "mine")
    imported(tmp_path, {"a.md": b"# A", "hidden.md": b""}, "theirs")
    viewer = replace(EVERYTHING, project_ids=frozenset([note_of_project("mine").project_id]))
    assert exported_vault("mine", viewer).keys() == {"a.md", "empty.md"}
    assert exported_vault("theirs", viewer) == {}


def note_of_project(slug):
    return Memory.objects.get(project__slug=slug)


def test_each_field_of_a_memory_is_known_to_be_edited_or_not():
    """A new field is added to `note_files`, or here if no edit of it belongs into a note."""
    by_import = {"record_hash", "raw", "batch_id", "source", "external_id", "source_uri", "trust"}
    by_itself = {"id", "updated_at", "state_reason"}
    known = {*note_files._FIELDS.values(), *note_files._STATE.values()}
    assert known | by_import | by_itself == {field.name for field in fields(MemorySnapshot)}


def test_a_mistake_with_one_note_ends_no_export(tmp_path, monkeypatch):
    files = {"Tea.md": NOTE.encode(), "Other.md": b"# Other\n\nText.\n"}
    imported(tmp_path, files)
    changed(title="Black")

    def fail(note, line, around):
        if line["title"] == "Black":
            raise RuntimeError("no way")
        return note.original(line["content"])

    monkeypatch.setattr(vault, "edited_note", fail)
    out = exported_vault("vault")
    assert out["Other.md"] == files["Other.md"]
    assert b"title: Black" in out["Tea.md"]
