"""Imports as a whole: validity follows from notes, links find notes that arrive later, an error is one note's."""

import json
from datetime import UTC

import pytest

from access.models import MemoryChange
from access.viewer import Viewer
from curation.schemas import Retag
from curation.services import curation_apply, curation_undo
from explorer.links import memory_url
from explorer.markdown import MOST_EMBEDDED
from explorer.memory.page import MemoryPage
from memories.models import Memory, MemoryLink, Project
from memories.queries import memory_details
from memories.records import MemoryChanges
from memories.services import memory_archive, memory_delete, memory_restore, memory_update
from tests.memories.imports import batch_counts, last_batch, run
from tests.memories.imports import failing as failing_run
from tests.memories.test_following import EVERYTHING, follow, read
from transfer.formats import markdown
from transfer.formats.registry import importer_for
from transfer.renames import archive_gone, gone_notes
from transfer.run import ImportChoices, import_path

pytestmark = pytest.mark.django_db

OLD = "---\nstatus: accepted\n---\nMySQL."
NEW = '---\nstatus: accepted\nsupersedes: "[[0001 MySQL]]"\n---\nPostgres.'


@pytest.fixture
def vault(tmp_path):
    root = tmp_path / "vault"
    root.mkdir()

    def write(name, text):
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    write.root = root
    return write


def states():
    return {one.external_id: (one.state, one.superseded_by_id) for one in Memory.objects.all()}


def number(external_id):
    return Memory.objects.get(external_id=external_id).pk


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(OLD, NEW, id="by the newer one"),
        pytest.param('---\nsuperseded-by: "[[0002 Postgres]]"\n---\nMySQL.', "Postgres.", id="by the older one"),
        pytest.param('---\nstatus: "superseded by ADR-2"\n---\nMySQL.', NEW, id="by both"),
    ],
)
def test_validity_follows_from_either_note(vault, old, new):
    vault("adr/0001 MySQL.md", old)
    vault("adr/0002 Postgres.md", new)
    run(vault.root)
    newer = number("adr/0002 Postgres.md")
    assert states()["adr/0001 MySQL.md"] == ("superseded", newer)
    assert states()["adr/0002 Postgres.md"][1] is None


def test_a_superseded_decision_stays_so_when_its_text_changes(vault):
    vault("adr/0001 MySQL.md", OLD)
    vault("adr/0002 Postgres.md", NEW)
    run(vault.root)
    vault("adr/0001 MySQL.md", f"{OLD} It was used until 2024.")
    run(vault.root)
    assert batch_counts(last_batch()) == (2, 0, 1, 1, 0)
    assert states()["adr/0001 MySQL.md"] == ("superseded", number("adr/0002 Postgres.md"))
    # A state that is new is news.
    vault("adr/0001 MySQL.md", OLD.replace("accepted", "proposed"))
    run(vault.root)
    assert states()["adr/0001 MySQL.md"][0] == "proposed"


@pytest.mark.parametrize(
    "link", ["[[Later]]", "[[later|alias]]", "![[Later#part]]", "[[notes/Later]]", "[[The Later One]]"]
)
def test_a_link_finds_its_note_when_that_arrives(vault, link):
    vault("first.md", f"See {link}.")
    follow(vault.root)
    assert MemoryLink.objects.get().target_memory_id is None
    vault("notes/Later.md", "---\ntitle: The Later One\n---\nHere.")
    assert read(vault.root)[0] == 1
    assert MemoryLink.objects.get().target_memory_id == number("notes/Later.md")


def test_a_successor_that_arrives_later_replaces_the_note_that_names_it(vault):
    vault("a.md", '---\nsuperseded-by: "[[Better]]"\n---\nA.')
    follow(vault.root)
    vault("Better.md", "B.")
    read(vault.root)
    assert states()["a.md"] == ("superseded", number("Better.md"))


def test_one_note_that_cannot_be_read_is_all_that_is_lost(vault, monkeypatch):
    def failing(found, order):
        if "bad" in found.body:
            raise TypeError("unhashable type: 'list'")
        return fields(found, order)

    fields = markdown.record_fields
    monkeypatch.setattr(markdown, "record_fields", failing)
    for name, text in {"a": "A.", "b": "bad", "c": "C."}.items():
        vault(f"{name}.md", text)
    said = run(vault.root)
    assert batch_counts(last_batch()) == (3, 2, 0, 0, 1)
    assert "b.md: cannot be read, by a mistake of this program" in said


def test_the_page_of_a_note_links_to_the_notes_that_it_names(vault):
    vault("drinks/Green Tea.md", "---\ntitle: The tea\naliases: [Sencha, Ryokucha]\n---\nTea.")
    vault("a.md", "See [[Green Tea#part|it]], [[The tea]], [[ryokucha]] and [[Nowhere]].")
    run(vault.root)
    (detail,) = memory_details(EVERYTHING, [number("a.md")]).values()
    body = MemoryPage(detail, None, UTC).body
    assert body.count(f'href="{memory_url(number("drinks/Green Tea.md"))}"') == 3
    assert "[[Nowhere]]" in body


LONG = "# Tea\n\n" + "".join(f"Leaf number {n} gives its taste.\n" for n in range(30)) + "Drink it hot.\n"


@pytest.mark.parametrize("text", [LONG, f"---\ntags: tea\n---\n{LONG}"])
@pytest.mark.parametrize("is_followed", [False, True])
def test_a_renamed_note_is_the_same_memory(vault, text, is_followed):
    vault("Tea.md", LONG)
    vault("b.md", "See [[Tea]].")
    if is_followed:
        follow(vault.root)
    else:
        run(vault.root)
    before = number("Tea.md")
    (vault.root / "Tea.md").unlink()
    vault("drinks/Green tea.md", text)
    if is_followed:
        assert read(vault.root) == (0, 1, 0, 0)
    else:
        said = run(vault.root)
        assert f"was 'Tea.md' before: its memory #{before} has the new name" in said
    assert number("drinks/Green tea.md") == before
    assert Memory.objects.filter(state="active").count() == 2


def test_notes_that_are_gone_are_listed_and_archived(vault):
    for name in ("a", "b", "c", "f", "g"):
        vault(f"{name}.md", f"A note about {name}, and about nothing else.")
    vault("d.md", "---\nid: d\nurl: https://tea.example\n---\nA note with an id and an address of its own.")
    run(vault.root)
    (vault.root / "a.md").unlink()
    (vault.root / "b.md").unlink()
    vault("e.md", "Something else that is new here, and long enough.")
    said = run(vault.root)
    assert "2 notes of earlier imports of" in said
    assert "are no longer in it: a.md, b.md. --archive-gone archives them." in said
    assert [one["place"] for one in last_batch().report["gone_notes"]] == ["a.md", "b.md"]
    assert states()["a.md"][0] == "active"
    assert "2 memories archived." in run(vault.root, archive_gone=True)
    assert (states()["a.md"][0], states()["c.md"][0]) == ("archived", "active")
    assert "no longer in it" not in run(vault.root)


def test_a_note_of_another_project_is_not_taken_for_a_renamed_one(vault):
    vault("Tea.md", LONG)
    for name in "abcd":
        vault(f"{name}.md", f"A note about {name} alone.")
    run(vault.root, project="one")
    first = number("Tea.md")
    (vault.root / "Tea.md").rename(vault.root / "Green tea.md")
    run(vault.root, project="two")
    assert Memory.objects.get(pk=first).external_id == "Tea.md"
    assert Memory.objects.get(external_id="Green tea.md").project.slug == "two"


def test_notes_of_another_source_are_not_gone(vault, tmp_path):
    for name in "abcde":
        vault(f"{name}.md", f"A note about {name} alone.")
    run(vault.root, project="one")
    other = tmp_path / "other"
    other.mkdir()
    for name in "abcd":
        (other / f"{name}.md").write_text(f"A note about {name} alone.")
    run(other, project="one")
    (other / "f.md").write_text("A note that is new, and long enough for all.")
    run(other, project="one")
    assert "gone_notes" not in last_batch().report


def test_what_is_gone_is_shown_to_those_who_may_see_it(vault):
    for name in "abcde":
        vault(f"{name}.md", f"A note about {name} alone.")
    run(vault.root, project="one")
    (vault.root / "a.md").unlink()
    vault("f.md", "A note that is new, and long enough for all.")
    run(vault.root, project="one")
    stranger = Viewer(scopes=frozenset({"read", "write"}))
    assert [one["place"] for one in gone_notes(last_batch(), EVERYTHING)] == ["a.md"]
    assert gone_notes(last_batch(), stranger) == []
    assert archive_gone(last_batch(), stranger) == 0


def test_a_project_that_is_none_puts_a_note_into_no_other(vault):
    vault("a.md", f"---\nproject: {'x' * 300}\n---\nA note for a project of a long name.")
    vault("b.md", "---\nimportance: high\n---\nAnother note.")
    run(vault.root)
    assert batch_counts(last_batch()) == (2, 1, 0, 0, 1)
    assert not Memory.objects.filter(external_id="a.md").exists()


def test_a_text_that_cannot_be_stored_is_refused_and_not_left_out(vault):
    long = "word " * 2_000_000
    vault("a.md", f"---\nstatus: accepted\n---\n{long}")
    vault("b.md", "---\nstatus: accepted\n---\nAnother note.")
    run(vault.root)
    assert {one.external_id for one in Memory.objects.all()} == {"b.md"}


def test_a_single_note_says_nothing_about_others(vault):
    vault("a.md", "A note that is imported with its folder.")
    run(vault.root)
    vault("b.md", "Another one, imported by itself.")
    run(vault.root / "b.md", project="vault")
    assert "gone_notes" not in last_batch().report


@pytest.mark.parametrize("error", [TypeError("unhashable type"), RecursionError("too deep"), KeyError("x")])
def test_a_reader_that_fails_names_the_place(vault, monkeypatch, error):
    def broken(starts):
        raise error

    vault("a.md", "A.")
    monkeypatch.setattr(markdown, "names_of", broken)
    assert "Nothing was imported: what comes at its beginning cannot be read, by a mistake of" in failing_run(
        vault.root
    )


@pytest.mark.parametrize("first", ["D-1", "D-2"])
@pytest.mark.parametrize(
    ("names", "rows"),
    [
        ("ID;Decision;Status", {"D-1": "Use MySQL;superseded by D-2", "D-2": "Use Postgres;Accepted"}),
        ("ID;Decision;Replaced by", {"D-1": "Use MySQL;D-2", "D-2": "Use Postgres;"}),
        ("ID;Decision;Replaces;State", {"D-1": "Use MySQL;;Accepted", "D-2": "Use Postgres;D-1;Accepted"}),
    ],
)
def test_validity_follows_from_a_table(tmp_path, names, rows, first):
    path = tmp_path / "decisions.csv"
    ordered = sorted(rows, key=lambda name: name != first)
    path.write_text("\n".join([names, *(f"{name};{rows[name]}" for name in ordered)]))
    run(path)
    assert states() == {"D-1": ("superseded", number("D-2")), "D-2": ("active", None)}
    path.write_text(path.read_text().replace("MySQL", "MySQL 8"))
    run(path)
    assert states()["D-1"] == ("superseded", number("D-2"))


def test_choices_hold_for_what_a_followed_folder_brings_later(vault):
    vault("Log/a.md", "---\ncreated: 03/04/2026\n---\nA.")
    run(vault.root, "--follow", "--type", "Log/=diary", "--dates", "month-first", "--all", "author=Ann")
    vault("Log/b.md", "---\ncreated: 05/06/2026\n---\nB.")
    assert read(vault.root) == (1, 0, 0, 0)
    rows = Memory.objects.order_by("external_id").values_list("memory_type", "authors", "created_at__date")
    assert [(kind, authors, day.isoformat()) for kind, authors, day in rows] == [
        ("diary", ["Ann"], "2026-03-04"),
        ("diary", ["Ann"], "2026-05-06"),
    ]


TEMPLATE = "".join(f"## Part {n} of the day\n\nNothing yet about {n}.\n" for n in range(8))


@pytest.mark.parametrize("is_followed", [False, True])
def test_notes_of_one_template_are_not_each_other(vault, is_followed):
    def bring():
        return read(vault.root) if is_followed else run(vault.root)

    for day in ("20", "21", "22"):
        vault(f"2026-01-{day}.md", f"{TEMPLATE}Met Ann about {day}.")
    follow(vault.root) if is_followed else run(vault.root)
    (vault.root / "2026-01-20.md").unlink()
    vault("2026-03-01.md", f"{TEMPLATE}Met Bob.\nAnd Cem.\nAnd Dan.")
    bring()
    assert Memory.objects.filter(content__contains="Met Ann about 20").count() == 1
    assert Memory.objects.count() == 4


@pytest.mark.parametrize("is_followed", [False, True])
def test_a_note_with_an_id_of_its_own_moves_and_is_not_gone(vault, is_followed):
    text = "---\nid: own\n---\nA text that another note has too, word by word."
    vault("old/a.md", text)
    vault("c.md", "A note that stays where it is.")
    follow(vault.root) if is_followed else run(vault.root)
    (vault.root / "old/a.md").unlink()
    vault("new/a.md", text)
    vault("b.md", text.split("---\n")[2])
    if is_followed:
        read(vault.root)
    else:
        assert "no longer in it" not in run(vault.root, archive_gone=True)
    assert set(states()) == {"own", "b.md", "c.md"}
    assert {state for state, _ in states().values()} == {"active"}


def test_another_folder_of_the_same_name_has_lost_nothing(vault):
    for n in range(4):
        vault(f"{n}.md", f"A note of the first folder, number {n}.")
    run(vault.root)
    for n in range(4):
        (vault.root / f"{n}.md").rename(vault.root / f"other {n}.md")
        vault(f"other {n}.md", f"Something else altogether, which is number {n} here.")
    assert "no longer in it" not in run(vault.root)


@pytest.mark.parametrize("has_id", [True, False])
def test_record_of_a_memory_that_was_moved_here_is_refused_and_not_stored_twice(tmp_path, has_id):
    path = tmp_path / "notes.jsonl"
    names = ("leaf", "crane") if has_id else ("", "")
    lines = [{"content": f"A note {place}.", "id": name} for place, name in enumerate(names)]

    def imported(project="one"):
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        run(path, project=project)
        return batch_counts(last_batch())

    imported()
    Project.objects.create(slug="two", name="two")
    memory = Memory.objects.get(content="A note 1.")
    memory_update(memory_id=memory.pk, changes=MemoryChanges(project="two"), viewer=EVERYTHING)
    assert imported() == (2, 0, 0, 2, 0)
    lines[1]["summary"] = "More of it."
    assert imported() == (2, 0, 0, 1, 1)
    assert "was edited since it was imported" in str(last_batch().report)
    # In another project it is a copy, not a move.
    assert imported("three") == (2, 2, 0, 0, 0)
    projects = Memory.objects.filter(content="A note 1.").order_by("pk").values_list("project__slug", flat=True)
    assert list(projects) == ["two", "three"]


def test_what_was_edited_together_stays_when_its_record_changes(vault):
    for name in "abcd":
        vault(f"{name}.md", f"A note about {name}.")
    run(vault.root, project="one")
    ids = [number("a.md"), number("b.md")]
    curation_apply(operation=Retag(memories=ids, set_type="decision"), viewer=EVERYTHING)
    undone = curation_apply(operation=Retag(memories=[number("c.md")], set_type="decision"), viewer=EVERYTHING)
    curation_undo(curation_id=undone.curation.pk, viewer=EVERYTHING)
    for name in "abcd":
        vault(f"{name}.md", f"Another note about {name}.")
    run(vault.root, project="one")
    assert batch_counts(last_batch()) == (4, 0, 2, 0, 2)
    assert Memory.objects.get(external_id="a.md").memory_type == "decision"
    run(vault.root, project="one", overwrite=True)
    assert Memory.objects.get(external_id="a.md").memory_type == "note"
    # The import is the last word until the next edit.
    vault("a.md", "A third note about a.")
    run(vault.root, project="one")
    assert batch_counts(last_batch()) == (4, 0, 1, 3, 0)


def test_undo_of_an_import_loses_nothing_that_was_edited_together_since(vault):
    some_notes(vault, "abc")
    run(vault.root, project="one")
    imported, ids = last_batch(), sorted(Memory.objects.values_list("pk", flat=True))
    Project.objects.create(slug="two", name="two")
    moved = curation_apply(operation=Retag(memories=ids[:2], set_project="two"), viewer=EVERYTHING)
    said = failing_run(undo=imported.pk)
    assert f"2 memories were changed since this import brought or changed them: #{ids[0]}, #{ids[1]}." in said
    assert Memory.objects.count() == 3
    curation_undo(curation_id=moved.curation.pk, viewer=EVERYTHING)
    run(undo=imported.pk)
    assert not Memory.objects.exists()


def test_an_edit_stays_whatever_became_of_its_note_meanwhile(vault):
    some_notes(vault, "abcdefg")
    run(vault.root, project="one")
    memory_update(memory_id=number("a.md"), changes=MemoryChanges(summary="My own."), viewer=EVERYTHING)
    curation_apply(operation=Retag(memories=[number("b.md")], set_type="decision"), viewer=EVERYTHING)
    for name in "ab":
        (vault.root / f"{name}.md").unlink()
    run(vault.root, project="one", archive_gone=True)
    some_notes(vault, "ab", "Another text about {}.")
    said = run(vault.root, project="one")
    assert said.count("was edited since it was imported") == 2
    a, b = (Memory.objects.get(external_id=f"{name}.md") for name in "ab")
    assert (a.summary, a.content[:6], b.memory_type, b.content[:6]) == ("My own.", "A note", "decision", "A note")


def body_of(external_id, viewer=EVERYTHING):
    (detail,) = memory_details(viewer, [number(external_id)]).values()
    return str(MemoryPage.read(detail, None, viewer, {}).body)


GUIDE = "# Guide\n\nIntro.\n\n## Steps\n\nPour water.\n\n### Later\n\nWait.\n\n## End\n\nDrink. ^last\n\nOver.\n"


@pytest.mark.parametrize(
    ("text", "has", "has_not"),
    [
        pytest.param("Before.\n\n![[Guide]]\n\nAfter.", ["Intro.", "Wait.", "Over.", "After."], ["[["], id="whole"),
        pytest.param("![[Guide#Steps]]", ["Pour water.", "Wait."], ["Intro.", "Drink."], id="a section"),
        pytest.param("![[Guide#^last]]", ["Drink."], ["Intro.", "^last", "Over."], id="a block"),
        pytest.param("![[guide.md]]\n![[drinks/Guide#Later]]", ["Intro."], ["[["], id="two"),
        pytest.param("- ![[Guide#Steps]]", ["<li>", "Pour water."], ["Intro."], id="in a list"),
        pytest.param("See ![[Guide]] there.", ["<p>See <a href"], ["Intro."], id="within a line it is a link"),
        pytest.param("![[Guide#Nowhere]]", ["Guide#Nowhere</a>"], ["Intro."], id="no such section"),
        pytest.param("```\n![[Guide]]\n```", ["![[Guide]]"], ["Intro."], id="in code"),
        pytest.param("![[Nowhere]]", ["![[Nowhere]]"], [], id="no such note"),
        pytest.param(
            "![[shots/tea pot.PNG|300]]", ["(shots/tea pot.PNG, a file that is not stored here)"], ["[["], id="picture"
        ),
    ],
)
def test_note_that_is_embedded_is_shown_in_place(vault, text, has, has_not):
    vault("drinks/Guide.md", GUIDE)
    vault("a.md", text)
    run(vault.root)
    body = body_of("a.md")
    assert [part for part in has if part not in body] == []
    assert [part for part in has_not if part in body] == []
    is_embedded = '<div class="embed">' in body
    assert is_embedded == ("water" in body or "Intro" in body or "Drink." in body)
    if is_embedded:
        assert f'<a href="{memory_url(number("drinks/Guide.md"))}" rel="noopener nofollow">Guide</a>' in body


def test_embedded_notes_are_shown_one_level_deep_and_never_in_themselves(vault):
    vault("a.md", "![[b]]\n\n![[a]]\n\nA text.")
    vault("b.md", "![[a]]\n\n![[c]]\n\nB text. <script>alert(1)</script>")
    vault("c.md", "C text.")
    run(vault.root)
    body = body_of("a.md")
    assert (body.count("B text."), body.count("A text."), body.count("C text.")) == (1, 1, 0)
    assert "<script" not in body
    assert body.count('<div class="embed">') == 1


def test_embedded_text_is_shown_to_those_alone_who_may_read_it(vault):
    vault("a.md", "![[b]]\n\nA text.")
    vault("b.md", "B text.")
    run(vault.root, project="one")
    two = Project.objects.create(slug="two", name="two")
    memory_update(memory_id=number("b.md"), changes=MemoryChanges(project="two"), viewer=EVERYTHING)
    one = frozenset([Project.objects.get(slug="one").pk])
    assert "B text." in body_of("a.md")
    assert "B text." in body_of("a.md", Viewer(one | {two.pk}, frozenset({"read"}), frozenset()))
    assert "B text." not in body_of("a.md", Viewer(one, frozenset({"read"}), frozenset()))
    memory_delete(memory_id=number("b.md"), viewer=EVERYTHING, reason="")
    assert "B text." not in body_of("a.md")
    assert f'href="{memory_url(number("b.md"))}"' in body_of("a.md")


@pytest.mark.parametrize("between", ["\n", "\n\n"])
def test_a_note_that_is_named_very_often_is_not_shown_each_time(vault, between):
    vault("a.md", between.join(["![[b]]"] * 500))
    vault("b.md", "B text.")
    run(vault.root)
    body = body_of("a.md")
    assert body.count("B text.") <= MOST_EMBEDDED
    assert body.count(f'href="{memory_url(number("b.md"))}"') == 500


def test_long_text_that_is_embedded_is_cut(vault):
    vault("a.md", "![[b]]")
    vault("b.md", "Long text. " * 5_000)
    run(vault.root)
    body = body_of("a.md")
    assert "The rest of it</a>" in body
    assert len(body) < 30_000


def some_notes(write, names, text="A note about {}, and about nothing else."):
    for name in names:
        write(f"{name}.md", text.format(name))


def archived_vault(vault):
    """A vault whose notes a and b were archived after they were gone."""
    some_notes(vault, "abcdefg")
    run(vault.root, project="one")
    for name in "ab":
        (vault.root / f"{name}.md").unlink()
    assert "2 memories archived." in run(vault.root, project="one", archive_gone=True)
    assert (states()["a.md"][0], states()["b.md"][0]) == ("archived", "archived")
    return last_batch()


@pytest.mark.parametrize("is_changed", [False, True])
def test_note_that_returns_is_active_again_and_the_report_says_so(vault, is_changed):
    archived_vault(vault)
    vault("a.md", "Another text about a." if is_changed else "A note about a, and about nothing else.")
    said = run(vault.root, project="one")
    assert f"is there again: its memory #{number('a.md')} is no longer archived" in said
    assert (states()["a.md"][0], states()["b.md"][0]) == ("active", "archived")
    assert batch_counts(last_batch()) == (6, 0, 1, 5, 0)
    assert Memory.objects.get(external_id="a.md").content.startswith("Another" if is_changed else "A note")
    run(undo=last_batch().pk)
    assert states()["a.md"][0] == "archived"


def test_note_that_returns_under_another_name_is_the_same_memory(vault):
    archived_vault(vault)
    before = number("a.md")
    vault("new/z.md", "A note about a, and about nothing else.")
    run(vault.root, project="one")
    assert (number("new/z.md"), states()["new/z.md"][0]) == (before, "active")


def test_memory_that_somebody_archived_stays_archived_when_its_note_returns(vault):
    archived_vault(vault)
    memory_restore(memory_id=number("a.md"), viewer=EVERYTHING)
    memory_archive(memory_id=number("a.md"), viewer=EVERYTHING, reason="Not wanted.")
    vault("a.md", "A note about a, and about nothing else.")
    run(vault.root, project="one")
    assert states()["a.md"][0] == "archived"


def test_archived_notes_come_back_with_the_undo_of_their_import(vault):
    batch = archived_vault(vault)
    run(undo=batch.pk)
    assert (states()["a.md"][0], states()["b.md"][0]) == ("active", "active")
    # The button of an import that was undone does nothing.
    batch.refresh_from_db()
    assert archive_gone(batch, EVERYTHING) == 0


def test_a_thousand_notes_are_archived_in_few_statements(vault, django_assert_max_num_queries):
    some_notes(vault, [f"n{number}" for number in range(60)])
    run(vault.root, project="one")
    for name in range(20):
        (vault.root / f"n{name}.md").unlink()
    run(vault.root, project="one")
    with django_assert_max_num_queries(30):
        assert archive_gone(last_batch(), EVERYTHING) == 20
    assert Memory.objects.filter(state="archived").count() == 20
    kinds = MemoryChange.objects.filter(kind="archived").count()
    assert kinds == 20


def test_only_memories_that_one_may_write_are_archived(vault):
    some_notes(vault, "abcdefg")
    run(vault.root, project="one")
    (vault.root / "a.md").unlink()
    run(vault.root, project="one")
    one = frozenset(Project.objects.values_list("pk", flat=True))
    reader = Viewer(one, frozenset({"read", "write"}), frozenset())
    assert archive_gone(last_batch(), reader) == 0
    assert states()["a.md"][0] == "active"


def uploaded(folder, project="one"):
    """Import a folder as if it were uploaded as `vault.zip`."""
    choices = ImportChoices(project)
    outcome = import_path(
        path=folder, importer=importer_for(folder), viewer=EVERYTHING, choices=choices, origin="vault.zip"
    )
    return [one["place"] for one in outcome.tally.gone_notes]


@pytest.mark.parametrize(
    ("project", "names", "text", "gone"),
    [
        pytest.param("one", "bcdefg", None, ["a.md"], id="the same vault"),
        pytest.param("one", "fgxyz", None, [], id="few of its notes"),
        pytest.param("one", "bcdefg", "Quite another text of {}.", [], id="the same names and other texts"),
        pytest.param("two", "bcdefg", None, [], id="another project"),
    ],
)
def test_upload_of_the_same_name_is_compared_by_places_and_texts(vault, tmp_path, project, names, text, gone):
    some_notes(vault, "abcdefg")
    uploaded(vault.root)
    other = tmp_path / "other"
    other.mkdir()
    write = lambda name, content: (other / name).write_text(content)  # noqa: E731
    some_notes(write, names, text or "A note about {}, and about nothing else.")
    assert uploaded(other, project) == gone


def test_another_upload_of_the_name_in_between_does_not_hide_what_is_gone(vault, tmp_path):
    some_notes(vault, "abcdefg")
    uploaded(vault.root)
    other = tmp_path / "other"
    other.mkdir()
    some_notes(lambda name, content: (other / name).write_text(content), [f"o{number}" for number in range(20)])
    assert uploaded(other) == []
    (vault.root / "a.md").unlink()
    assert uploaded(vault.root) == ["a.md"]
