"""Notes as people have them: odd front matter, states, dates and links come in right, and a mistake is one field's."""

import os
import time

import pytest

from access.viewer import command_viewer
from memories.models import MemoryLink
from memories.records import MemoryRecord
from transfer.blocks import validate_source
from transfer.formats import documents, markdown
from transfer.formats.base import Options, RefusedRecord, SourceRecord
from transfer.formats.registry import importer_for
from transfer.formats.states import Status, read_status
from transfer.run import ImportChoices, import_path

FILE_DAY = "2023-11-14"


@pytest.fixture
def notes(tmp_path):
    """Writes notes below a folder, and reads them as an import does: records, or refusals, by place."""
    root = tmp_path / "vault"

    def read(files, importer=markdown, **options):
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            os.utime(path, (1_700_000_000, 1_700_000_000))
        found = {one.location: one for one in importer.read(root, Options(**options)).records}
        return {place: validate_source(one) if isinstance(one, SourceRecord) else one for place, one in found.items()}

    read.root = root
    return read


def one_note(notes, text, name="a.md", **options):
    found = notes({name: text}, **options)[name]
    assert not isinstance(found, RefusedRecord), found
    return found


def with_matter(matter, body="Body."):
    return f"---\n{matter}\n---\n{body}"


@pytest.mark.parametrize(
    ("matter", "tags", "noted"),
    [
        pytest.param("tags: [[tea]]", ("tea",), 0, id="a link without quotation marks"),
        pytest.param("tag: [[tea]]", ("tea",), 0, id="singular"),
        pytest.param("keywords: [[Tea|the drink]]", ("tea",), 0, id="a link with an alias"),
        pytest.param("tags: [a, [b]]", ("a", "b"), 0, id="a list in a list"),
        pytest.param("tags: {a: b}", (), 1, id="a mapping"),
        pytest.param("tags: [a, b\ntitle: Tea", ("a", "b"), 1, id="a list that is never closed"),
        pytest.param("tags: !!set {a, b}", ("a", "b"), 0, id="a set"),
        pytest.param('tags: "#one"', ("one",), 0, id="a hash"),
        pytest.param("tags: '#one #two/three'", ("one", "two/three"), 0, id="hashes"),
        pytest.param("tags:\n  - '#one'\n  - two", ("one", "two"), 0, id="a hash in a list"),
        pytest.param("tags:\n- [[Green Tea]]\n- [[b]]", ("green-tea", "b"), 0, id="a list of links"),
        pytest.param("tags: [[a]], [[b]]", ("a", "b"), 1, id="links that are no YAML"),
        pytest.param("tags: [a, {b: c}, d]", ("a", "d"), 1, id="a mapping in a list"),
        pytest.param("tags: [1, 2.5, true, null]", ("1", "2.5", "true"), 0, id="numbers, and nothing"),
        pytest.param("tags: " + "x" * 300, ("x" * 200,), 1, id="too long a tag"),
        pytest.param("? [a, b]\n: c\ntags: d", ("d",), 0, id="a key that is no text"),
    ],
)
def test_tags_of_every_form_are_read_and_the_rest_is_noted(notes, matter, tags, noted):
    one = one_note(notes, with_matter(matter))
    assert one.record.tags == tags
    assert len(one.found.notes) == noted, one.found.notes


@pytest.mark.parametrize(
    ("matter", "fields"),
    [
        pytest.param("title: Plan: the second", {"title": "Plan: the second"}, id="a colon"),
        pytest.param("title: [Draft] plan\nauthor: @ann", {"title": "[Draft] plan", "authors": ("@ann",)}, id="signs"),
        pytest.param("title: *.ts files", {"title": "*.ts files"}, id="an asterisk"),
        pytest.param("title: 50% of it: all\ntags: a", {"title": "50% of it: all", "tags": ("a",)}, id="and a tag"),
        pytest.param("created: {{date}}\ntitle: T", {"title": "T"}, id="a template"),
        pytest.param("type: [a, b]", {"type": "a"}, id="two types"),
        pytest.param("author: {name: Ann}", {"authors": ("Ann",)}, id="an author with a name"),
        pytest.param("authors:\n- name: Ann\n- Bob", {"authors": ("Ann", "Bob")}, id="authors with names"),
        pytest.param("author: '[[Ann Lee]]'", {"authors": ("Ann Lee",)}, id="an author as a link"),
        pytest.param("categories: [[Books]]", {"categories": ("Books",)}, id="a category as a link"),
        pytest.param("metadata:\n  type: feedback", {"type": "feedback"}, id="a type in metadata"),
        pytest.param("name: a-name\ndescription: About: it", {"title": "a-name", "summary": "About: it"}, id="a name"),
        pytest.param("a: b\n---\n---\ntitle: T", {"title": "T", "content": "Body."}, id="two blocks"),
        pytest.param("title: a\n\ttags: b", {"content": "Body."}, id="a tab"),
        pytest.param("title: T\nno field at all\ntags: a", {"title": "T", "tags": ("a",)}, id="a line of text"),
        pytest.param("pinned: maybe\ntitle: T", {"title": "T", "pinned": False}, id="no switch"),
        pytest.param("valid_from: 2024-02-01\nvalid_to: 2024-01-01\ntitle: T", {"title": "T"}, id="an end too early"),
        pytest.param("entities: {a: b}\nlinks: 3\ntitle: T", {"title": "T"}, id="no entities"),
        pytest.param("importance: 0.4", {"importance": 0.4}, id="a number"),
    ],
)
def test_a_note_comes_in_whatever_its_front_matter_is(notes, matter, fields):
    record = one_note(notes, with_matter(matter)).record
    assert {name: getattr(record, name) for name in fields} == fields
    assert record.content == "Body."


@pytest.mark.parametrize(
    ("matter", "note"),
    [
        ("importance: high", "importance: 'high' is not a number from 0 to 1; it is left out"),
        ("confidence: 7", "confidence: '7' is not a number from 0 to 1; it is left out"),
        ("status: reading", "status: 'reading' is no known state; it is left out"),
        ("created: soon", "created: 'soon' is not a date; it is left out"),
        ("created: 03/04/2026", "created: '03/04/2026' may have the day or the month first; it is left out"),
        ("title: {a: b}", "title: {'a': 'b'} is no text; it is left out"),
    ],
)
def test_what_cannot_be_read_is_noted_and_stays_in_raw(notes, matter, note):
    one = one_note(notes, with_matter(matter))
    assert [found for found in one.found.notes if found.startswith(note)]
    assert '"front_matter"' in one.raw


@pytest.mark.parametrize(
    ("text", "body"),
    [
        pytest.param("---\n\nA rule at the top.\n\n---\nMore.", "---\n\nA rule at the top.\n\n---\nMore.", id="a rule"),
        pytest.param("---\nA line.\nAnd: another.\n\nX\n---\nMore.", None, id="a text between rules"),
        pytest.param("---\n- a\n- b\n---\nText.", None, id="a list between rules"),
        pytest.param("\ufeff---\ntitle: T\n---\nBody.", "Body.", id="a byte order mark"),
        pytest.param("---\r\ntitle: T\r\n---\r\nBody.", "Body.", id="line ends of Windows"),
        pytest.param("---\rtitle: T\r---\rBody.", "Body.", id="line ends of old Macs"),
        pytest.param("---\ntitle: T\n---\nBody.".encode("utf-16"), "Body.", id="UTF-16"),
        pytest.param("---\ntitle: T\n---\nBody.".encode("utf-16-le"), "Body.", id="UTF-16 without a mark"),
        pytest.param("---\ntitle: T\nmood: good\n---\n", "title: T\nmood: good", id="front matter alone"),
        pytest.param("---\ntitle: never closed\nBody.", "---\ntitle: never closed\nBody.", id="never closed"),
    ],
)
def test_text_and_front_matter_are_told_apart(notes, text, body):
    content = one_note(notes, text).record.content
    assert content == (text if body is None else body)


@pytest.mark.parametrize(
    ("written", "day"),
    [
        ("02.03.2026", "2026-03-02"),
        ('"[[2026-03-02]]"', "2026-03-02"),
        ("[[2026-03-02]]", "2026-03-02"),
        ("March 2, 2026", "2026-03-02"),
        ("2. März 2026", "2026-03-02"),
        ("2 mars 2026 à 14:30", "2026-03-02"),
        ("Mon, 02 Mar 2026 10:00:00 +0100", "2026-03-02"),
        ("2026/3/2", "2026-03-02"),
        ("13/12/2025", "2025-12-13"),
        ("20260302", "2026-03-02"),
        ("202603021405", "2026-03-02"),
        ("1772409600000", "2026-03-02"),
    ],
)
def test_dates_of_front_matter_are_read(notes, written, day):
    one = one_note(notes, with_matter(f"created: {written}"))
    assert one.record.created_at.date().isoformat() == day
    assert not one.found.notes


def test_one_date_of_a_folder_tells_how_the_others_are_meant(notes):
    found = notes({"a.md": with_matter("created: 03/04/2026"), "b.md": with_matter("date: 25/12/2025")})
    assert found["a.md"].record.created_at.date().isoformat() == "2026-04-03"
    chosen = notes({"a.md": with_matter("created: 03/04/2026"), "b.md": "No date."}, dates="month-first")
    assert chosen["a.md"].record.created_at.date().isoformat() == "2026-03-04"


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("superseded", "superseded"),
        ("Deprecated", "archived"),
        ("accepted", "active"),
        ("draft", "proposed"),
        ("proposed", "proposed"),
        ("rejected", "archived"),
        ("✅ Done", "active"),
        ("trash", "deleted"),
        ("In progress", "active"),
        ("not_started", "proposed"),
        ("[archived]", "archived"),
        ("'[[Evergreen]]'", "active"),
        ("Accepted (2024-05-06)", "active"),
    ],
)
def test_states_are_read_by_the_words_of_other_tools(notes, word, state):
    one = one_note(notes, with_matter(f"status: {word}"))
    assert (one.record.state, one.found.notes) == (state, ())


SUPERSEDING = {
    "a link": ('supersedes: "[[0001 Use MySQL]]"', "0001 Use MySQL.md"),
    "a link that is a list": ("supersedes: [[0001 Use MySQL]]", "0001 Use MySQL.md"),
    "its title": ("supersedes: Use MySQL", "0001 Use MySQL.md"),
    "its number": ("supersedes: ADR-0001", "0001 Use MySQL.md"),
    "a bare number": ("replaces: 1", "0001 Use MySQL.md"),
    "its file": ("supersedes: 0001 Use MySQL.md", "0001 Use MySQL.md"),
    "a link of Markdown": ('supersedes: "[ADR 1](<./0001 Use MySQL.md>)"', "0001 Use MySQL.md"),
    "a link with an alias": ('supersedes:\n  - "[[decisions/0001 Use MySQL|the old one]]"', "0001 Use MySQL.md"),
}


@pytest.mark.parametrize("matter", SUPERSEDING)
def test_a_decision_names_what_it_supersedes_in_any_way(notes, matter):
    files = {
        "decisions/0001 Use MySQL.md": "---\ntitle: Use MySQL\nstatus: accepted\n---\nMySQL.",
        "decisions/0005 Use Postgres.md": with_matter(SUPERSEDING[matter][0]),
    }
    record = notes(files)["decisions/0005 Use Postgres.md"].record
    assert record.supersedes == ("decisions/0001 Use MySQL.md",)


@pytest.mark.parametrize(
    "old",
    [
        with_matter('superseded-by: "[[0005-postgres]]"'),
        with_matter("superseded_by: ADR-0005\nstatus: accepted"),
        with_matter('status: "superseded by [ADR-0005](0005-postgres.md)"'),
        with_matter("supersededBy: 0005-postgres.md"),
        "# 1. MySQL\n\nDate: 2020-01-02\n\n## Status\n\nSuperseded by [ADR-0005](0005-postgres.md)\n\n## Context",
        "# 1. Use MySQL\n\n## Status\n\nAccepted\n\nSuperceded by [5. Postgres](0005-postgres.md)\n\n## Decision\n\nX",
        "# MySQL\n\n* Status: superseded by [5](0005-postgres.md)\n* Date: 2020-01-02\n\n## Considered Options\n\nX",
        "# Use MySQL\n\n**Status:** ~~Accepted~~ Replaced by [[0005-postgres]]\n\n## Decision Outcome\n\nX",
        "# Use MySQL\n\n- superseded_by [[0005-postgres]]\n",
    ],
)
def test_a_decision_names_its_successor_in_any_way(notes, old):
    found = notes({"adr/0001-mysql.md": old, "adr/0005-postgres.md": "# 5. Use Postgres\n\nX"})
    record = found["adr/0001-mysql.md"].record
    assert (record.type, record.state, record.superseded_by) == ("decision", "superseded", "adr/0005-postgres.md")
    if "2020-01-02" in old:
        assert record.created_at.date().isoformat() == "2020-01-02"


def test_supersession_by_the_body_of_the_newer_decision(notes):
    body = "# 5. Postgres\n\n## Status\n\nAccepted\n\nSupersedes [1. MySQL](0001-mysql.md)\n\n## Context"
    files = {"doc/adr/0001-mysql.md": "# 1\n\nX", "doc/adr/0005-postgres.md": body}
    record = notes(files)["doc/adr/0005-postgres.md"].record
    assert (record.state, record.type) == ("active", "decision")
    assert record.supersedes == ("doc/adr/0001-mysql.md",)


@pytest.mark.parametrize(
    ("name", "day"),
    [
        ("2026-01-20.md", "2026-01-20"),
        ("Journal/2026-01-20 Talk with Ann.md", "2026-01-20"),
        ("journals/2026_01_20.md", "2026-01-20"),
        ("20260120.md", "2026-01-20"),
        ("202601201530 Ideas.md", "2026-01-20"),
        ("January 20th, 2026.md", "2026-01-20"),
        ("2026/01/20.md", "2026-01-20"),
        ("2026/01-January/20-Tuesday.md", "2026-01-20"),
        ("Retro 2026-01-20.md", "2026-01-20"),
        ("1984.md", FILE_DAY),
        ("Plan for 2026.md", FILE_DAY),
        ("2026-13-45.md", FILE_DAY),
        ("1700000000.md", FILE_DAY),
        ("releases/1.10.12.md", FILE_DAY),
        ("4915112345678.md", FILE_DAY),
        ("2026-W03.md", "2026-01-12"),
        ("Mars 2026.md", "2026-03-01"),
        ("Version 1.2.2026.md", FILE_DAY),
    ],
)
def test_a_note_named_by_a_day_has_its_date(notes, name, day):
    assert notes({name: "Text."})[name].record.created_at.date().isoformat() == day


def test_front_matter_goes_before_the_name(notes):
    one = one_note(notes, with_matter("created: 2025-05-05"), name="2026-01-20.md")
    assert one.record.created_at.date().isoformat() == "2025-05-05"


@pytest.mark.parametrize(
    ("name", "text", "kind", "rule"),
    [
        ("Decisions/a.md", "X", "decision", "Decisions/"),
        ("work/02 - Meeting Notes/a.md", "X", "meeting", "02 - Meeting Notes/"),
        ("a.md", with_matter("tags: [tea, meeting]"), "meeting", "#meeting"),
        ("a.md", with_matter("tags: type/recipe"), "recipe", "#type/recipe"),
        ("a.md", "# A\n\n## Context\n\nX\n\n## Decision\n\nX", "decision", "## Decision"),
        ("Decisions/a.md", with_matter("type: idea"), "idea", ""),
        ("Decisions/People/a.md", "X", "person", "People/"),
        ("sub/a.md", "# Decision", "note", ""),
    ],
)
def test_types_come_from_folders_tags_and_headings(notes, name, text, kind, rule):
    one = notes({name: text})[name]
    assert (one.record.type, one.found.rule) == (kind, rule)


def test_rules_can_be_changed(notes):
    rules = {"decisions/": "", "Log/": "diary-entry", "#tea": "drink", "a/b/": "deep"}
    files = {"Decisions/a.md": "X", "Log/b.md": "X", "c.md": with_matter("tags: tea"), "a/b/d.md": "X"}
    found = notes(files, types=rules)
    assert [one.record.type for one in found.values()] == ["drink", "note", "diary-entry", "deep"]


@pytest.mark.parametrize(
    "link",
    [
        "[[Green Tea]]",
        "[[green tea|the tea]]",
        "[[Green Tea#Brewing]]",
        "[[Green Tea#^block1]]",
        "[[drinks/Green Tea]]",
        "[[drinks/Green Tea.md]]",
        "[[Sencha]]",
        "| [[Green Tea\\|tea]] |",
        "[tea](../drinks/Green%20Tea.md#x)",
        "[tea](<../drinks/Green Tea.md>)",
        "[[../drinks/Green Tea]]",
    ],
)
@pytest.mark.django_db
def test_links_lead_to_the_note_that_they_mean(notes, link):
    files = {
        "all/drinks/Green Tea.md": "---\naliases: [Sencha]\n---\nTea.",
        "all/log/a.md": f"See {link}.",
        "other/Green Teas.md": "Other teas.",
    }
    notes(files)
    import_path(path=notes.root, importer=importer_for(notes.root), viewer=command_viewer(), choices=ImportChoices())
    (stored,) = MemoryLink.objects.filter(memory__external_id="all/log/a.md")
    assert (stored.rel, stored.target_memory.external_id) == ("links-to", "all/drinks/Green Tea.md")


def test_an_id_of_two_notes_is_neither_ones(notes):
    found = notes({"a.md": with_matter("id: 7"), "b.md": with_matter("id: 7", "Other."), "c.md": with_matter("id: 8")})
    assert [one.record.id for one in found.values()] == ["a.md", "b.md", "8"]
    assert "is the id of several files" in found["b.md"].found.notes[0]


@pytest.mark.parametrize(
    ("name", "text", "title"),
    [
        pytest.param("v1.2.md", "Out today.\n\n## Improvements\n\n- Tea", "v1.2", id="headings of parts"),
        pytest.param("v1.3.md", "## Improvements\n\n- Tea", "v1.3", id="a part at the beginning"),
        pytest.param("a.md", "By Ann\n\n# On tea\n\nText", "On tea", id="a heading below a line"),
        pytest.param("a.md", "On tea\n======\n\nText", "On tea", id="an underlined heading"),
        pytest.param("a.md", "# Tea <!-- of all kinds -->\n\nText", "Tea", id="a comment"),
        pytest.param("a.md", "```\n# not tea\n```\n", "a", id="code"),
        pytest.param("docs/README.md", "## On tea\n\nText", "On tea", id="a file whose name says nothing"),
        pytest.param("docs/README.md", "Text", "README", id="nothing else"),
    ],
)
def test_a_note_has_the_title_of_its_heading_or_its_file(notes, name, text, title):
    assert one_note(notes, text, name).record.title == title


DECISION = """# 7. {title}

{date}: 2026-02-03

## {status}

{word}

## {context}

Warum.

## {decision}

So.
"""


@pytest.mark.parametrize(
    ("words", "state"),
    [
        pytest.param(("Tee", "Datum", "Status", "Abgelehnt", "Kontext", "Entscheidung"), "archived", id="German"),
        pytest.param(("Thé", "Date", "Statut", "Proposée", "Contexte", "Décision"), "proposed", id="French"),
        pytest.param(("Té", "Fecha", "Estado", "Obsoleta", "Contexto", "Decisión"), "archived", id="Spanish"),
        pytest.param(("Tè", "Data", "Stato", "Accettata", "Contesto", "Decisione"), "active", id="Italian"),
        pytest.param(("Chá", "Data", "Status", "Rejeitada", "Contexto", "Decisão"), "archived", id="Portuguese"),
        pytest.param(("Thee", "Datum", "Status", "Vervallen", "Context", "Besluit"), "archived", id="Dutch"),
    ],
)
def test_decisions_are_read_in_several_languages(notes, words, state):
    names = ("title", "date", "status", "word", "context", "decision")
    record = one_note(notes, DECISION.format(**dict(zip(names, words, strict=True)))).record
    assert (record.type, record.state, str(record.created_at)[:10]) == ("decision", state, "2026-02-03")


@pytest.mark.parametrize(
    ("matter", "fields"),
    [
        pytest.param("titel: Tee\nschlagwörter: [kanne]", {"title": "Tee", "tags": ("kanne",)}, id="German"),
        pytest.param("auteur: Ann\nstatut: brouillon", {"authors": ("Ann",), "state": "proposed"}, id="French"),
        pytest.param("Título: Té\nTipo: Idea", {"title": "Té", "type": "idea"}, id="Spanish"),
        pytest.param("art: Ming\ndata: 3", {"type": "note"}, id="words that are English too"),
    ],
)
def test_fields_are_known_by_words_of_several_languages(notes, matter, fields):
    record = one_note(notes, with_matter(matter)).record
    assert {name: getattr(record, name) for name in fields} == fields


def test_a_successor_is_named_in_several_languages(notes):
    files = {"7.md": "# Tee\n", "8.md": "# Kaffee\n"}
    for word in ("Ersetzt durch", "remplacé par", "sustituida por", "sostituito da", "vervangen door"):
        found = notes(files | {"7.md": with_matter(f'status: "{word} [[8]]"')})["7.md"].record
        assert (found.state, found.superseded_by) == ("superseded", "8.md")


@pytest.mark.parametrize(
    ("text", "title", "body", "noted"),
    [
        pytest.param('+++\ntitle = "Tea"\ndate = 2026-03-02\n+++\nBody.\n', "Tea", "Body.", 0, id="fields"),
        pytest.param("+++\ntitle = Tea\n+++\nBody.\n", "a", "+++\ntitle = Tea\n+++\nBody.", 1, id="damaged"),
        pytest.param("+++ more +++\nBody.\n", "a", "+++ more +++\nBody.", 0, id="none"),
    ],
)
def test_front_matter_in_toml_is_read(notes, text, title, body, noted):
    found = one_note(notes, text)
    assert (found.record.title, found.record.content, len(found.found.notes)) == (title, body, noted)
    assert str(found.record.created_at)[:10] == ("2026-03-02" if title == "Tea" else FILE_DAY)


@pytest.mark.parametrize("importer", [markdown, documents])
def test_an_error_of_any_kind_in_a_note_is_of_that_note(notes, monkeypatch, importer):
    def failing(found, order):
        if "bad" in found.body:
            raise TypeError("unhashable")
        return read(found, order)

    read = markdown.record_fields
    monkeypatch.setattr(markdown, "record_fields", failing)
    found = notes({"a.md": "Fine.", "b.md": "bad", "c.md": "Fine too.", "d.txt": "Text."}, importer=importer)
    assert isinstance(found["b.md"], RefusedRecord)
    assert "by a mistake of this program (TypeError: unhashable)" in found["b.md"].reason
    assert isinstance(found["a.md"].record, MemoryRecord)
    assert isinstance(found["c.md"].record, MemoryRecord)


def test_a_character_that_cannot_be_stored_is_left_out(notes):
    one = one_note(notes, with_matter("title: a\0b", "Te\0a."))
    assert (one.record.title, one.record.content) == ("ab", "Tea.")
    assert one.found.notes[0].startswith("holds NUL characters")


NOTION = "Use Postgres 0123456789abcdef0123456789abcdef.md"


@pytest.mark.parametrize(
    ("properties", "fields"),
    [
        (
            "Status: Done\nTags: tea, green\nCreated: March 2, 2026 10:00 AM",
            {"state": "active", "tags": ("tea", "green")},
        ),
        ("Status: Not started\nOwner: Ann Lee", {"state": "proposed", "authors": ("Ann Lee",)}),
        ("Created by: Ann\nLast Edited Time: 2026/03/02", {"authors": ("Ann",), "state": None}),
        ("No property here\n\nStatus: Archived", {"state": None}),
    ],
)
def test_properties_of_pages_of_notion_are_read(notes, properties, fields):
    record = one_note(notes, f"# Use Postgres\n\n{properties}\n\nIt is known.", NOTION).record
    assert {name: getattr(record, name) for name in fields} == fields
    assert (record.title, record.content[-12:]) == ("Use Postgres", "It is known.")
    if "March" in properties:
        assert record.created_at.isoformat() == "2026-03-02T10:00:00+00:00"


def test_other_notes_have_no_properties_below_their_title(notes):
    assert one_note(notes, "# Tea\n\nStatus: Archived\n\nText.").record.state is None


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("open source", Status()),
        ("new york", Status()),
        ("not superseded by anything", Status()),
        ("Accepted. To be superseded by X in 2027", Status("active")),
        ("Accepted. Supersedes ADR-0001", Status("active", "", "ADR-0001")),
        ("Accepted, superseded by ADR-2", Status("superseded", "ADR-2")),
        ("accepted on 2024-01-02", Status("active")),
        ("Deprecated since May", Status("archived")),
    ],
)
def test_a_status_is_no_more_than_it_says(text, status):
    assert read_status(text) == status


def test_a_chosen_order_holds_beside_dates_with_dots(notes):
    files = {"z.md": with_matter("created: 12.04.2026"), "c.md": with_matter("created: 03/04/2026")}
    found = notes(files, dates="month-first")
    assert found["c.md"].record.created_at.date().isoformat() == "2026-03-04"
    assert "may have the day or the month first" in notes(files)["c.md"].found.notes[0]


def test_the_date_of_a_decision_has_the_order_of_the_others(notes):
    text = "# A\n\nDate: 03/04/2026\n\n| Date | Who |\n|---|---|\n\n## Status\n\nAccepted\n\n## Decision\n\nX"
    one = one_note(notes, text, dates="day-first")
    assert (one.record.created_at.date().isoformat(), one.found.notes) == ("2026-04-03", ())


@pytest.mark.parametrize(
    ("matter", "field", "names"),
    [
        ('tags: "[[A]], b, c"', "tags", ("a", "b", "c")),
        ('categories: "[[A]], B"', "categories", ("A", "B")),
        ('authors: "[[Lee, Ann]], Bob"', "authors", ("Lee, Ann", "Bob")),
    ],
)
def test_names_beside_links_are_read_too(notes, matter, field, names):
    assert getattr(one_note(notes, with_matter(matter)).record, field) == names


@pytest.mark.parametrize(
    "text",
    [
        '---\ntags: "[[' + "a" * 200_000 + '"\n---\nBody.',
        "- a [[b]]" + " " * 300_000 + "x",
        "---\nstatus: " + "superseded by " * 20_000 + "\n---\nBody.",
    ],
)
def test_long_texts_are_read_in_no_time(notes, text):
    begun = time.monotonic()
    one_note(notes, text)
    assert time.monotonic() - begun < 3
