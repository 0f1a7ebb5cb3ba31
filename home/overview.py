"""The content of the home page: what has changed, how much there is, what waits, and something to try.

Every number is that of a slice, which the engine counted and the explore page shows under the same query.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Annotated

from pydantic import AfterValidator, Field

from access.viewer import Viewer, last_event_of
from categories.names import data_revision
from curation.suggestions.params import ReviewQuery, kind_labels
from curation.suggestions.queries import counts_by_kind
from explorer.links import explore_url
from explorer.listings import Listed, ListedSession, SessionsRequest, list_sessions
from home.news import READ_FIRST, Arrivals, News, arrivals_since, memories_by_id, memory_ids, read_first
from memories.embedding.vectors import EmbeddedShare, memory_progress
from memories.models import EmbeddingModel, Memory
from search.facets import FACET, FacetValue
from search.histogram import Histogram
from search.listings import date_histograms, days_since, totals
from search.query import EVER, Interval, SearchQuery, Sort, import_query
from search.result import HitDetail, SearchResult
from search.run import run
from search.saved_views import OpenableView, ViewCount, count_views, openable_views
from search.typed import as_text
from text.formatting import check_start, local_time, number, start_of
from web.cache import RepeatedReads
from web.params import MAX_VALUES, Params, Value

# Changes are shown since then where nobody looked before.
FIRST_SPAN = "7d"
_LISTED = 6
_TYPES = 5
_MONTHS = 24
STRIP_WEEKS = 53
_COVERED = ("category", "concept", "entity")


class HomeRequest(Params):
    """The start of the changes that the home page shows."""

    since: Annotated[Value, AfterValidator(check_start)] = Field(
        "", description="A span up to now (`7d`), or a day or time. By default seven days."
    )


@dataclass(frozen=True, slots=True)
class Slice:
    """The number of memories that a query finds, and the query."""

    label: str
    count: int
    query: SearchQuery
    at_least: bool = False

    @property
    def shown(self) -> str:
        return number(self.count, at_least=self.at_least)

    @property
    def url(self) -> str:
        return explore_url(self.query)


@dataclass(frozen=True, slots=True)
class Contributor:
    """An author or an agent: their memories written since, and those written or changed."""

    kind: str
    written: Slice
    changed: Slice


@dataclass(frozen=True, slots=True)
class ProjectNews:
    """A project with its newest memory, and its memories of each of the last months."""

    memories: Slice
    newest: Memory | None
    months: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """The memories that have a value in a facet, and those that have none; or those recalled, and never recalled."""

    label: str
    having: Slice
    lacking: Slice
    share: EmbeddedShare
    without: str = "without"
    """The word for those that have none."""


@dataclass(frozen=True, slots=True)
class Idea:
    """A query to try, as people would type it, and what it shows."""

    typed: str
    found: Slice
    note: str


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything on the home page. `first` is the instant that changes are shown since."""

    first: datetime
    since: str
    """The same, as the queries have it."""
    corpus: Slice
    changed: Slice
    written: Slice
    states: tuple[Slice, ...]
    """Memories that were superseded, archived or deleted since, by state."""
    projects: tuple[Slice, ...]
    contributors: tuple[Contributor, ...]
    arrivals: Arrivals
    """Memories that imports brought since, whatever their own dates are."""
    brought: Slice | None
    """The same as a search finds them; None without any, or of more imports than a search may name."""
    arrived: tuple[Slice, ...]
    """The same by project, those with most of them."""
    others: Slice | None
    """Memories new or changed since that these imports did not bring; None as well."""
    news: tuple[News, ...]
    growth: Histogram
    """All memories over time, without early times that hold hardly anything."""
    days: dict[date, int]
    """The days of the last year that have memories, with their numbers."""
    types: tuple[tuple[Slice, dict[str, int]], ...]
    """The largest types, each with its number by the first day of a bar of `growth`."""
    newest: tuple[ProjectNews, ...]
    project_count: int
    sessions: Listed[ListedSession]
    """The last sessions of agents."""
    questions: tuple[tuple[str, str, int], ...]
    """Open suggestions: kind, its label, and their number."""
    views: tuple[OpenableView, ...]
    view_counts: dict[int, ViewCount]
    coverage: tuple[Coverage, ...]
    embedded: EmbeddedShare
    ideas: tuple[Idea, ...]

    @property
    def waiting(self) -> int:
        return sum(count for _, _, count in self.questions)


def strip_start(today: date) -> date:
    """The first day of the weeks that the calendar of the home page shows: a Monday, a year before this week."""
    return today - timedelta(days=today.weekday(), weeks=STRIP_WEEKS - 1)


# Some hundred statements: counted at most once at a time for a person, and not for every revision of busy writers.
_overviews = RepeatedReads[tuple[object, ...], Overview](limit=64, seconds=60)


def overview(viewer: Viewer, since: str | datetime, now: datetime) -> Overview:
    """The overview of a viewer, since a span, a day or a time.

    Changes of others may show some seconds later, the viewer's own at once.
    """
    first = start_of(since, viewer.timezone, now) if isinstance(since, str) else since
    # To the minute, as the queries write it, so that its links count the same later.
    local = local_time(first or datetime.min.replace(tzinfo=UTC), viewer.timezone).replace(second=0, microsecond=0)
    # Before anything is counted: whatever is written in between is counted the next time.
    revision = data_revision()
    views = tuple(openable_views(viewer)[:_LISTED])
    marks = tuple((one.id, one.view.updated_at, one.pinned, one.opened_at) for one in views)
    key = (viewer.project_ids, viewer.user_id, str(viewer.timezone), local, marks, last_event_of(viewer))
    revisions = (revision.revision, revision.vectors)
    found = _overviews.get(key, revisions, lambda: _overview(viewer, local, now, views))
    # A rejected suggestion changes no memory, and so no revision.
    return replace(found, questions=_questions(viewer))


def _overview(viewer: Viewer, first: datetime, now: datetime, views: tuple[OpenableView, ...]) -> Overview:
    since = check_start(first.isoformat(timespec="minutes"))
    everything, lately, fresh = SearchQuery(), SearchQuery(updated_since=since), SearchQuery(date_from=since)
    corpus = _counted(everything, viewer)
    changed = _counted(lately.with_(sort=Sort.UPDATED), viewer)
    arrivals = arrivals_since(first, viewer)
    brought, others = _arrival_slices(arrivals, changed.query, viewer)
    growth = corpus.histogram or Histogram()
    serving = EmbeddingModel.objects.filter(state=EmbeddingModel.State.SERVING).first()
    progress = memory_progress(data_revision(), serving.pk) if serving else None
    return Overview(
        first=first,
        since=since,
        corpus=_slice(corpus),
        changed=_slice(changed),
        written=_sliced([(fresh, "")], viewer)[0],
        states=tuple(
            Slice(value.label, value.count, changed.query.with_(state=(value.value,)))
            for value in _values(changed, "state")
            if value.count and value.value in ("superseded", "archived", "deleted")
        ),
        projects=_parts(changed, "project"),
        contributors=_contributors(changed, fresh, viewer),
        arrivals=arrivals,
        brought=brought,
        arrived=_parts(_counted(brought.query, viewer), "project") if brought else (),
        others=others,
        news=read_first(viewer, changed, first, arrivals),
        growth=growth,
        days=days_since(everything, strip_start(local_time(now, viewer.timezone).date()), viewer),
        types=_by_bar(_parts(corpus, "type")[:_TYPES], growth, viewer),
        newest=_newest(_parts(corpus, "project"), viewer, now),
        project_count=_distinct(corpus, "project"),
        sessions=list_sessions(SessionsRequest(page_size=_LISTED), viewer),
        questions=(),
        views=views,
        view_counts=count_views(views, viewer),
        coverage=(*(_coverage(corpus, key) for key in _COVERED), _recalled(corpus, viewer)),
        embedded=progress.share(viewer.project_ids) if progress else EmbeddedShare(0, corpus.total),
        ideas=_ideas(corpus, viewer),
    )


def _counted(query: SearchQuery, viewer: Viewer) -> SearchResult:
    return run(query, viewer, include_facets=True, facet_limit=_LISTED, detail=HitDetail.NONE, drops_early=True)


def _sliced(queries: Sequence[tuple[SearchQuery, str]], viewer: Viewer) -> tuple[Slice, ...]:
    """Queries with their labels, counted together."""
    found = totals([query for query, _ in queries], viewer)
    return tuple(
        Slice(label, counted.total, query, counted.truncated)
        for (query, label), counted in zip(queries, found, strict=True)
    )


def _arrival_slices(arrivals: Arrivals, changed: SearchQuery, viewer: Viewer) -> tuple[Slice | None, Slice | None]:
    """The memories that imports brought, and those new or changed that they did not bring."""
    names = tuple(str(pk) for pk in sorted(arrivals.batch_ids))
    if not names or len(names) > MAX_VALUES:
        return None, None
    brought, others = _sliced([(import_query(*names), ""), (changed.with_(not_import=names), "")], viewer)
    return brought, others


def _slice(result: SearchResult, label: str = "") -> Slice:
    return Slice(label, result.total, result.query, result.at_least)


def _values(result: SearchResult, key: str) -> Sequence[FacetValue]:
    return next((facet.values for facet in result.facets or () if facet.key == key), ())


def _distinct(result: SearchResult, key: str) -> int:
    return next((facet.distinct for facet in result.facets or () if facet.key == key), 0)


def _parts(result: SearchResult, key: str) -> tuple[Slice, ...]:
    """The largest values of a facet, as slices of the result."""
    return tuple(
        Slice(value.label, value.count, result.query.only(key, value.value))
        for value in _values(result, key)[:_LISTED]
        if value.count
    )


def _by_bar(parts: Sequence[Slice], growth: Histogram, viewer: Viewer) -> tuple[tuple[Slice, dict[str, int]], ...]:
    """Slices, each with its numbers by the bars of the growth."""
    firsts = [bar.first for bar in growth.bars]
    if not firsts:
        return ()
    drawn = date_histograms([part.query.with_(date_from=firsts[0], bucket=growth.interval) for part in parts], viewer)
    found = []
    for part, histogram in zip(parts, drawn, strict=True):
        counts: dict[str, int] = {}
        for bar in histogram.bars:
            # Bars of several years may be narrower here, where fewer years are drawn.
            first = firsts[max(0, bisect_right(firsts, bar.first) - 1)]
            counts[first] = counts.get(first, 0) + bar.count
        found.append((part, counts))
    return tuple(found)


def _contributors(changed: SearchResult, fresh: SearchQuery, viewer: Viewer) -> tuple[Contributor, ...]:
    """The authors and agents of the most changed memories."""
    parts = [(key, part) for key in ("agent", "author") for part in _parts(changed, key)]
    most = sorted(parts, key=lambda row: -row[1].count)[:_LISTED]
    written = _sliced([(fresh.with_(**{key: getattr(part.query, key)}), part.label) for key, part in most], viewer)
    return tuple(Contributor(key, of_them, part) for (key, part), of_them in zip(most, written, strict=True))


# --- memories ----------------------------------------------------------------------------------------------------


def _newest(parts: Sequence[Slice], viewer: Viewer, now: datetime) -> tuple[ProjectNews, ...]:
    """Projects with their newest memories, and their memories by month."""
    local = local_time(now, viewer.timezone)
    # The first month drawn, counted from the year 0.
    first = local.year * 12 + local.month - _MONTHS
    months = [f"{month // 12:04}-{month % 12 + 1:02}" for month in range(first, first + _MONTHS)]
    queries = [part.query.with_(date_from=f"{months[0]}-01", bucket=Interval.MONTH) for part in parts]
    found = []
    for part, drawn in zip(parts, date_histograms(queries, viewer), strict=True):
        counts: dict[str, int] = {}
        for bar in drawn.bars:
            counts[bar.first[:7]] = counts.get(bar.first[:7], 0) + bar.count
        newest = next(
            iter(memories_by_id(viewer, memory_ids(part.query.with_(page_size=1, sort=Sort.NEWEST), viewer))), None
        )
        found.append(ProjectNews(part, newest, tuple(counts.get(month, 0) for month in months)))
    return tuple(found)


# --- the rest ----------------------------------------------------------------------------------------------------


def _questions(viewer: Viewer) -> tuple[tuple[str, str, int], ...]:
    counts, labels = counts_by_kind(viewer, ReviewQuery()), kind_labels()
    return tuple((kind, labels[kind], count) for kind, count in sorted(counts.items(), key=lambda row: -row[1]))


def _coverage(corpus: SearchResult, key: str) -> Coverage:
    without = next((facet.no_value for facet in corpus.facets or () if facet.key == key), 0)
    label, query = FACET[key].label, corpus.query
    having = Slice(label, corpus.total - without, query.toggle_presence("has", key))
    return Coverage(
        label,
        having,
        Slice(label, without, query.toggle_presence("no", key)),
        EmbeddedShare(having.count, corpus.total),
    )


def _recalled(corpus: SearchResult, viewer: Viewer) -> Coverage:
    """The memories that were recalled, the most recalled first, and those that never were."""
    label, query = "Recalled", corpus.query
    (having,) = _sliced([(query.with_(recalled_since=EVER, sort=Sort.RECALLED), label)], viewer)
    lacking = Slice(label, corpus.total - having.count, query.with_(not_recalled_since=EVER))
    return Coverage(label, having, lacking, EmbeddedShare(having.count, corpus.total), without="never")


def _ideas(corpus: SearchResult, viewer: Viewer) -> tuple[Idea, ...]:
    """Queries made of the largest values, that find something."""
    ideas = []
    query = corpus.query
    names = [value.label.lower() for key in ("concept", "tag") for value in _values(corpus, key)]
    # Two words tell more than one, and three are rarely typed.
    if name := next((name for words in (2, 1) for name in names if len(name.split()) == words), ""):
        found = run(query.with_(text=name), viewer, include_facets=False, detail=HitDetail.NONE)
        ideas.append(Idea(name, _slice(found), f"Plain words: {found.matched_by}."))
    if types := _values(corpus, "type"):
        chosen = next((value for value in types if value.value == READ_FIRST), types[0])
        (found_types,) = _sliced([(query.with_(type=(chosen.value,), since="1y"), "")], viewer)
        ideas.append(Idea(as_text(found_types.query), found_types, "Filters alone: one type, the last year."))
    if tags := _values(corpus, "tag"):
        tagged = _counted(query.with_(tag=(tags[0].value,)), viewer)
        if other := next((value for value in _values(tagged, "author") if value.count), None):
            both = tagged.query.with_(author=(other.value,))
            found_both = Slice("", other.count, both)
            ideas.append(Idea(as_text(both), found_both, "Two facets together, with the counts of the rest."))
    return tuple(idea for idea in ideas if idea.found.count)
