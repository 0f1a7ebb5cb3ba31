"""The memory file of the MCP reference server: entities with their observations, and relations between them.

An observation of a single entity, as the import of such a file makes them, is one again. Every other memory is an
entity of its own, which mentions the entities that it is about and leads to the memories that it is linked with.
"""

import itertools
import json
from array import array
from collections.abc import Iterator
from typing import Any

from text.titles import plain_title
from transfer.export import Line
from transfer.formats.export import Lines, Remembered, Waiting, json_bytes, own_title
from transfer.formats.files import shown_name

_LONGEST_NAME = 200


def written(lines: Lines) -> Iterator[bytes]:
    """The lines of the file: memories as they come, then entities, then relations."""
    with Waiting() as observations, Waiting() as relations, Remembered() as taken, Remembered() as targets:
        graph = _Graph(observations, relations, taken, targets)
        for line in lines():
            match line.get("record"):
                case None:
                    yield from graph.memory(line)
                case "entity":
                    graph.entity(line)
                case "relationship":
                    graph.relationship(line)
        yield from graph.entities()
        yield from graph.relations()


class _Graph:
    """The names in the file, which knows entities by their name alone, so that no two may share one."""

    def __init__(self, observations: Waiting, relations: Waiting, taken: Remembered, by_target: Remembered) -> None:
        self._observations = observations
        self._relations = relations
        self._taken = taken
        # Project and target of a link -> the name in the file.
        self._by_target = by_target
        # Name and type -> the name in the file, and the places and lengths of its observations.
        self._entities: dict[tuple[str, str], tuple[str, array[int]]] = {}

    def entity(self, line: Line) -> None:
        key = (line["name"], line["type"])
        self._entities[key] = (self._named(line["name"], line["type"]), array("Q"))

    def memory(self, line: Line) -> Iterator[bytes]:
        entities = [(one["name"], one["type"]) for one in line.get("entities", ())]
        if line["type"] == "observation" and len(entities) == 1 and not own_title(line):
            name, places = self._entities[entities[0]]
            text = json_bytes(line["content"])
            places.extend((self._observations.add(text), len(text)))
        else:
            number = line["stored"]["number"]
            title = plain_title(line.get("title", "")) or f"#{number}"
            name = self._named(title[:_LONGEST_NAME], f"#{number}")
            yield _entity(name, line["type"], [json_bytes(text) for text in _said(line)])
            for key in entities:
                self._relate(name, "mentions", self._entities[key][0])
        for target in (line.get("id"), f"#{line['stored']['number']}"):
            if target:
                self._by_target.set(name, line["project"], target)
        for link in line.get("links", ()):
            if "url" not in link:
                self._relate(name, link["rel"], link["target"], line["project"])

    def relationship(self, line: Line) -> None:
        ends = ((end["name"], end["type"]) for end in (line["source"], line["target"]))
        source, target = (self._entities[end][0] for end in ends)
        self._relate(source, line["type"], target)

    def _relate(self, source: str, relation: str, target: str, project: str = "") -> None:
        self._relations.add(json_bytes([source, relation, target, project]) + b"\n")

    def _named(self, name: str, other: str) -> str:
        """A name that nothing else in the file has: the given one, or that with what tells it from others."""
        names = itertools.chain((name, f"{name} ({other})"), (f"{name} ({other}, {n})" for n in itertools.count(2)))
        chosen = next(one for one in names if self._taken.get(one) is None)
        return self._taken.add(chosen, chosen)

    def entities(self) -> Iterator[bytes]:
        for (_, kind), (name, places) in self._entities.items():
            texts = (self._observations.at(*place) for place in zip(places[::2], places[1::2], strict=True))
            yield _entity(name, kind, texts)

    def relations(self) -> Iterator[bytes]:
        for text in self._relations.lines():
            source, relation, target, project = json.loads(text)
            end = (self._by_target.get(project, target) if project else None) or target
            yield json_bytes({"type": "relation", "from": source, "to": end, "relationType": relation}) + b"\n"


def _entity(name: str, kind: str, observations: Any) -> bytes:
    head = json_bytes({"type": "entity", "name": name, "entityType": kind})
    return head[:-1] + b', "observations": [' + b", ".join(observations) + b"]}\n"


def _said(line: Line) -> Iterator[str]:
    """The observations of a memory: its texts, and a last line with its other fields."""
    if "summary" in line:
        yield line["summary"]
    yield line["content"]
    names = [name for name in ("tags", "categories", "concepts") if name in line]
    about = {"project": line["project"], "created": line["created_at"]} | {
        name: ", ".join(shown_name(one) for one in line[name]) for name in names
    }
    yield "; ".join(f"{name}: {value}" for name, value in about.items())
