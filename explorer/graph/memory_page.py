"""The neighbourhood of a memory: its links, those of others to it, and the entities and concepts that it names."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.urls import reverse

from categories.queries import Term
from explorer.graph.node_page import NeighbourGroup, NeighbourItem
from explorer.graph.svg import NODES_DRAWN, Drawing, StarNode, draw_star
from explorer.links import node_url
from memories.models import Memory, MemoryLink
from memories.queries import MemoryDetail, MemoryTitle
from text.formatting import verb_text
from text.highlight import title_or_number

_KINDS = ("memory", "entity", "concept")
# Memories that are drawn if there are more terms than places beside them.
_MEMORIES_DRAWN = 12
# Neighbours that a group lists; their page has all of them.
_LISTED = 60
# Links among the memories that are drawn.
_MOST_TIES = 200
Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class MemoryGraphPage:
    """A memory and its neighbours, as a list and as a drawing of the first of them."""

    memory: Memory
    title: str
    total: int
    groups: tuple[NeighbourGroup, ...]
    drawing: Drawing | None
    drawn: int


@dataclass(frozen=True, slots=True)
class _LinkedMemory:
    """Another memory, and how this one is linked with it: in words from here, or from there if `is_back`."""

    title: MemoryTitle
    label: str


def memory_graph(detail: MemoryDetail) -> MemoryGraphPage:
    """The neighbourhood of a memory as its reader may see it; two statements for the links among those drawn."""
    linked = list(_linked_memories(detail))
    first = {one.title.id: one for one in reversed(linked)}
    nodes = _nodes(list(dict.fromkeys(one.title.id for one in linked)), first, detail)
    groups = [*_memory_groups(linked), *_term_groups(detail)]
    title = title_or_number(detail.memory.title, detail.memory.pk)
    return MemoryGraphPage(
        memory=detail.memory,
        title=title,
        total=len(first) + len(detail.entities) + len(detail.concepts),
        groups=tuple(groups),
        drawing=draw_star(title, nodes, _ties([node.key for node in nodes]), _KINDS) if nodes else None,
        drawn=len(nodes),
    )


def _linked_memories(detail: MemoryDetail) -> Iterable[_LinkedMemory]:
    """The other memories that are not deleted, each with every way in which it is linked."""
    links = [(detail.superseded_by, "Replaced by")] if detail.superseded_by else []
    links += [(memory, "Replaces") for memory in detail.supersedes]
    links += [(link.memory, f"{_label_of(link.rel)} …") for link in detail.links if link.memory]
    links += [(memory, f"… {_label_of(rel, is_back=True)} this") for rel, memory in detail.backlinks]
    for memory, label in links:
        if memory.state != Memory.State.DELETED and memory.id != detail.memory.pk:
            yield _LinkedMemory(memory, label)


def _label_of(rel: str, *, is_back: bool = False) -> str:
    words = verb_text(rel).strip() or "linked"
    return words if is_back else f"{words[:1].upper()}{words[1:]}"


def _memory_groups(linked: Sequence[_LinkedMemory]) -> Iterable[NeighbourGroup]:
    for label in dict.fromkeys(one.label for one in linked):
        items = [_memory_item(one.title) for one in linked if one.label == label]
        yield NeighbourGroup(label, tuple(items[:_LISTED]), is_all=len(items) <= _LISTED)


def _memory_item(title: MemoryTitle) -> NeighbourItem:
    note = "" if title.state == Memory.State.ACTIVE else title.state
    name = title_or_number(title.title, title.id)
    return NeighbourItem(name, memory_graph_url(title.id), title.memory_type, note, "", None)


def memory_graph_url(memory_id: int) -> str:
    return reverse("graph:memory", args=[memory_id])


def _term_groups(detail: MemoryDetail) -> Iterable[NeighbourGroup]:
    for kind, label, terms in (("entity", "Entities", detail.entities), ("concept", "Concepts", detail.concepts)):
        if terms:
            items = (NeighbourItem(one.label, _url_of(kind, one), one.type, "", "", None) for one in terms[:_LISTED])
            yield NeighbourGroup(label, tuple(items), is_all=len(terms) <= _LISTED)


def _url_of(kind: str, term: Term) -> str:
    return node_url(kind, term.id, term.value)


def _nodes(memory_ids: Sequence[int], linked: dict[int, _LinkedMemory], detail: MemoryDetail) -> list[StarNode[Key]]:
    """The nodes that are drawn: memories first, then as many terms as there is room for."""
    terms = [("entity", one) for one in detail.entities] + [("concept", one) for one in detail.concepts]
    memories = memory_ids[: max(_MEMORIES_DRAWN, NODES_DRAWN - len(terms))][:NODES_DRAWN]
    nodes = []
    for memory_id in memories:
        one = linked[memory_id]
        label = title_or_number(one.title.title, memory_id)
        name = f"{label}: {one.label.strip(' …')}"
        nodes.append(
            StarNode(("memory", memory_id), label, memory_graph_url(memory_id), name, "memory", is_stated=True)
        )
    for kind, term in terms[: NODES_DRAWN - len(nodes)]:
        name = ", ".join(filter(None, (term.label, term.type)))
        nodes.append(StarNode((kind, term.id), term.label, _url_of(kind, term), name, kind, is_stated=False))
    return nodes


def _ties(keys: Sequence[Key]) -> list[tuple[Key, Key]]:
    """The links of drawn memories among each other, and to drawn entities and concepts."""
    ids = [pk for kind, pk in keys if kind == "memory"]
    if not ids:
        return []
    links = MemoryLink.objects.filter(memory_id__in=ids, target_memory_id__in=ids)
    found: dict[tuple[Key, Key], None] = {}
    for one, other in links.values_list("memory_id", "target_memory_id")[:_MOST_TIES]:
        if one != other and other is not None:
            found[("memory", min(one, other)), ("memory", max(one, other))] = None
    known = set(keys)
    for pk, entity_ids, concept_ids in Memory.objects.filter(pk__in=ids).values_list("pk", "entity_ids", "concept_ids"):
        named = [*(("entity", one) for one in entity_ids), *(("concept", one) for one in concept_ids)]
        found |= dict.fromkeys((("memory", pk), key) for key in named if key in known)
    return list(found)[:_MOST_TIES]
