"""The verbs on tags, concepts, entities and what relates them. Pure: they work on a copy of the rows concerned."""

from collections.abc import Iterable, Mapping

from categories.details import joined_aliases
from categories.paths import clean_name
from curation.working_copy import CurationRefusedError, Relink, Row, WorkingCopy, references_follow
from memories.records import MAX_TAG, normalise_tag, slug_name

CONCEPT_REFERENCES = ("broader_ids", "narrower_ids", "related_ids")
OPPOSITE = {"broader": "narrower", "narrower": "broader", "related": "related"}
MAX_NAME = {"concept": 300, "entity": 500}


# --- concepts and entities ------------------------------------------------------------------------------------------


def term_rename(desk: WorkingCopy, kind: str, term_id: int, name: str) -> None:
    """Give a concept or an entity another name; the old one is an alias."""
    row = desk.table(kind)[term_id]
    new = clean_term_name(kind, name)
    if new == row["name"]:
        raise CurationRefusedError(f"Its name is already “{new}”.", "name")
    old = row["name"]
    row["aliases"] = joined_aliases(new, row["aliases"], [old])
    row["name"] = new
    desk.title = f"Renamed the {kind} {old} to {new}"
    desk.line("name", old, new, of=(kind, term_id))


def term_split(desk: WorkingCopy, kind: str, term_id: int, name: str, memory_ids: tuple[int, ...]) -> None:
    """Make another concept or entity of the same type, and link some of the memories to it instead. Of an entity come
    along the relationships that these memories alone bear out.
    """
    row = desk.table(kind)[term_id]
    new = clean_term_name(kind, name)
    if new.lower() in {known.lower() for known in (row["name"], *row["aliases"])}:
        raise CurationRefusedError(f"“{new}” is already one of its names: choose another for the new one.", "name")
    values: Row = {"name": new, "aliases": [], "description": "", f"{kind}_type": row[f"{kind}_type"]}
    if kind == "concept":
        values |= {"broader_ids": [], "narrower_ids": [], "related_ids": [], "weight": None}
    made = desk.make(kind, **values)
    desk.relinks.append(Relink(kind, (term_id,), made, memory_ids))
    desk.title = f"Split {new} off the {kind} {row['name']}"
    desk.touched.add((kind, term_id))
    desk.line(f"new {kind}", "", new)
    if kind == "entity":
        _facts_split(desk, term_id, made, set(memory_ids))


def _facts_split(desk: WorkingCopy, entity_id: int, made: int, memory_ids: set[int]) -> None:
    entities = desk.table("entity")
    for row in desk.table("relationship").values():
        if not row["evidence_ids"] or not memory_ids.issuperset(row["evidence_ids"]):
            continue
        for side in ("source_id", "target_id"):
            if row[side] == entity_id:
                row[side] = made
        told = row["fact"] or row["relationship_type"]
        desk.line("relationship moves along", told, entities[made]["name"], of=("relationship", row["id"]))


def clean_term_name(kind: str, name: str) -> str:
    """A name that a concept or an entity can have."""
    cleaned = clean_name(name)
    if not cleaned:
        raise CurationRefusedError(f"{'An' if kind == 'entity' else 'A'} {kind} needs a name.", "name")
    if len(cleaned) > MAX_NAME[kind]:
        raise CurationRefusedError(f"A name has up to {MAX_NAME[kind]} characters; this has {len(cleaned):,}.", "name")
    return cleaned


def _absorb(desk: WorkingCopy, kind: str, source_id: int, target_id: int) -> tuple[Row, Row]:
    """What merging says of the two rows, whatever they are of."""
    rows = desk.table(kind)
    source, target = rows[source_id], rows[target_id]
    if source_id == target_id:
        raise CurationRefusedError(f"{source['name']} cannot be merged into itself.", "target")
    names = [source["name"], *source["aliases"]]
    kind_of, target_kind = source[f"{kind}_type"], target[f"{kind}_type"]
    gone, kept = source["name"], target["name"]
    if kind == "entity" and kind_of != target_kind:
        gone, kept = f"{kind_of}:{gone}", f"{target_kind}:{kept}"
        # Names are told apart by type: what comes as `type:name` must go on finding it.
        names = [*names, *(f"{kind_of}:{name}" for name in names if ":" not in name)]
    target["aliases"] = joined_aliases(target["name"], target["aliases"], names)
    target["description"] = target["description"] or source["description"]
    desk.merged[source_id] = target_id
    desk.relinks.append(Relink(kind, (source_id,), target_id))
    desk.title = f"Merged the {kind} {gone} into {kept}"
    desk.line("merges into", gone, kept, of=(kind, source_id))
    before = ", ".join(_aliases(desk, kind, target_id))
    if before != (after := ", ".join(target["aliases"])):
        desk.line("other names", before, after, of=(kind, target_id))
    del rows[source_id]
    return source, target


def _aliases(desk: WorkingCopy, kind: str, term_id: int) -> list[str]:
    """As they stood."""
    return list((desk.was(kind, term_id) or {})["aliases"])


def concept_merge(desk: WorkingCopy, source_id: int, target_id: int, broader: Mapping[int, Iterable[int]]) -> None:
    """Merge a concept into another one. `broader` is the whole hierarchy: id -> the ids right above it."""
    source, target = _absorb(desk, "concept", source_id, target_id)
    target["concept_type"] = target["concept_type"] or source["concept_type"]
    target["weight"] = source["weight"] if target["weight"] is None else target["weight"]
    for column in CONCEPT_REFERENCES:
        target[column] = sorted({*target[column], *source[column]} - {source_id, target_id})
    references_follow(desk, "concept", CONCEPT_REFERENCES)
    contracted = _contracted(broader, source_id, target_id)
    if _reaches(contracted, target_id, target_id):
        raise CurationRefusedError(
            f"A concept is between {source['name']} and {target['name']}, broader than one and narrower than the "
            "other: merged, it would be broader than itself. Remove one of the two relations first.",
            "target",
        )


def entity_merge(desk: WorkingCopy, source_id: int, target_id: int) -> None:
    """Merge an entity into another one. Its relationships follow; one with itself ends, and repeats become one."""
    source, target = _absorb(desk, "entity", source_id, target_id)
    rows = desk.table("relationship")
    known: dict[tuple[int, str, int], Row] = {}
    for row in sorted(rows.values(), key=lambda row: (source_id in (row["source_id"], row["target_id"]), row["id"])):
        ends = [target_id if row[side] == source_id else row[side] for side in ("source_id", "target_id")]
        moved = ends != [row["source_id"], row["target_id"]]
        if moved and ends[0] == ends[1]:
            desk.line("relationship removed", _fact(row, source, target), of=("relationship", row["id"]))
            del rows[row["id"]]
            continue
        key = (ends[0], row["relationship_type"], ends[1])
        row["source_id"], row["target_id"] = ends
        if (same := known.get(key)) is None:
            known[key] = row
        else:
            _fact_join(same, row)
            desk.line("relationships merged", _fact(row, source, target), of=("relationship", row["id"]))
            del rows[row["id"]]


def _fact(row: Row, source: Row, target: Row) -> str:
    return str(row["fact"] or f"{source['name']} {row['relationship_type']} {target['name']}")


def _fact_join(kept: Row, gone: Row) -> None:
    """What one fact says and the other does not; evidence of both, and the surer of the two."""
    kept["fact"] = kept["fact"] or gone["fact"]
    kept["evidence_ids"] = sorted({*kept["evidence_ids"], *gone["evidence_ids"]})
    if gone["confidence"] is not None:
        kept["confidence"] = max(gone["confidence"], kept["confidence"] or 0)
    for column in ("valid_from", "valid_to"):
        kept[column] = kept[column] or gone[column]


# --- relations ------------------------------------------------------------------------------------------------------


def concepts_relate(
    desk: WorkingCopy, first_id: int, how: str, other_id: int, *, remove: bool, broader: Mapping[int, Iterable[int]]
) -> None:
    """Say that another concept is broader or narrower than one, or related to it; or no longer."""
    rows = desk.table("concept")
    first, other = rows[first_id], rows[other_id]
    if first_id == other_id:
        raise CurationRefusedError(f"{first['name']} cannot be related to itself.", "other")
    column, back = f"{how}_ids", f"{OPPOSITE[how]}_ids"
    said, said_back = other_id in first[column], first_id in other[back]
    if remove and not (said or said_back):
        raise CurationRefusedError(f"{other['name']} is not {how} to {first['name']}.", "other")
    if not remove and said and said_back:
        raise CurationRefusedError(f"{other['name']} is already {how} to {first['name']}.", "other")
    if not remove:
        _refuse_ring(first, how, other, broader)
    for row, name, one in ((first, column, other_id), (other, back, first_id)):
        row[name] = sorted(set(row[name]) - {one} if remove else {*row[name], one})
    sentence = f"{other['name']} is {'related to' if how == 'related' else f'{how} than'} {first['name']}"
    desk.title = f"{'Removed' if remove else 'Added'}: {sentence}"
    desk.said("relation", sentence, ends=remove, of=("concept", first_id))


def _refuse_ring(first: Row, how: str, other: Row, broader: Mapping[int, Iterable[int]]) -> None:
    if how == "related":
        return
    above, below = (other, first) if how == "broader" else (first, other)
    if _reaches(broader, above["id"], below["id"]):
        raise CurationRefusedError(
            f"{below['name']} is already broader than {above['name']}, directly or not: it cannot also be narrower.",
            "other",
        )


def _reaches(broader: Mapping[int, Iterable[int]], start: int, end: int) -> bool:
    """Whether going up from one concept, by one step at least, comes to another."""
    seen: set[int] = set()
    waiting = list(broader.get(start, ()))
    while waiting:
        one = waiting.pop()
        if one == end:
            return True
        if one not in seen:
            seen.add(one)
            waiting += broader.get(one, ())
    return False


def _contracted(broader: Mapping[int, Iterable[int]], source_id: int, target_id: int) -> dict[int, set[int]]:
    """The hierarchy with one concept in the place of two, which no longer stand above one another."""
    made: dict[int, set[int]] = {}
    for one, above in broader.items():
        own = target_id if one == source_id else one
        made.setdefault(own, set()).update({target_id if up == source_id else up for up in above} - {own})
    return made


def relationship_add(
    desk: WorkingCopy, source_id: int, relationship_type: str, target_id: int, *, fact: str, evidence_ids: Iterable[int]
) -> None:
    """State a fact between two entities, which is not stated yet."""
    entities, rows = desk.table("entity"), desk.table("relationship")
    kind = slug_name(relationship_type)
    source, target = entities[source_id]["name"], entities[target_id]["name"]
    if not kind or len(kind) > 100:
        raise CurationRefusedError("A relationship has a type of up to 100 characters, such as depends-on.", "how")
    if source_id == target_id:
        raise CurationRefusedError(f"{source} cannot be related to itself.", "other")
    if any(_key(row) == (source_id, kind, target_id) for row in rows.values()):
        raise CurationRefusedError(f"{source} {kind} {target}: already stated.", "other")
    desk.make(
        "relationship",
        source_id=source_id,
        relationship_type=kind,
        target_id=target_id,
        fact=fact.strip(),
        confidence=None,
        valid_from=None,
        valid_to=None,
        evidence_ids=sorted(set(evidence_ids)),
    )
    _stated(desk, "Stated", source_id, kind, target_id)


def relationship_remove(desk: WorkingCopy, source_id: int, relationship_type: str, target_id: int) -> None:
    """Take a fact between two entities back."""
    rows = desk.table("relationship")
    kind = slug_name(relationship_type)
    key = (source_id, kind, target_id)
    stated = [row for row in rows.values() if _key(row) == key]
    if not stated:
        names = [desk.table("entity")[one]["name"] for one in (source_id, target_id)]
        raise CurationRefusedError(f"{names[0]} {kind} {names[1]}: not stated.", "other")
    del rows[stated[0]["id"]]
    _stated(desk, "Removed", source_id, kind, target_id)


def _key(row: Row) -> tuple[int, str, int]:
    return row["source_id"], row["relationship_type"], row["target_id"]


def _stated(desk: WorkingCopy, verb: str, source_id: int, kind: str, target_id: int) -> None:
    entities = desk.table("entity")
    sentence = f"{entities[source_id]['name']} {kind} {entities[target_id]['name']}"
    desk.title = f"{verb}: {sentence}"
    desk.touched |= {("entity", source_id), ("entity", target_id)}
    desk.said("relationship", sentence, ends=verb != "Stated")


# --- tags -----------------------------------------------------------------------------------------------------------


def tag_merge(desk: WorkingCopy, source: str, target: str) -> None:
    """Give all memories with a tag another one instead; the tag is an alias of it from now on."""
    if source == target:
        raise CurationRefusedError(f"{source} cannot be merged into itself.", "target")
    _tag_follow(desk, source, target)
    desk.title = f"Merged the tag {source} into {target}"
    desk.line("merges into", source, target, of=("tag", source))


def tag_rename(desk: WorkingCopy, old: str, new: str) -> None:
    """Give a tag another name, which nothing else is called by."""
    if old == new:
        raise CurationRefusedError(f"Its name is already “{new}”.", "name")
    _tag_follow(desk, old, new)
    desk.title = f"Renamed the tag {old} to {new}"
    desk.touched.add(("tag", new))
    desk.line("name", old, new, of=("tag", old))


def tag_split(desk: WorkingCopy, tag: str, name: str, memory_ids: tuple[int, ...]) -> None:
    """Give some of a tag's memories a new tag instead."""
    desk.relinks.append(Relink("tag", (tag,), name, memory_ids))
    desk.title = f"Split {name} off the tag {tag}"
    desk.touched |= {("tag", tag), ("tag", name)}
    desk.line("new tag", "", name)


def tag_aliases_set(desk: WorkingCopy, tag: str, add: Iterable[str], remove: Iterable[str]) -> None:
    """Say by what other names a tag is known, or no longer."""
    rows = desk.table("tag_alias")
    known = {row["alias"]: row for row in rows.values()}
    for alias in remove:
        if alias not in known or known[alias]["tag"] != tag:
            raise CurationRefusedError(f"“{alias}” is not an alias of {tag}.", "remove")
        del rows[known[alias]["id"]]
        desk.said("alias", alias, ends=True, of=("tag", tag))
    for alias in add:
        if alias == tag:
            raise CurationRefusedError(f"“{alias}” is the tag itself.", "add")
        if alias in known:
            raise CurationRefusedError(f"“{alias}” is already an alias of {known[alias]['tag']}.", "add")
        desk.make("tag_alias", alias=alias, tag=tag)
        desk.said("alias", alias, of=("tag", tag))
    desk.title = f"Changed the aliases of the tag {tag}"
    desk.touched |= {("tag", tag)}


def clean_tag(text: str, field: str = "name") -> str:
    """A tag as it is stored."""
    tag = normalise_tag(text)
    if not tag:
        raise CurationRefusedError("A tag needs a name.", field)
    if len(tag) > MAX_TAG:
        raise CurationRefusedError(f"A tag has up to {MAX_TAG} characters; this has {len(tag):,}.", field)
    return tag


def _tag_follow(desk: WorkingCopy, old: str, new: str) -> None:
    """Memories, and whatever was another name of the old tag, come to the new one."""
    rows = desk.table("tag_alias")
    for row in list(rows.values()):
        if row["alias"] in (old, new):
            del rows[row["id"]]
        elif row["tag"] == old:
            row["tag"] = new
    desk.make("tag_alias", alias=old, tag=new)
    desk.relinks.append(Relink("tag", (old,), new))
