"""Operations on many memories: their terms and states, duplicates among them, and deleting what matches a query."""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from urllib.parse import parse_qsl

from access.viewer import Viewer
from categories.kinds import VOCABULARIES
from categories.paths import CategoryPath, PathError, parse_path
from categories.queries import tags_now
from curation import edits
from curation.column_edits import column_edits
from curation.queries import TermNotFoundError, category_ids_of, find_term
from curation.schemas import Forget, Retag
from curation.tables import working_copy_of
from curation.tag_edits import clean_tag
from curation.working_copy import CurationRefusedError, Relink, StateChange, TermRef, WorkingCopy
from memories.models import Memory
from memories.queries import visible_to
from search.engines import postgres_engine
from search.engines.base import Filter
from search.plan import resolve_query
from search.query import SearchQuery, Sort
from text.formatting import listed, moment_label, number
from text.formatting import memories as memories_label
from web.params import QueryError

# Memories that one operation may change: some ten seconds, in which nobody else can write.
MOST_MEMORIES = 20_000
# Terms that a title names.
_NAMED = 5
_IN_TITLE = 6
State = Memory.State

# Each term that the remaining memory gets takes a few statements.
MOST_MERGED = 20
# The columns of a memory with its own terms, by kind.
_COLUMNS = {"tag": "tags", "category": "category_ids", "concept": "concept_ids", "entity": "entity_ids"}


def forget(operation: Forget, viewer: Viewer) -> tuple[str, WorkingCopy]:
    query = parse_query(operation.query)
    if not query.text and query == query.without_filters():
        # Such as a page size or a sort order alone.
        raise CurationRefusedError("The query would delete all memories: give a text or a filter.", "query")
    chosen, not_writable = _writable(_found(query, viewer), viewer)
    if not_writable:
        raise CurationRefusedError(
            "You can read but not write some of these projects: narrow the query by project=….", "query"
        )
    there = Memory.objects.filter(pk__in=chosen).exclude(state=Memory.State.DELETED)
    ids = tuple(there.order_by("pk").values_list("pk", flat=True))
    if not ids:
        raise CurationRefusedError("All memories that match are deleted already.", "query")
    copy = WorkingCopy({}, title=f"Deleted {memories_label(len(ids))} that match {query.querystring()}", chosen=chosen)
    copy.state_changes.append(StateChange(ids, Memory.State.DELETED.value, operation.reason))
    return "memory", copy


def _found(query: SearchQuery, viewer: Viewer) -> list[int]:
    """The memories that match a query. Refuses if there are none."""
    if found := matching_ids(query, viewer, MOST_MEMORIES):
        return found
    raise CurationRefusedError("No memory matches the query.", "query")


def _writable(memory_ids: Collection[int], viewer: Viewer) -> tuple[tuple[int, ...], int]:
    """Those of visible memories that the viewer may write, in order, and the number of the others."""
    if viewer.writable_project_ids is None:
        return tuple(sorted(memory_ids)), 0
    memories = Memory.objects.filter(pk__in=memory_ids, project_id__in=viewer.writable_project_ids)
    writable = tuple(memories.order_by("pk").values_list("pk", flat=True))
    return writable, len(memory_ids) - len(writable)


def retag(operation: Retag, viewer: Viewer) -> tuple[str, WorkingCopy]:
    if operation.query is None:
        ids = set(operation.memories)
        found = list(visible_to(viewer).filter(pk__in=ids).values_list("pk", flat=True))
        if not found:
            raise CurationRefusedError("There are no such memories that you can see.", "memories")
    else:
        found = _found(parse_query(operation.query), viewer)
    chosen, not_writable = _writable(found, viewer)
    if not chosen:
        raise CurationRefusedError("You can read these memories, but change none of them.", "query")
    new = _new_categories(operation, viewer)
    copy = working_copy_of("category", ()) if new else WorkingCopy({})
    copy.chosen, copy.not_writable = chosen, not_writable
    if operation.merge_into is not None:
        memories_merge(copy, chosen, operation.merge_into, operation.reason)
        return "memory", copy
    by_path: dict[str, TermRef] = {}
    # Those above the others first: a category is made with those above it.
    for path in sorted(new.values(), key=lambda path: len(path.paths)):
        if path.path not in by_path:
            by_path[path.path] = edits.create_category(copy, path)
    made = {name: by_path[path.path] for name, path in new.items()}
    copy.column_edits = column_edits(operation, chosen, viewer)
    for kind, sources, target in _retag_links(operation, viewer, chosen, made):
        copy.relinks.append(Relink(kind, sources, target, chosen))
    if operation.set_state is not None:
        memories_set_state(copy, chosen, operation.set_state, operation.reason)
    titled = partial(_retag_title, operation, viewer)
    copy.titled = _removal_title(operation, copy.relinks) or titled
    return "memory", copy


def _new_categories(operation: Retag, viewer: Viewer) -> dict[str, CategoryPath]:
    """The paths by name of categories that are to be added and do not exist yet.

    Only for viewers of everything: for others a path may be taken by a category that they do not see.
    """
    paths: dict[str, CategoryPath] = {}
    for name in (*operation.add_categories, *([operation.set_category] if operation.set_category else [])):
        try:
            find_term("category", name, viewer, "add_categories")
        except TermNotFoundError:
            try:
                path = parse_path(name)
            except PathError as error:
                raise CurationRefusedError(str(error), "add_categories") from error
            if viewer.project_ids is not None or path is None or name.startswith("#"):
                raise
            paths[name] = path
    return paths


def _retag_title(operation: Retag, viewer: Viewer, changed: int) -> str:
    """The number of the memories that change, and what they get (+) and lose (−)."""
    which = f"#{operation.memories[0]}" if len(operation.memories) == 1 else memories_label(changed)
    columns = list(_column_titles(operation, viewer))
    verb = {"active": "Restored", "archived": "Archived"}.get(
        str(operation.set_state), "Edited" if columns else "Retagged"
    )
    fields = ["tags", *(vocabulary.plural for vocabulary in VOCABULARIES.values())]
    changes = columns + [f"+{name}" for plural in fields for name in getattr(operation, f"add_{plural}")]
    changes += [f"only {operation.set_category}"] if operation.set_category else []
    changes += [f"−{name}" for plural in fields for name in getattr(operation, f"remove_{plural}")]
    more = [f"{number(len(changes) - _IN_TITLE)} more"] if len(changes) > _IN_TITLE else []
    return f"{verb} {which}" + (f": {', '.join([*changes[:_IN_TITLE], *more])}" if changes else "")


def _column_titles(operation: Retag, viewer: Viewer) -> Iterable[str]:
    if operation.set_type:
        yield f"type {operation.set_type}"
    if operation.set_project:
        yield f"project {operation.set_project}"
    for label, value in (
        ("date", operation.set_date),
        ("valid from", operation.set_valid_from),
        ("valid to", operation.set_valid_to),
    ):
        if value:
            yield f"{label} {moment_label(value, viewer.timezone) if isinstance(value, datetime) else value}"
    if operation.shift_date:
        yield f"dates {operation.shift_date}"
    if operation.set_authors:
        yield f"only by {listed(operation.set_authors)}"
    yield from (f"+author {name}" for name in operation.add_authors)
    yield from (f"−author {name}" for name in operation.remove_authors)


def _removal_title(operation: Retag, relinks: Collection[Relink]) -> Callable[[int], str] | None:
    """The title of a change that only takes tags from all memories that have one of them; None for any other."""
    tags = sorted(set(operation.remove_tags))
    asked = parse_query(operation.query or "").parameters()
    is_all = {(key, value) for key, value in asked if key != "state"} == {("tag", tag) for tag in tags}
    if not is_all or operation.set_state or [(link.kind, link.target) for link in relinks] != [("tag", None)]:
        return None
    names = listed([*tags[:_NAMED], *([f"{len(tags) - _NAMED} others"] if len(tags) > _NAMED else [])])
    which = f"{'tag' if len(tags) == 1 else 'tags'} {names}"
    return lambda changed: f"Removed the {which} from {memories_label(changed)}"


def _retag_links(
    operation: Retag, viewer: Viewer, ids: tuple[int, ...], made: Mapping[str, TermRef]
) -> Iterable[tuple[str, tuple[TermRef, ...], TermRef | None]]:
    """The links to remove and to create: kind, sources, target. `made` are categories that do not exist yet."""
    added = [clean_tag(name, "add_tags") for name in dict.fromkeys(operation.add_tags)]
    removed = [clean_tag(name, "remove_tags") for name in dict.fromkeys(operation.remove_tags)]
    now = tags_now([*added, *removed], viewer.project_ids)
    added, removed = ([now.get(tag, tag) for tag in tags] for tags in (added, removed))
    _refuse_both(added, removed, "tags")
    if removed:
        yield "tag", tuple(removed), None
    for tag in added:
        yield "tag", (), tag
    for vocabulary in VOCABULARIES.values():
        kind, add, remove = vocabulary.name, f"add_{vocabulary.plural}", f"remove_{vocabulary.plural}"
        names = getattr(operation, add)
        targets = [
            (made if kind == "category" else {}).get(name) or find_term(kind, name, viewer, add) for name in names
        ]
        sources = [find_term(kind, name, viewer, remove) for name in getattr(operation, remove)]
        _refuse_both(targets, sources, vocabulary.plural)
        if sources:
            yield kind, tuple(sources), None
        for target in targets:
            yield kind, (), target
    if operation.set_category:
        name = operation.set_category
        category = made.get(name) or find_term("category", name, viewer, "set_category")
        if others := category_ids_of(ids) - {int(category)}:
            yield "category", tuple(sorted(others)), None
        yield "category", (), category


def _refuse_both(added: Collection[TermRef], removed: Collection[TermRef], plural: str) -> None:
    if both := set(added) & set(removed):
        raise CurationRefusedError(f"“{sorted(both, key=str)[0]}” is both added and removed.", f"add_{plural}")


def memories_set_state(copy: WorkingCopy, memory_ids: Collection[int], state: str, reason: str) -> None:
    """Archive memories that are there, or restore archived and deleted ones. Others stay as they are.

    A deleted memory that had been superseded is superseded again.
    """
    among = Memory.objects.filter(pk__in=memory_ids).order_by("pk")
    if state == State.ARCHIVED:
        changes = [(state, among.filter(state__in=(State.ACTIVE, State.PROPOSED)))]
    else:
        gone = among.filter(state__in=(State.ARCHIVED, State.DELETED))
        kept = {"state": State.DELETED, "superseded_by__isnull": False}
        changes = [(State.ACTIVE.value, gone.exclude(**kept)), (State.SUPERSEDED.value, gone.filter(**kept))]
    for to, memories in changes:
        if ids := tuple(sorted(memories.values_list("pk", flat=True))):
            copy.state_changes.append(StateChange(ids, to, reason))
    if not copy.state_changes and not copy.relinks and not copy.column_edits:
        raise CurationRefusedError(
            "None of these memories can be archived: they are archived, superseded or deleted already."
            if state == State.ARCHIVED
            else "None of these memories is archived or deleted.",
            "set_state",
        )


def memories_merge(copy: WorkingCopy, memory_ids: Collection[int], target_id: int, reason: str) -> None:
    """Let one memory supersede the others, and give it what they are linked to."""
    if target_id not in memory_ids:
        raise CurationRefusedError(f"#{target_id} is not one of the chosen memories that you can change.", "merge_into")
    if len(memory_ids) > MOST_MERGED:
        raise CurationRefusedError(
            f"At most {MOST_MERGED} memories can be merged at once; {len(memory_ids):,} are chosen.", "memories"
        )
    memories = Memory.objects.only("project_id", "state", "superseded_by_id", *_COLUMNS.values()).in_bulk(memory_ids)
    target = memories.pop(target_id)
    if target.state not in (State.ACTIVE, State.PROPOSED):
        raise CurationRefusedError(f"#{target_id} is {target.state}: keep another one, or restore it.", "merge_into")
    if any(memory.project_id != target.project_id for memory in memories.values()):
        raise CurationRefusedError("Only memories of the same project can be merged.", "memories")
    there = [memories[pk] for pk in sorted(memories) if memories[pk].state in (State.ACTIVE, State.PROPOSED)]
    if not there:
        raise CurationRefusedError("Choose at least two memories that are active or proposed.", "memories")
    ids = tuple(memory.pk for memory in there)
    copy.state_changes.append(StateChange(ids, State.SUPERSEDED.value, reason, target_id))
    for kind, column in _COLUMNS.items():
        for ref in _gained(getattr(target, column), (getattr(memory, column) for memory in there)):
            copy.relinks.append(Relink(kind, (), ref, (target_id,)))
    copy.title = f"Merged {', '.join(f'#{pk}' for pk in ids)} into #{target_id}"


def _gained(own: Collection[TermRef], others: Iterable[Collection[TermRef]]) -> list[TermRef]:
    """The terms of others that a memory lacks, in their order."""
    return list(dict.fromkeys(ref for refs in others for ref in refs if ref not in own))


# --- matches of a query -------------------------------------------------------------------------------------------


def parse_query(text: str) -> SearchQuery:
    """A query string as the explorer reads it. Raises CurationRefusedError."""
    try:
        return SearchQuery.from_pairs(parse_qsl(text.removeprefix("?"), keep_blank_values=True, max_num_fields=1_000))
    except QueryError as error:
        raise CurationRefusedError(str(error), "query") from error
    except ValueError as error:
        raise CurationRefusedError("That is no query string.", "query") from error


def matching_ids(
    query: SearchQuery, viewer: Viewer, most: int | None = None, having: tuple[str, TermRef] | None = None
) -> list[int]:
    """Ids of all memories that match a query, from Postgres itself: a derived index may lag behind it.

    Refuses more than `most`. Of those that do not have the term `having`, given with its kind, some may be left out.
    """
    engine = postgres_engine()
    resolved = resolve_query(engine, query, viewer, datetime.now(UTC), lenient=True)
    plan = resolved.plan
    if having is not None and plan.filter(having[0]) is None:
        plan = plan.with_filter(Filter(having[0], include=((having[1],),)))
    if resolved.unknown:
        key, name = resolved.unknown[0]
        raise CurationRefusedError(f"{key}: nothing is named “{name}”. Correct the query first.", "query")
    if resolved.without_meaning:
        raise CurationRefusedError(
            f"The query looks by meaning, and {resolved.without_meaning}. Add mode=keyword to it.", "query"
        )
    summary = engine.match([plan])[0]
    if summary.truncated:
        raise CurationRefusedError(
            "More may match than are looked at by meaning: add a filter, or mode=keyword, so that it is clear which.",
            "query",
        )
    if most is not None and summary.total > most:
        raise CurationRefusedError(
            f"{summary.total:,} memories match, and at most {most:,} can be changed at once: narrow the query, such as"
            " by project or by dates, and do it in several steps.",
            "query",
        )
    if not summary.total:
        return []
    return sorted(pk for pk, _ in engine.hits(plan, Sort.NEWEST, limit=summary.total, offset=0))
