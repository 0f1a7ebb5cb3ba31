import os
from datetime import UTC, datetime

import pytest

from transfer.formats import markdown
from transfer.formats.base import Options, RefusedRecord, SourceRecord
from transfer.formats.registry import importer_for


@pytest.fixture
def folder(tmp_path):
    """Writes files below a folder called `notes`."""
    root = tmp_path / "notes"
    root.mkdir()

    def write(name, text):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        os.utime(path, (1_700_000_000, 1_700_000_000))
        return path

    write.root = root
    return write


def read(root, **options):
    found = list(markdown.read(root, Options(**options)).records)
    return {one.data["id"] if isinstance(one, SourceRecord) else one.location: one for one in found}


def data_of(folder, text, name="a.md"):
    folder(name, text)
    return read(folder.root)[name].data


def test_front_matter_gives_the_fields(folder):
    data = data_of(
        folder,
        "---\ntitle: 3.10\ntype: decision\ntags: [no, 3.10, c++]\ncreated: 2024-05-06\nmodified: 2024-06-07\n"
        "authors:\n  - Ann\n  - Bob\nproject: other\ncategory: A/B, C\nkeep: this\n---\n\n# Heading\n\nText.\n",
        "x/y.md",
    )
    assert data["title"] == "3.10"
    assert data["type"] == "decision"
    assert data["tags"] == ["no", "3.10", "c++"]
    assert (data["created_at"], data["updated_at"]) == ("2024-05-06", "2024-06-07")
    assert data["authors"] == ["Ann", "Bob"]
    assert data["project"] == "other"
    assert data["categories"] == ["A/B", " C", "x"]
    assert data["keep"] == "this"
    assert data["content"] == "# Heading\n\nText."


def test_without_front_matter_everything_has_a_source(folder):
    data = data_of(folder, "Text.\n\n## The heading\n", "Deep/Er/some-note.md")
    assert data["title"] == "some-note"
    assert data["categories"] == ["Deep/Er"]
    assert data["project"] == "notes"
    assert (data["source"], data["source_url"]) == ("markdown", "Deep/Er/some-note.md")
    assert data["created_at"] == datetime.fromtimestamp(1_700_000_000, UTC).isoformat()


def test_the_time_of_the_file_is_no_change_of_the_memory(folder):
    folder("a.md", "Text.")
    folder("b.md", "---\ndate: 2024-01-01\nupdated: 2024-01-02\n---\nText.")
    found = read(folder.root)
    assert found["a.md"].volatile == {"created_at", "updated_at"}
    assert found["b.md"].volatile == frozenset()


def test_links_name_other_files_by_the_ids_they_have(folder):
    folder("ideas/Tea Time.md", "---\npermalink: tea\n---\nTea.")
    folder("b.md", "---\ntitle: The Boat\n---\nBoat.")
    links = data_of(
        folder,
        "See [[tea time]], [[The Boat|boats]], [[Nowhere#part]], ![[embedded]], `[[code]]`,\n"
        "[b](../b.md#x), [tea](<../ideas/Tea Time.md>), [web](https://x.example/a.md), [up](../../out.md).",
        "sub/a.md",
    )["links"]
    assert [(link["rel"], link["target"]) for link in links] == [
        ("links-to", "b.md"),
        ("links-to", "tea"),
    ]


BASIC_MEMORY = """---
title: Pour Over
type: note
permalink: coffee/pour-over
tags: coffee, slow
---
# Pour Over

## Observations
- [method] A slow pour tastes brighter #brewing #taste/light (three tries)
- [tip with words] Rinse the paper
- Grind coarsely #grind
- [ ] buy filters
- [x] clean the kettle
- [>] later
- [00:12:30] the talk begins
- [a link](https://x.example) #linked
- [[Wiki]]
> [!info] a callout

## Relations
- contrasts_with [[French Press]]
- "brewed with" [[Kettle|the kettle]] (the blue one)
- some words [[Filter Paper]]
- requires [[Grinder]] and more
"""


def test_notes_of_basic_memory_have_observations_and_typed_relations(folder):
    folder("coffee/press.md", "---\ntitle: French Press\npermalink: coffee/press\n---\nPress.")
    folder("coffee/pour-over.md", BASIC_MEMORY)
    data = read(folder.root)["coffee/pour-over"].data
    assert data["observations"] == [
        {
            "category": "method",
            "content": "A slow pour tastes brighter #brewing #taste/light",
            "tags": ["brewing", "taste/light"],
            "context": "three tries",
        },
        {"category": "tip with words", "content": "Rinse the paper", "tags": [], "context": ""},
        {"category": "", "content": "Grind coarsely #grind", "tags": ["grind"], "context": ""},
    ]
    assert data["concepts"] == [
        {"name": "method", "type": "observation"},
        {"name": "tip with words", "type": "observation"},
    ]
    assert data["tags"] == ["coffee", " slow", "brewing", "taste/light", "grind", "linked"]
    assert [(link["rel"], link["target"]) for link in data["links"]] == [
        ("contrasts_with", "French Press"),
        ("brewed with", "Kettle"),
    ]


def test_a_vault_of_obsidian_has_inline_tags_aliases_and_embeds(folder):
    (folder.root / ".obsidian").mkdir()
    folder(
        "Green Tea.md",
        "---\naliases: [sencha, The Green One]\ntags:\n  - leaf\n---\nTea #drink/hot #42 no#tag `#code`.",
    )
    folder("b.md", "See [[Sencha]] and ![[the green one#Brewing]].")
    found = read(folder.root)
    assert found["Green Tea.md"].data["tags"] == ["leaf", "drink/hot"]
    assert found["Green Tea.md"].data["aliases"] == ["sencha", "The Green One"]
    # Links between notes are found in their texts when they are stored.
    assert found["b.md"].data["links"] == []


def test_hidden_folders_node_modules_and_other_files_are_left_out(folder):
    for name in ("a.md", "b.MARKDOWN", ".hidden/c.md", "node_modules/d.md", "e.txt", ".f.md"):
        folder(name, "Text.")
    assert sorted(read(folder.root)) == ["a.md", "b.MARKDOWN"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("", "is empty; a memory needs a text", id="empty"),
        pytest.param("---\n---\n\n", "is empty; a memory needs a text", id="empty front matter"),
        pytest.param(b"caf\xe9", "is not UTF-8: byte 4 is 0xe9", id="latin"),
    ],
)
def test_a_broken_file_is_refused_with_the_reason(folder, text, reason):
    folder("a.md", text)
    folder("fine.md", "Text.")
    found = read(folder.root)
    assert isinstance(found["a.md"], RefusedRecord)
    assert found["a.md"].reason.startswith(reason)
    assert isinstance(found["fine.md"], SourceRecord)


def test_a_link_out_of_the_folder_is_refused(folder, tmp_path):
    (tmp_path / "secret.md").write_text("Secret.")
    (folder.root / "a.md").symlink_to(tmp_path / "secret.md")
    assert read(folder.root)["a.md"].reason == "is a link to a file outside the folder"


def test_a_folder_or_a_single_file_is_known(folder):
    path = folder("a.md", "Text.")
    assert importer_for(folder.root).name == "markdown"
    assert importer_for(path).name == "markdown"
    assert list(read(path)) == ["a.md"]
    assert read(path)["a.md"].data["project"] == ""
    assert read(folder.root, project="named")["a.md"].data["project"] == "named"


def test_files_of_records_among_notes_are_not_passed_over_in_silence(folder):
    for name in ("a.md", "below/b.jsonl", "c.jsonl.gz", ".hidden/d.jsonl", "e.txt"):
        folder(name, "Text.")
    found = read(folder.root)
    assert [place for place, one in found.items() if isinstance(one, SourceRecord)] == ["a.md"]
    refused = {place: one.reason for place, one in found.items() if isinstance(one, RefusedRecord)}
    assert refused == dict.fromkeys(
        ["below/b.jsonl", "c.jsonl.gz"], "is not Markdown. Name files of records themselves as paths to import"
    )


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * 900_000, id="brackets"),
        pytest.param("[a](<" * 180_000, id="targets"),
        pytest.param("`" * 900_000, id="code"),
        pytest.param("- a [[" + "x" * 900_000, id="a relation"),
        pytest.param("# a" + " " * 900_000 + "b", id="a heading"),
    ],
)
def test_a_note_that_patterns_could_search_for_hours_is_read(folder, text):
    assert len(data_of(folder, text)["content"]) == len(text)
