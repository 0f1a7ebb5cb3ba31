"""Links between memories by names: from every interface, to memories that come later, are renamed, or are moved."""

import random
import string
import zipfile

import pytest
from django.test import Client

from access.keys import make_key
from access.models import ApiKey
from access.viewer import Viewer, command_viewer, viewer_of_key
from agent_tools.calls import call
from agent_tools.catalogue import TOOL
from curation.schemas import Retag
from curation.services import curation_apply, curation_undo
from explorer.links import memory_url
from explorer.memory.page import MemoryPage
from memories.models import Memory, MemoryLink, Project
from memories.queries import memory_details
from memories.records import MemoryChanges, MemoryRecord
from memories.services import memory_create, memory_delete, memory_restore, memory_update
from text.wiki_links import named_texts
from transfer.formats.registry import importer_for
from transfer.run import ImportChoices, import_path

pytestmark = pytest.mark.django_db
EVERYTHING = command_viewer()


def create(content="A text.", project="one", viewer=EVERYTHING, **fields):
    record = MemoryRecord.model_validate({"content": content, "project": project, **fields})
    return memory_create(record=record, viewer=viewer)


def update(memory, viewer=EVERYTHING, **fields):
    return memory_update(memory_id=memory.pk, changes=MemoryChanges.model_validate(fields), viewer=viewer)


def links_of(memory):
    rows = MemoryLink.objects.filter(memory=memory).order_by("ordinal")
    return list(rows.values_list("rel", "target", "target_memory_id"))


def target_of(memory):
    (link,) = links_of(memory)
    return link[2]


def page_of(memory, viewer=EVERYTHING):
    (detail,) = memory_details(viewer, [memory.pk]).values()
    return MemoryPage.read(detail, None, viewer, {})


def sees(*slugs):
    return Viewer(frozenset(Project.objects.filter(slug__in=slugs).values_list("pk", flat=True)), frozenset({"read"}))


def imported(path, project="one", origin="", **choices):
    importer = importer_for(path)
    return import_path(
        path=path, importer=importer, viewer=EVERYTHING, choices=ImportChoices(project, **choices), origin=origin
    )


@pytest.fixture
def vault(tmp_path):
    def write(files, name="vault"):
        for place, text in files.items():
            path = tmp_path / name / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path / name

    return write


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("See [[Tea]].", [("Tea", False)]),
        ("[[Tea|the tea]] and [[ tea ]]", [("Tea", False)]),
        ("[[drinks/Tea#Brewing]]", [("drinks/Tea", False)]),
        ("![[Tea]]\n[[Tea]]", [("Tea", True)]),
        ("[[Tea]] ![[Tea]]", [("Tea", True)]),
        ("[[/Tea]] [[../drinks/Tea]] [[./b]]", [("Tea", False), ("drinks/Tea", False), ("b", False)]),
        (r"| a | [[Tea\|x]] |", [("Tea", False)]),
        ("`[[Tea]]`", []),
        ("```\n[[Tea]]\n```\n[[b]]", [("b", False)]),
        ("~~~\n[[Tea]]", []),
        ('if [[ -z "$x" ]]; then', []),
        ("[[1, 2], [3, 4]] and [[0,1]]", []),
        ("[[]] [[ ]] [[#part]] [[a\nb]]", []),
        ("[[0001]] [[2024-01-20]]", [("0001", False), ("2024-01-20", False)]),
        ("[" * 50_000, []),
        ("[[a" * 20_000, []),
    ],
)
def test_the_names_in_a_text(text, expected):
    assert named_texts(text) == expected


# --- every interface --------------------------------------------------------------------------------------------------


def by_service(content):
    return create(content).pk


def by_api(content):
    key = make_key(name="a", scopes=["read", "write"], projects=(), every_project=True, viewer=EVERYTHING)
    client = Client(headers={"Authorization": f"Bearer {key.raw}"})
    body = {"content": content, "project": "one"}
    return client.post("/api/memories", body, content_type="application/json").json()["id"]


def by_bulk_api(content):
    key = make_key(name="a", scopes=["read", "write"], projects=(), every_project=True, viewer=EVERYTHING)
    client = Client(headers={"Authorization": f"Bearer {key.raw}"})
    body = {"operations": [{"op": "create", "memory": {"content": content, "project": "one"}}]}
    response = client.post("/api/memories/bulk", body, content_type="application/json")
    assert response.status_code in (200, 201)
    return Memory.objects.order_by("-pk")[0].pk


def by_mcp(content):
    made = make_key(name="a", scopes=["read", "write"], projects=(), every_project=True, viewer=EVERYTHING)
    viewer = viewer_of_key(ApiKey.objects.get(name="a"))
    assert made.raw
    call(TOOL["store_memory"], {"content": content, "project": "one"}, viewer)
    return Memory.objects.order_by("-pk")[0].pk


def by_edit(content):
    memory = create("Before.")
    update(memory, content=content)
    return memory.pk


@pytest.mark.parametrize("write", [by_service, by_api, by_bulk_api, by_mcp, by_edit])
def test_a_name_in_brackets_is_a_link_through_every_interface(write):
    tea = create("Green leaves.", title="Green Tea")
    memory = Memory.objects.get(pk=write("We drink [[green tea|it]].\n\n![[Green Tea]]"))
    assert links_of(memory) == [("embeds", "green tea", tea.pk)]
    page = page_of(memory)
    assert f'<a href="{memory_url(tea.pk)}" rel="noopener nofollow">it</a>' in page.body
    assert "Green leaves." in page.body
    assert [memory_id for _, rows in page_of(tea).backlinks for memory_id in [rows[0].memory.id]] == [memory.pk]


def test_a_memory_typed_on_the_page_links(reader):
    tea = create("Green leaves.", title="Green Tea")
    response = reader.post(
        "/m/new/", {"project": "one", "title": "Notes", "content": "See [[Green Tea]].", "type": "note"}
    )
    assert response.status_code == 302, response.content
    memory = Memory.objects.get(title="Notes")
    assert links_of(memory) == [("links-to", "Green Tea", tea.pk)]
    assert f'href="{memory_url(tea.pk)}"' in reader.get(f"/m/{memory.pk}/").text


def test_links_follow_the_text(db):
    tea, boat = create(title="Tea"), create(title="Boat")
    memory = create("[[Tea]]", links=[{"rel": "see", "target": "x"}])
    update(memory, content="[[Boat]] and [[Tea]]")
    assert links_of(memory) == [("see", "x", None), ("links-to", "Boat", boat.pk), ("links-to", "Tea", tea.pk)]
    update(memory, content="[[Boat]]")
    assert links_of(memory) == [("see", "x", None), ("links-to", "Boat", boat.pk)]
    update(memory, links=[])
    assert links_of(memory) == [("links-to", "Boat", boat.pk)]
    update(memory, content="Nothing.")
    assert links_of(memory) == []
    update(memory, title="Of its own")
    assert links_of(memory) == []


# --- later, renamed, moved --------------------------------------------------------------------------------------------


def test_a_link_finds_a_memory_that_is_stored_later(db):
    memory = create("[[Green Tea]]")
    assert target_of(memory) is None
    assert "[[Green Tea]]" in page_of(memory).body
    tea = create(title="Green tea")
    assert target_of(memory) == tea.pk


def test_a_link_finds_a_memory_that_gets_the_name(db):
    memory, tea = create("[[Green Tea]]"), create(title="Oolong")
    update(tea, title="Green Tea")
    assert target_of(memory) == tea.pk
    # The link stays, also for its text.
    update(tea, title="Sencha")
    assert f'href="{memory_url(tea.pk)}"' in page_of(memory).body
    update(memory, content="See [[Green Tea]].")
    assert target_of(memory) == tea.pk


@pytest.mark.parametrize("in_bulk", [False, True])
def test_a_link_finds_a_memory_that_is_moved_to_its_project(db, in_bulk):
    create(project="two", title="Green Tea")
    tea = create(project="three", title="Green Tea")
    memory = create("[[Green Tea]]")
    assert target_of(memory) is None
    if in_bulk:
        moved = curation_apply(operation=Retag(memories=[tea.pk], set_project="one"), viewer=EVERYTHING)
    else:
        update(tea, project="one")
    assert target_of(memory) == tea.pk
    if in_bulk:
        curation_undo(curation_id=moved.curation.pk, viewer=EVERYTHING)
    else:
        update(tea, project="three")
    assert target_of(memory) == tea.pk
    assert f'href="{memory_url(tea.pk)}"' in page_of(memory).body
    assert memory_url(tea.pk) not in page_of(memory, sees("one")).body


def test_a_deleted_memory_is_not_meant_until_it_is_restored(db):
    tea = create(title="Green Tea")
    memory_delete(memory_id=tea.pk, viewer=EVERYTHING, reason="gone")
    memory = create("[[Green Tea]]")
    assert target_of(memory) is None
    memory_restore(memory_id=tea.pk, viewer=EVERYTHING)
    assert target_of(memory) == tea.pk


# --- which one --------------------------------------------------------------------------------------------------------


def test_of_several_memories_of_a_project_the_oldest_is_meant(db):
    first, _ = create("A.", title="Green Tea"), create("B.", title="green tea")
    assert target_of(create("[[Green Tea]]")) == first.pk


def test_a_memory_of_another_project_is_meant_if_it_is_the_only_one(db):
    other = create("A.", project="two", title="Green Tea")
    assert target_of(create("[[Green Tea]]")) == other.pk
    create("B.", project="three", title="Green Tea")
    assert target_of(create("Also [[Green Tea]]")) is None
    own = create("C.", title="Green Tea")
    assert target_of(create("And [[Green Tea]]")) == own.pk


def test_a_writer_finds_nothing_in_projects_that_they_do_not_see(db):
    one, two = (Project.objects.create(slug=slug, name=slug) for slug in ("one", "two"))
    create("A.", project="two", title="Green Tea")
    ids = frozenset({one.pk})
    writer = Viewer(ids, frozenset({"read", "write"}), ids)
    assert target_of(create("[[Green Tea]]", viewer=writer)) is None
    seen = create("B.", project="one", title="Boat")
    assert target_of(create("[[Boat]]", viewer=writer)) == seen.pk
    assert two.pk not in ids


def test_notes_of_a_vault_link_across_their_projects(vault):
    create("Another plan.", project="elsewhere", title="Oven plan")
    root = vault(
        {
            "Home.md": "[[Oven plan]] ![[Oven plan]] [[Rye]]",
            "Notes/Oven plan.md": "---\nproject: oven\n---\nBricks. [[Home]]",
            "Notes/Rye.md": "---\naliases: [Roggen]\n---\nRye. [[Rye]] [[Oven plan]]",
            "Other/Rye.md": "Other rye.",
        }
    )
    imported(root)
    by_id = {one.external_id: one for one in Memory.objects.exclude(external_id="")}
    home, oven, rye = by_id["Home.md"], by_id["Notes/Oven plan.md"], by_id["Notes/Rye.md"]
    assert links_of(home) == [("embeds", "Oven plan", oven.pk), ("links-to", "Rye", rye.pk)]
    assert target_of(oven) == home.pk
    assert links_of(rye)[1][2] == oven.pk
    # Beside the note goes before elsewhere.
    update(by_id["Other/Rye.md"], content="[[Rye]]")
    assert target_of(by_id["Other/Rye.md"]) == by_id["Other/Rye.md"].pk
    assert target_of(create("[[roggen]] is rye")) == rye.pk
    assert target_of(create("[[Other/Rye]] is not")) == by_id["Other/Rye.md"].pk
    assert target_of(create("[[Notes/rye.md]] is")) == rye.pk
    assert imported(root).tally.unchanged == 4


def test_names_with_accents_are_found_however_they_are_written(vault):
    imported(
        vault(
            {
                "Cafe\u0301.md": "A.",
                "b.md": "[[Caf\u00e9]] [[\u00c9t\u00e9]]",
                "c.md": "---\ntitle: E\u0301te\u0301\n---\nC.",
            }
        )
    )
    assert None not in [target for _, _, target in links_of(Memory.objects.get(external_id="b.md"))]


def test_typed_relations_of_notes_are_found_by_titles_and_permalinks(vault):
    imported(
        vault(
            {
                "coffee/press.md": "---\ntitle: French Press\npermalink: coffee/the-press\n---\nPress.",
                "over.md": "- contrasts_with [[French Press]]\n- [[press]]\n- needs [[coffee/the-press]]",
            }
        )
    )
    press = Memory.objects.get(external_id="coffee/the-press")
    assert links_of(Memory.objects.get(external_id="over.md")) == [
        ("contrasts_with", "French Press", press.pk),
        ("needs", "coffee/the-press", press.pk),
        ("links-to", "press", press.pk),
    ]


def test_records_of_any_format_link(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text(
        '{"content": "See [[Tea]].", "id": "a"}\n{"content": "Leaves.", "title": "Tea", "aliases": ["Cha"]}\n'
    )
    imported(path)
    tea = Memory.objects.get(title="Tea")
    assert target_of(Memory.objects.get(external_id="a")) == tea.pk
    assert target_of(create("[[cha]]")) == tea.pk


def test_links_keep_their_targets_when_notes_change_together(vault):
    files = {f"{name}/a.md": "[[b]] here." for name in ("x", "y")} | {f"{name}/b.md": "A." for name in ("x", "y")}
    imported(vault(files))
    imported(vault({f"{name}/a.md": "[[b]] and [[c]] here." for name in ("x", "y")}))
    for name in ("x", "y"):
        target = links_of(Memory.objects.get(external_id=f"{name}/a.md"))[0][2]
        assert target == Memory.objects.get(external_id=f"{name}/b.md").pk


@pytest.mark.parametrize("address", ["{}", "/folder/{}", "{}.md"])
def test_the_name_of_a_file_may_be_longer_than_an_entry_of_an_index(address):
    name = "".join(random.Random(1).choices(string.ascii_letters, k=3_900))
    memory = create(source_url=address.format(name))
    assert Memory.objects.get(pk=memory.pk).source_uri == address.format(name)


# --- isolation --------------------------------------------------------------------------------------------------------


@pytest.fixture
def hidden(vault):
    imported(
        vault(
            {
                "a.md": "Ask about [[Private salaries]] or [[pay|the list]].",
                "Secret place/Private salaries.md": "---\nproject: payroll\naliases: [pay]\n---\n9,000 each.",
            }
        )
    )
    return Memory.objects.get(external_id="a.md"), Memory.objects.get(project__slug="payroll")


def answers_about(memory, slug):
    """The answers about a memory, through all interfaces, for a key of one project."""
    made = make_key(
        name="k", scopes=["read"], projects=Project.objects.filter(slug=slug), every_project=False, viewer=EVERYTHING
    )
    client = Client(headers={"Authorization": f"Bearer {made.raw}"})
    viewer = viewer_of_key(ApiKey.objects.get(name="k"))
    yield client.get(f"/api/memories/{memory.pk}").content.decode()
    yield client.post("/api/memories/batch", {"ids": [memory.pk]}, content_type="application/json").content.decode()
    for form in ("jsonl", "obsidian"):
        response = client.get("/api/export", {"format": form})
        body = b"".join(response.streaming_content) if response.streaming else response.content
        if body[:2] == b"PK":
            (folder := __import__("io").BytesIO(body)).seek(0)
            with zipfile.ZipFile(folder) as archive:
                body = b"".join(name.encode() + archive.read(name) for name in archive.namelist())
        yield body.decode(errors="replace")
    told = str(call(TOOL["get_observations"], {"ids": [memory.pk]}, viewer))
    assert memory.title in told
    yield told
    page = page_of(memory, viewer)
    yield page.body + repr(page.links) + repr(page.backlinks)


@pytest.mark.parametrize("is_old", [False, True])
def test_a_reader_learns_nothing_about_a_linked_memory_that_they_may_not_see(hidden, is_old):
    memory, salaries = hidden
    if is_old:
        # As earlier versions stored it.
        path = "Secret place/Private salaries.md"
        MemoryLink.objects.filter(memory=memory, ordinal=0).update(target=path)
        memory.raw["links"] = [{"rel": "links-to", "target": path}, path]
        memory.save(update_fields=["raw"])
    assert {target for _, _, target in links_of(memory)} == {salaries.pk}
    assert memory_url(salaries.pk) in page_of(memory).body
    for answer in answers_about(memory, "one"):
        for secret in ("Secret place", "payroll", "9,000", memory_url(salaries.pk)):
            assert secret not in answer
    page = page_of(memory, sees("one"))
    assert [link.target for _, links in page.links for link in links] == ["Private salaries", "pay"]
    assert "[[Private salaries]]" in page.body


def test_a_web_of_many_links_is_stored_soon(tmp_path, django_assert_max_num_queries):
    path = tmp_path / "web.jsonl"
    lines = [
        f'{{"content": "[[N {n + 1}]] [[n {n * 7 % 2000}]] [[Nobody {n}]]", "title": "N {n}"}}' for n in range(2000)
    ]
    path.write_text("\n".join(lines))
    with django_assert_max_num_queries(120):
        imported(path)
    assert MemoryLink.objects.filter(target_memory=None).count() == 2001
    with django_assert_max_num_queries(45):
        create("[[N 5]]", title="Nobody 77")
    assert MemoryLink.objects.filter(target_memory=None).count() == 2000
