"""The memories that links name: by an id, else by the name of a file, a title or an alias.

A target is stored with its link, so that it stays when the memory is renamed or moved. Whoever reads it sees it only
if the viewer may open the memory: readers come through `visible_to`.
"""

import json
import posixpath
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from access.viewer import Viewer
from memories.models import Memory
from memories.records import DEFAULT_REL, EMBEDS_REL
from memories.snapshot import MemorySnapshot, array_literal
from text.wiki_links import link_name, name_key, names_of_file
from web.sql import execute, fetch, fetch_column

# Links that only say that a text names another one: they may lead to another project.
_OF_TEXTS = (DEFAULT_REL, EMBEDS_REL)
# Names in one statement.
_MANY = 20_000
_NAMES = "ARRAY(SELECT lower(name) FROM unnest(%(names)s::text[]) AS name)"
_HASHES = "ARRAY(SELECT md5(lower(name)) FROM unnest(%(names)s::text[]) AS name)"
# Uses memory_title_idx, memory_file_idx and memory_alias_gin, whose conditions these are.
_CALLED = f"""
SELECT id FROM memories_memory
WHERE md5(lower(title)) = ANY({_HASHES})
UNION SELECT id FROM memories_memory
WHERE source_uri <> '' AND NOT source_uri LIKE '%%://%%'
  AND md5(lower(substring(source_uri, '[^/]*$'))) = ANY({_HASHES})
UNION SELECT id FROM memories_memory
WHERE raw ? 'aliases' AND lower((raw -> 'aliases')::text)::jsonb ?| {_NAMES}"""
_PLACES = """
SELECT memory.id, memory.project_id, memory.title, memory.source_uri, memory.raw -> 'aliases', batch.origin
FROM memories_memory memory LEFT JOIN memories_importbatch batch ON batch.id = memory.batch_id
WHERE memory.id = ANY(%s::bigint[]) AND memory.state <> 'deleted'"""
# Uses memorylink_name_idx.
_DANGLING = """
SELECT memory_id, ordinal, rel, target, url FROM memories_memorylink
WHERE target_memory_id IS NULL AND """


class DanglingLink(NamedTuple):
    """A link whose target is not known."""

    memory_id: int
    ordinal: int
    rel: str
    target: str
    url: str


class FoundLink(NamedTuple):
    """A link whose target was found now."""

    memory_id: int
    ordinal: int
    rel: str
    target: str
    target_id: int


class _NamedMemory(NamedTuple):
    """A memory as it names others, and is named."""

    id: int
    project_id: int
    folder: str
    source: str
    """The import source that it came from; empty if it was written here."""
    ranks: Mapping[str, int]
    """Its names as they are compared, and how surely each means it."""


def number_named(name: str) -> int | None:
    """The number of a memory in a name such as `#123`."""
    is_number = name[:1] == "#" and name[1:].isascii() and name[1:].isdigit() and len(name) < 19
    return int(name[1:]) if is_number else None


def targets_resolve(names: Iterable[tuple[int, str]]) -> dict[tuple[int, str], int]:
    """(project, external id or `#id`) -> the memory of that project; the oldest if several have the id."""
    wanted = list(names)
    if not wanted:
        return {}
    found = {
        (project_id, external_id): memory_id
        for project_id, external_id, memory_id in fetch(
            "SELECT memory.project_id, memory.external_id, min(memory.id) FROM memories_memory memory"
            " JOIN unnest(%s::bigint[], %s::text[]) AS named (project_id, external_id)"
            " ON memory.project_id = named.project_id AND memory.external_id = named.external_id"
            " WHERE memory.external_id <> '' GROUP BY 1, 2",
            [[project_id for project_id, _ in wanted], [name for _, name in wanted]],
        )
    }
    numbers = {number for _, name in wanted if (number := number_named(name))}
    if numbers:
        for memory_id, project_id in Memory.objects.filter(pk__in=numbers).values_list("id", "project_id"):
            found.setdefault((project_id, f"#{memory_id}"), memory_id)
    return found


def names_of_snapshot(memory: MemorySnapshot) -> list[str]:
    """The names by which links may mean a memory."""
    aliases = json.loads(memory.raw).get("aliases") if memory.raw and '"aliases"' in memory.raw else None
    return _names_in_record(memory.title, memory.external_id, memory.source_uri, aliases)


def names_of_memories(memory_ids: Collection[int]) -> list[str]:
    """The names by which links may mean some memories."""
    rows = Memory.objects.filter(pk__in=memory_ids).values_list("title", "external_id", "source_uri", "raw__aliases")
    return [name for row in rows for name in _names_in_record(*row)]


def _names_in_record(title: str, external_id: str, source_uri: str, aliases: Any) -> list[str]:
    files = names_of_file(source_uri) if source_uri and "://" not in source_uri else ()
    return [name for name in (title, external_id, *files, *_alias_texts(aliases)) if name]


def _alias_texts(aliases: Any) -> list[str]:
    """The aliases of a record, where anything may stand."""
    several = aliases if isinstance(aliases, list) else [aliases]
    return [one.strip() for one in several if isinstance(one, str) and one.strip()]


def dangling_links(memory_ids: Collection[int] = (), names: Collection[str] = ()) -> list[DanglingLink]:
    """The links without a target of some memories, and those that have one of some names."""
    found: dict[DanglingLink, None] = {}
    if memory_ids:
        found |= dict.fromkeys(DanglingLink(*row) for row in fetch(f"{_DANGLING} memory_id = ANY(%s)", [[*memory_ids]]))
    spelled = _spellings(names)
    for start in range(0, len(spelled), _MANY):
        some = {"names": array_literal(spelled[start : start + _MANY])}
        found |= dict.fromkeys(DanglingLink(*row) for row in fetch(f"{_DANGLING} lower(target) = ANY({_NAMES})", some))
    return list(found)


def _spellings(names: Iterable[str]) -> list[str]:
    """Names with accents in both ways that systems write them in."""
    every = list(dict.fromkeys(names))
    further = [unicodedata.normalize(form, name) for form in ("NFC", "NFD") for name in every if not name.isascii()]
    return list(dict.fromkeys([*every, *further]))


def set_targets(links: Sequence[DanglingLink], viewer: Viewer) -> list[FoundLink]:
    """Find and store the targets of links, as far as there are memories that they name.

    In other projects, these are memories that the viewer sees: those of hidden ones must not show in what is found.
    """
    found = _found_links(links, viewer) if links else []
    if found:
        execute(
            "UPDATE memories_memorylink link SET target_memory_id = named.target_id"
            " FROM unnest(%s::bigint[], %s::smallint[], %s::bigint[]) AS named (memory_id, ordinal, target_id)"
            " WHERE link.memory_id = named.memory_id AND link.ordinal = named.ordinal",
            [[one.memory_id for one in found], [one.ordinal for one in found], [one.target_id for one in found]],
        )
    return found


def _found_links(links: Sequence[DanglingLink], viewer: Viewer) -> list[FoundLink]:
    # Not in one statement: without statistics, as in a first import, a join would compare every link with every memory.
    naming = {one.id: one for one in _places({link.memory_id for link in links})}
    links = [link for link in links if link.memory_id in naming]
    by_id = targets_resolve({(naming[link.memory_id].project_id, link.target) for link in links})
    targets = {link: by_id.get((naming[link.memory_id].project_id, link.target)) for link in links}
    by_name = [link for link, known in targets.items() if known is None and not link.url]
    called = _memories_by_name({link.target for link in by_name}) if by_name else {}
    # Links of one place that are called alike mean the same: thousands may name one of thousands.
    meant: dict[tuple[Any, ...], int | None] = {}
    for link in by_name:
        own = naming[link.memory_id]
        place = (own.project_id, own.source, own.folder, link.rel in _OF_TEXTS, link.target)
        if place not in meant:
            meant[place] = _meant(link, own, called, viewer)
        targets[link] = meant[place]
    return [FoundLink(*link[:4], target_id) for link, target_id in targets.items() if target_id is not None]


def _places(memory_ids: Collection[int]) -> list[_NamedMemory]:
    rows = fetch(_PLACES, [list(memory_ids)])
    return [
        _NamedMemory(memory_id, project_id, posixpath.dirname(uri), origin or "", _ranks(title, uri, _json(aliases)))
        for memory_id, project_id, title, uri, aliases, origin in rows
    ]


def _json(value: Any) -> Any:
    """A value of a JSON column, which comes as text."""
    return json.loads(value) if isinstance(value, str) else value


def _ranks(title: str, source_uri: str, aliases: Any) -> dict[str, int]:
    """The name of a file goes before another note's title, and that before another note's alias."""
    ranks: dict[str, int] = {}
    files = names_of_file(source_uri) if source_uri and "://" not in source_uri else ()
    for rank, names in enumerate((files, (title,), _alias_texts(aliases))):
        for name in names:
            ranks.setdefault(name_key(name), rank)
    return ranks


def _memories_by_name(targets: Collection[str]) -> dict[str, list[_NamedMemory]]:
    """The memories that have names, by the names as they are compared."""
    wanted = {name_key(target) for target in targets}
    ends = {link_name(target).rsplit("/", 1)[-1] for target in targets}
    files = [f"{end}{suffix}" for end in ends for suffix in ("", ".md", ".markdown", ".mdc")]
    names = _spellings([*map(link_name, targets), *files])
    ids: set[int] = set()
    for start in range(0, len(names), _MANY):
        ids.update(fetch_column(_CALLED, {"names": array_literal(names[start : start + _MANY])}))
    found: dict[str, list[_NamedMemory]] = defaultdict(list)
    for place in _places(ids) if ids else ():
        for name in wanted.intersection(place.ranks):
            found[name].append(place)
    return found


def _meant(
    link: DanglingLink, naming: _NamedMemory, called: Mapping[str, Sequence[_NamedMemory]], viewer: Viewer
) -> int | None:
    """The memory that a link names: of its project, else of the source that its memory came from, else the only one."""
    key = name_key(link.target)
    own = [one for one in called.get(key, ()) if one.project_id == naming.project_id]
    if not own and link.rel in _OF_TEXTS:
        seen = [one for one in called.get(key, ()) if viewer.may_see(one.project_id)]
        own = [one for one in seen if naming.source and one.source == naming.source]
        own = own or [one for one in seen if len(seen) == 1]
    beside = posixpath.join(naming.folder, posixpath.dirname(link_name(link.target))).rstrip("/")

    def order(one: _NamedMemory) -> tuple[bool, int, bool, int]:
        return one.source != naming.source, one.ranks[key], one.folder != beside, one.id

    return min(own, key=order).id if own else None
