"""Imports as a whole: validity follows from notes, links find notes that arrive later, an error is one note's."""

from datetime import UTC

import pytest

from explorer.links import memory_url
from explorer.memory.page import MemoryPage
from memories.models import Memory, MemoryLink
from memories.queries import memory_details
from tests.memories.imports import batch_counts, last_batch, run
from tests.memories.test_following import EVERYTHING, follow, read
from transfer.formats import markdown

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
    vault("drinks/Green Tea.md", "---\ntitle: The tea\n---\nTea.")
    vault("a.md", "See [[Green Tea#part|it]], [[The tea]] and [[Nowhere]].")
    run(vault.root)
    (detail,) = memory_details(EVERYTHING, [number("a.md")]).values()
    body = MemoryPage(detail, None, UTC).body
    assert body.count(f'href="{memory_url(number("drinks/Green Tea.md"))}"') == 2
    assert "[[Nowhere]]" in body
