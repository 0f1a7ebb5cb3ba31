"""SimilarContext: all that the section and the page of memories like one may read. No database and no request."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, tzinfo
from itertools import islice

from memories.context import FactValue, Mention, mention
from memories.queries import MemoryTitle
from search.links import filter_url, memory_url, similar_url
from search.query import SearchQuery
from search.similar import Shared, Similar, SimilarMemory

_NAMED = 3


@dataclass(frozen=True, slots=True)
class SimilarRow:
    """A memory like the one of the page, and what makes it so."""

    memory: Mention
    similarity: str
    project: FactValue
    shared: tuple[FactValue, ...]
    more_shared: int


@dataclass(frozen=True, slots=True)
class SimilarGroup:
    """Without a label it is the only one there is."""

    label: str
    rows: tuple[SimilarRow, ...]


@dataclass(frozen=True, slots=True)
class SimilarContext:
    title: str
    memory_url: str
    groups: tuple[SimilarGroup, ...]
    # Said where there are none.
    empty: str
    notices: tuple[str, ...]
    # Where there are more than these; empty where there are not.
    more_url: str
    least: str


def build_similar(memory_id: int, found: Similar, query: SearchQuery | None, zone: tzinfo = UTC) -> SimilarContext:
    """Possible duplicates apart from what is only similar. `query` is the search that led to the memory, if one did."""
    duplicates = tuple(_row(one, query, zone) for one in found.memories if one.is_duplicate)
    others = tuple(_row(one, query, zone) for one in found.memories if not one.is_duplicate)
    groups = (
        SimilarGroup("Possible duplicates", duplicates),
        SimilarGroup("Only similar" if duplicates else "", others),
    )
    return SimilarContext(
        title=found.title,
        memory_url=memory_url(memory_id, query),
        groups=tuple(group for group in groups if group.rows),
        empty=f"{found.reason[:1].upper()}{found.reason[1:]}." if found.reason else "",
        notices=tuple(warning.message for warning in found.warnings),
        more_url=similar_url(memory_id, query) if found.has_more else "",
        least=f"{found.least:.2f}",
    )


def _row(one: SimilarMemory, query: SearchQuery | None, zone: tzinfo) -> SimilarRow:
    hit = one.hit
    title = MemoryTitle(hit.id, hit.title_text, hit.memory_type, hit.state, hit.created_at)
    # What an entity, a tag and a category call the same is said once.
    named: dict[str, FactValue] = {}
    for value in _shared(one.shared):
        named.setdefault(value.label.casefold(), value)
    return SimilarRow(
        memory=mention(title, query, zone),
        # Cut and not rounded: 1.00 is said of the same text alone, but for what halves leave out.
        similarity=f"{int(one.similarity * 100 + 0.05) / 100:.2f}",
        project=FactValue(hit.project, filter_url("project", hit.project)),
        shared=tuple(islice(named.values(), _NAMED)),
        more_shared=max(0, len(named) - _NAMED) + one.shared.more,
    )


def _shared(shared: Shared) -> Iterable[FactValue]:
    """What says most first: an entity is about something, a tag is a word for it, and a category holds a great deal."""
    for term in shared.entities:
        yield FactValue(term.label, filter_url("entity", term.value), term.type)
    for tag in shared.tags:
        yield FactValue(tag, filter_url("tag", tag), "tag")
    for category in shared.categories:
        yield FactValue(category.names[-1], filter_url("category", category.path), " / ".join(category.names))
