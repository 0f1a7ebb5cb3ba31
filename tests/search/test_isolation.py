"""Isolation as a property: changes in other projects never change any response to a user of one project, through any
interface. Responses that do not change cannot reveal anything.
"""

import json
import random
import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.keys import make_key
from access.models import ApiKey, Membership
from access.viewer import command_viewer, viewer_of_key
from agent_tools.calls import ToolRefusedError, call
from agent_tools.catalogue import TOOL
from categories.models import Category, Concept, Entity, Relationship
from memories.models import Memory, Project
from memories.records import MemoryRecord
from memories.services import memory_create, memory_delete
from memories.supersession import memory_supersede
from search.facets import FACET
from tests.search.conftest import BOTH_ENGINES, EVERY_COUNT
from web.cache import clear_caches

pytestmark = EVERY_COUNT

EVERYTHING = command_viewer()
# Names of the other projects, some similar to those of the tea house.
SECRETS = ["zanzibar", "kettles", "brewings", "oolongs", "temperatures", "zephyrine"]
SHARED = ["tea", "kettle", "guests", "hardware", "brewing"]
# Parts that change with time or with each request.
CHANGING = re.compile(
    r'"took_ms": ?[\d.]+|name="csrfmiddlewaretoken" value="[^"]*"|data-csrf="[^"]*"|"X-CSRFToken": "[^"]*"|[\d.]+ ms'
    r'|data-shown="[^"]*"'
)


def record_of_another(rng, n):
    """A memory of another project that shares names with the tea house, and has its own secrets."""
    names = rng.sample(SHARED, 2) + rng.sample(SECRETS, 2)
    rng.shuffle(names)
    return {
        "id": f"x{n}",
        "project": rng.choice(["boat", "secret", "zanzibar"]),
        "type": rng.choice(["note", "decision", "zanzibar-report", "howto"]),
        "title": f"{names[0]} {names[1]} {n}",
        "content": " ".join(rng.choices([*SHARED, *SECRETS, "crane", "sugar", "winter"], k=20)),
        "tags": names,
        "categories": [rng.choice(["Kitchen/Brewing", "Kitchen/Zanzibar", "Guests", f"Zanzibar/{names[0]}"])],
        "concepts": [rng.choice(["temperature", "hospitality", "zephyrine"])],
        "entities": [
            {"name": rng.choice(["Mio", "kettle", "zanzibar"]), "type": rng.choice(["person", "tool", "zed"])}
        ],
        "links": [{"rel": "mentions", "target": "t1"}, {"rel": "fixes", "target": f"#{rng.randrange(1, 400)}"}],
        "authors": [rng.choice(["Mio", "Ben", "Zanzi Bar"])],
        "agent": rng.choice(["claude-code", "zanzi-agent"]),
        "source": rng.choice(["wiki", "zanzi-source"]),
        "created_at": f"20{rng.randrange(10, 26)}-0{rng.randrange(1, 10)}-11T10:00:00Z",
        "state": rng.choice(["active", "active", "proposed", "archived"]),
    }


def trouble(rng, n):
    """Changes in other projects: memories created, deleted, replaced, and facts about shared entities."""
    made = [
        memory_create(record=MemoryRecord.model_validate(record_of_another(rng, 10 * n + k)), viewer=EVERYTHING)
        for k in range(4)
    ]
    memory_delete(memory_id=made[0].pk, viewer=EVERYTHING, reason="zanzibar")
    if made[1].project_id == made[2].project_id:
        memory_supersede(memory_id=made[1].pk, by_id=made[2].pk, viewer=EVERYTHING)
    ends = list(Entity.objects.order_by("-id")[:2])
    kind = f"knows-{n}"
    Relationship.objects.create(source=ends[0], target=ends[1], relationship_type=kind, evidence_ids=[made[3].pk])


# Not the order by relevance of several words: the index weighs words by their rarity among all memories, so it may
# change the order of visible hits. Scores are only for viewers of all projects.
QUERIES = [
    "",
    "q=tea",
    "q=kettle+or+brewing&sort=newest",
    "q=zanzibar",
    "q=zanzibr",
    "q=kettels",
    "tag=kettles",
    "tag=zanzibr",
    "category=zanzibar",
    "category=kitchen",
    "category=kitchen/zanzibar",
    "concept=zephyrin",
    "entity=zed:zanzibar",
    "entity=Mio",
    "author=Zanzi+Bar",
    "agent=zanzi-agent",
    "source=zanzi-source",
    "type=zanzibar-report",
    "project=zanzibar",
    "project=secret&project=tea",
    "-tag=zanzibar&-category=zanzibar&-project=boat",
    "state=deleted&state=archived",
    "from=2012-01-01&to=2024-12-31&tag=tea",
    "no=category",
]


# Links of shared names, and of names of the other projects.
GRAPH = [
    "entities",
    "entities?search=z&sort=-links",
    "entities?type=zed",
    "entities/person:Mio",
    "entities/person:Mio/neighbourhood?depth=2",
    "entities/zanzibar",
    "entities/kettel",
    "entities/path?from=person:Mio&to=tool:kettle",
    "entities/path?from=person:Mio&to=tool:kettle&together=1",
    "entities/path?from=person:Mio&to=zed:zanzibar",
    "concepts",
    "concepts/temperature",
    "concepts/temperature/neighbourhood?depth=2",
    "concepts/zephyrin",
]


def addresses(first_new):
    """URLs and queries that try names, ids and paths of the other projects."""
    tea = Memory.objects.get(external_id="t1").pk
    for query in QUERIES:
        yield "get", f"/api/search?include_facets=1&{query}", None
        yield "get", f"/api/facets?{query}", None
    for facet in FACET:
        yield "get", f"/api/facets/{facet}?sort=name", None
        yield "get", f"/api/facets/{facet}?search=zan&q=tea", None
    yield "get", "/api/facets/category?parent=zanzibar", None
    yield "get", "/api/facets/category?parent=kitchen", None
    yield "get", f"/api/search?category={Category.objects.latest('id').pk + 1}", None
    yield "get", f"/api/search?concept={Concept.objects.latest('id').pk + 1}", None
    yield "get", f"/api/search?entity={Entity.objects.latest('id').pk + 1}", None
    for query in ("", "sort_by=name&include_hierarchy=1", "filter=z", "sort_by=concept_count"):
        yield "get", f"/api/categories?{query}", None
    for ref in ("kitchen", "guests", "zanzibar", "kitchen/zanzibar", "zanzibr", "kitchens", "brewings"):
        yield "get", f"/api/categories/{ref}?include_children=1&include_chunks=1", None
        yield "get", f"/api/categories/{ref}/concepts?include_children=1", None
    yield "get", f"/api/categories/{Category.objects.latest('id').pk + 1}", None
    yield from (("get", f"/api/{address}", None) for address in GRAPH)
    for number in range(1, 6):
        yield "get", f"/api/relationships/{number}", None
        yield "get", f"/api/entities/{Entity.objects.latest('id').pk + number}", None
    yield "get", "/api/health", None
    yield "get", f"/api/memories/{tea}", None
    yield "get", f"/api/memories/{first_new}", None
    yield "get", f"/api/timeline?anchor={tea}&depth_before=100&depth_after=100", None
    yield "get", f"/api/timeline?anchor={first_new}", None
    yield "get", "/api/timeline?query=kettle+valve&depth_before=100&depth_after=100", None
    yield "get", "/api/timeline?query=zanzibar", None
    ids = {"ids": [tea, first_new, first_new + 1]}
    yield "post", "/api/memories/batch", ids
    yield "post", "/api/observations/batch", {**ids, "project": "zanzibar"}


CALLS = [
    ("search", {"query": "tea", "include_facets": True}),
    ("search", {"query": "zanzibr"}),
    ("search", {"category": "zanzibar", "include_facets": True}),
    ("timeline", {"query": "kettle valve", "depth_before": 100, "depth_after": 100}),
    ("retrieve_memory", {"query": "kettle", "include_facets": True}),
    ("list_categories", {"include_hierarchy": True}),
    ("category_search", {"category": "kitchen", "include_children": True}),
    ("category_search", {"category": "zanzibr"}),
    ("list_concepts_in_category", {"category": "guests"}),
    ("update_memory", {"id": 0, "tags": ["x"]}),
    ("relate", {"id": 0, "target": 0}),
    ("get_observations", {"ids": [0]}),
    ("store_memory", {"content": "x", "project": "zanzibar"}),
]
PAGES = [
    "/explore/",
    "/explore/?q=kettle",
    "/explore/?q=zanzibr",
    "/explore/?category=zanzibar",
    "/facets/tag/",
    "/facets/entity/",
    "/categories/",
    "/categories/?filter=z",
    "/categories/?show=single",
    "/categories/kitchen/",
    "/categories/zanzibar/",
    "/graph/",
    "/graph/concepts/",
    "/graph/entity/person:Mio/?depth=2",
    "/graph/entity/zed:zanzibar/",
    "/graph/concept/temperature/",
    "/graph/entity/person:Mio/?to=zanzibr&together=1",
]


def told_by_tools(viewer, first_new):
    for name, arguments in CALLS:
        given = {
            key: first_new if value == 0 else [first_new] if value == [0] else value for key, value in arguments.items()
        }
        try:
            yield f"{name} {arguments}", call(TOOL[name], given, viewer)
        except ToolRefusedError as error:
            yield f"{name} {arguments}", str(error)


def everything_told(caller, browser, viewer, first_new, asked):
    """Every answer of every door, by what was asked."""
    clear_caches()
    told = {}
    for method, address, body in asked:
        response = (
            caller.get(address) if method == "get" else caller.post(address, body, content_type="application/json")
        )
        assert response.status_code < 500, address
        told[f"{address} {json.dumps(body)}"] = f"{response.status_code} {CHANGING.sub('', response.text)}"
    told.update(told_by_tools(viewer, first_new))
    tea = Memory.objects.get(external_id="t1").pk
    for page in (*PAGES, f"/m/{tea}/", f"/m/{first_new}/"):
        response = browser.get(page)
        told[page] = f"{response.status_code} {CHANGING.sub('', response.text)}"
    return told


def difference(asked, before, after):
    """The first difference between two responses, as text."""
    at = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after)))
    part = slice(max(at - 60, 0), at + 160)
    return asked, before[part], after[part]


@BOTH_ENGINES
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.release) for n in (2, 3))])
def test_nothing_that_happens_elsewhere_changes_any_answer(corpus, seed):
    tea = Project.objects.get(slug="tea")
    raw = make_key(name="tea", scopes=["read", "write"], projects=[tea], viewer=EVERYTHING).raw
    user = User.objects.create_user("reader")
    Membership.objects.create(user=user, project=tea)
    caller, browser = Client(headers={"Authorization": f"Bearer {raw}"}), Client()
    browser.force_login(user)
    viewer = viewer_of_key(ApiKey.objects.get())
    first_new = Memory.objects.latest("id").pk + 1
    asked = list(addresses(first_new))
    before = everything_told(caller, browser, viewer, first_new, asked)
    rng = random.Random(seed)
    for n in range(3):
        trouble(rng, n)
    assert Memory.objects.latest("id").pk > first_new
    after = everything_told(caller, browser, viewer, first_new, asked)
    assert [difference(one, told, after[one]) for one, told in before.items() if told != after[one]] == []


def test_equal_terms_are_in_the_order_of_their_names_whoever_used_them_first(corpus):
    # Another project uses them in the reverse order of their types and paths.
    for kind, root in (("tool", "Yard"), ("person", "Attic")):
        memory_create(
            record=MemoryRecord.model_validate(
                {
                    "content": f"Elsewhere, by {root}.",
                    "project": "boat",
                    "categories": [f"{root}/Lamp"],
                    "entities": [{"name": "Lamp", "type": kind}],
                }
            ),
            viewer=EVERYTHING,
        )
    own = {
        "content": "Ours.",
        "project": "tea",
        "categories": ["Yard/Lamp", "Attic/Lamp"],
        "entities": [{"name": "Lamp", "type": "tool"}, {"name": "Lamp", "type": "person"}],
    }
    memory_create(record=MemoryRecord.model_validate(own), viewer=EVERYTHING)
    raw = make_key(name="tea", scopes=["read"], projects=[Project.objects.get(slug="tea")], viewer=EVERYTHING).raw
    caller = Client(headers={"Authorization": f"Bearer {raw}"})
    clear_caches()
    counted = caller.get("/api/facets/entity?search=lamp").json()["values"]
    assert [value["value"] for value in counted] == ["person:Lamp", "tool:Lamp"]
    assert caller.get("/api/entities/lamp").json()["did_you_mean"] == ["person:Lamp", "tool:Lamp"]
    own_id = Memory.objects.latest("id").pk
    checks = caller.get(f"/api/search/why-not?id={own_id}&q=lamp").json()["checks"]
    assert next(check["asked"] for check in checks if check["name"] == "name") == (
        "carries the category “Attic / Lamp”, the category “Yard / Lamp”, the entity “person:Lamp” or the entity"
        " “tool:Lamp”"
    )


def test_other_key_sees_what_the_first_one_does_not(corpus):
    trouble(random.Random(4), 1)
    others = Project.objects.exclude(slug="tea")
    raw = make_key(name="others", scopes=["read"], projects=others, viewer=EVERYTHING).raw
    reply = Client(headers={"Authorization": f"Bearer {raw}"}).get("/api/search?include_facets=1&page_size=100").json()
    assert {memory["project"] for memory in reply["memories"]} <= {project.slug for project in others}
    assert "tea" not in reply["facets"]["projects"]
    assert reply["total"] == sum(reply["facets"]["projects"].values()) >= 7
