"""Contexts for the templates of the explorer: labels, links and chips from a query and its result.

No database and no request, so that everything a page shows can be tested here.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from explorer.explore.arrangement import USUAL, Arrangement
from explorer.explore.cards import (
    HitCard,
    KnownLink,
    ResultCard,
    build_cards,
    build_known,
    build_result_cards,
    found_by_kind,
)
from explorer.explore.histogram_plot import Option, Plot, build_plot
from explorer.explore.results_table import ResultsTable, build_table
from explorer.explore.sidebar import (
    Chip,
    HiddenField,
    Panel,
    build_chips,
    build_panels,
    criteria,
    form_fields,
    hidden_fields,
)
from explorer.http import Pager, PageSize, build_pager
from explorer.links import (
    Link,
    arrange_url,
    calendar_url,
    compare_url,
    explore_url,
    matrix_url,
    memory_url,
    new_url,
    retag_url,
    text_url,
    why_not_url,
)
from explorer.page_query import PageQuery, View
from search.facets import FACET, STATES
from search.histogram_split import SPLIT_KEYS
from search.query import ALIASES, FacetScope, Mode, SearchQuery, Sort
from search.result import NONE_CONTAINS, REFUSED, FilterRelaxation, NamedTerm, SearchResult, SearchWarning
from search.typed import Understood, as_text
from search.unified.rows import UnifiedHit
from search.unified.service import UnifiedResult
from search.why_not import Check, WhyNot
from text.formatting import listed, memories, number, plural, spoken_number
from text.titles import plain_title
from web.validation import Problem

_PAGE_SIZES = (25, 50, 100)
_NAMED_SHOWN = 4

SORT_LABELS = {
    Sort.RELEVANCE: "Relevance",
    Sort.NEWEST: "Newest first",
    Sort.OLDEST: "Oldest first",
    Sort.UPDATED: "Last updated",
    Sort.TITLE: "Title A–Z",
    Sort.RECALLED: "Most recalled",
}
MODE_LABELS = {
    Mode.HYBRID: "Words + meaning",
    Mode.KEYWORD: "Words only",
    Mode.SEMANTIC: "Meaning only",
    Mode.FACETED: "Filters, then words + meaning",
    Mode.TAG: "Tags only",
    Mode.UNIFIED: "Memories, entities, relationships",
}
VIEW_LABELS = {View.LIST: "List", View.COMPACT: "Compact", View.TABLE: "Table", View.MAP: "Map"}
# The other modes are for agents; a page offers one only if its URL selects it.
_MODES_OFFERED = (Mode.HYBRID, Mode.KEYWORD, Mode.SEMANTIC, Mode.UNIFIED)


@dataclass(frozen=True, slots=True)
class Notice:
    """A message above the results: a problem with a parameter, or a warning."""

    text: str
    parameter: str = ""
    suggestion: str = ""
    links: tuple[Link, ...] = ()
    is_error: bool = False
    details: str = ""
    """A long list, which is folded."""


@dataclass(frozen=True, slots=True)
class EmptyState:
    message: str
    relaxations: tuple[Link, ...]
    clear_url: str
    corpus_is_empty: bool


@dataclass(frozen=True, slots=True)
class Selection:
    """The form for ticked hits. `all_label` offers to take all matches, if their number is exact."""

    url: str
    all_label: str


@dataclass(frozen=True, slots=True)
class ExplorerContext:
    """The explore page."""

    text: str
    as_text: str
    """The whole query as a text with typed filters."""
    text_url: str
    """The form that edits this text, for readers without scripts."""
    pending: str
    """The typed filters that Enter will apply."""
    title: str
    status: str
    total: str
    total_name: str
    """The total for screen readers, if it differs from the text."""
    noun: str
    of_total: str
    matched: str
    url: str
    named: tuple[Link, ...]
    known: KnownLink | None
    """The fact or term that the text fits best, above the hits."""
    """The terms that the text names. `count` says how many matches carry each."""
    hidden_note: Link | None
    notices: tuple[Notice, ...]
    chips: tuple[Chip, ...]
    clear_url: str
    panels: tuple[Panel, ...]
    hidden: tuple[HiddenField, ...]
    filter_count: int
    plot: Plot | None
    modes: tuple[Option, ...]
    sorts: tuple[Option, ...]
    hits: tuple[HitCard, ...]
    results: tuple[ResultCard, ...]
    """The results of unified search, instead of `hits`."""
    view: str
    views: tuple[Link, ...]
    """How results can be shown; none if there is no choice."""
    table: ResultsTable | None
    """The hits as a table, if they are shown as one."""
    pager: Pager | None
    empty: EmptyState | None
    retag: Link | None
    """Edits all matches; for viewers who may write."""
    selection: Selection | None
    """The form that edits ticked hits; for viewers who may write."""
    new_url: str
    """The form for a new memory, in the only project that is selected; for viewers who may write."""
    pairs: tuple[HiddenField, ...]
    """The query as hidden fields, for other forms."""
    matrix_url: str
    """The table of counts of the results; empty if there are none."""
    calendar_url: str
    arrange_url: str
    hidden_facets: int
    why_url: str
    """The page that explains why a memory was found, without the number of the memory."""
    compare_url: str
    """The page that compares two slices of the results."""
    as_of: str
    """The day or time at which the results are valid; empty for the present state."""


def build_context(
    query: PageQuery,
    result: SearchResult,
    problems: Sequence[Notice] = (),
    *,
    notes: Sequence[Notice] = (),
    pending: Sequence[str] = (),
    unified: UnifiedResult | None = None,
    known: UnifiedHit | None = None,
    may_write: bool = False,
    zone: tzinfo = UTC,
    now: datetime | None = None,
    opened: Container[str] = (),
    arrangement: Arrangement = USUAL,
) -> ExplorerContext:
    """The context of the explore page.

    `problems` are notices about parameters that cannot be read, `notes` others; `unified` is the result of
    unified search, if any, and `known` the fact or term that fits a search for memories best; `pending` are typed
    filters that are not applied yet; `opened` are the ids of the parts that the reader has open; `arrangement` is how
    the reader arranges the facets.
    """
    zone, corpus = query.zone(zone), result.corpus
    totals = _totals(result, unified)
    pages = unified.pages if unified else result.pages
    panels = build_panels(query, result.facets or (), corpus.count, opened, arrangement)
    chips = build_chips(query, result.labels)
    plot = _plot(query, result, zone, now or datetime.now(UTC), has_table="histogram-table" in opened)
    empty = _empty(query, result) if not (unified.found if unified else result.total) else None
    sorts = _sorts(query) if empty is None else ()
    own_fields = {"q"} | ({"mode"} if corpus.total else set()) | ({"sort"} if sorts else set())
    own_fields |= {"from", "to", "bucket", "as_of"} if plot and plot.bars else set()
    own_fields |= {"split"} if plot and plot.bars and plot.splits else set()
    view = View.LIST if unified or empty else query.view
    hits = build_cards(query, result, zone, opened) if unified is None else ()
    table = build_table(query, result, hits, zone) if view is View.TABLE else None
    own_fields |= {"column"} if table else {"colour"} if view is View.MAP else set()
    own_fields |= {panel.all_switch.name for panel in panels if panel.all_switch}
    own_fields -= {key for key, _ in query.refused} - {"q"}
    controls = [row for panel in panels for row in panel.controls()]
    return ExplorerContext(
        text=query.text or dict(query.refused).get("q", ""),
        as_text=as_text(query.search),
        text_url=text_url(query),
        pending=listed(list(pending)),
        title=_title(query, totals.label, chips),
        status=_status(result) if unified is None else totals.label,
        total=totals.count,
        total_name=totals.name,
        noun=totals.label.rpartition(" ")[2],
        of_total=totals.beside,
        matched=_matched(result, unified),
        url=explore_url(query),
        named=tuple(_named_link(query, term) for term in result.named[:_NAMED_SHOWN]),
        known=build_known(query, known) if known else None,
        hidden_note=_hidden_note(query, result),
        notices=(
            *problems,
            *notes,
            *(_warning_notice(query, pages, warning) for warning in result.warnings),
            *_scope_notice(query),
        ),
        chips=chips,
        clear_url=explore_url(query.without_filters()),
        panels=panels,
        hidden=hidden_fields(query, controls, own_fields),
        filter_count=sum(len(chip.parts) for chip in chips),
        plot=plot,
        modes=_modes(query),
        sorts=sorts,
        hits=hits,
        results=build_result_cards(query, unified, zone, opened) if unified else (),
        view=view.value,
        views=_views(query) if unified is None and empty is None else (),
        table=table,
        pager=_pager(query, result, unified),
        retag=_retag(query, result) if may_write and not problems else None,
        selection=_selection(result) if may_write and not problems and empty is None else None,
        new_url=new_url(query.project[0] if len(query.project) == 1 else "") if may_write else "",
        empty=empty,
        pairs=form_fields(query),
        matrix_url=matrix_url(query) if unified is None and empty is None else "",
        calendar_url=calendar_url(query) if unified is None and empty is None else "",
        arrange_url=arrange_url(query),
        hidden_facets=len(arrangement.places) - len(panels) if result.facets else 0,
        why_url=why_not_url(query),
        compare_url=compare_url(query),
        as_of=query.as_of,
    )


def typed_notices(understood: Understood[PageQuery]) -> tuple[Notice, ...]:
    """Notices about parts of the text that look like filters and cannot be read."""
    return tuple(Notice(f"“{part}” is searched for as text: {reason}") for part, reason in understood.unread)


def problem_notices(problems: Iterable[Problem]) -> tuple[Notice, ...]:
    """A notice for each parameter that could not be read."""
    return tuple(_problem_notice(problem) for problem in problems)


def _problem_notice(problem: Problem) -> Notice:
    if problem.is_unknown_name:
        # Names that the address of a page can have; the other spellings are for programs.
        near = dict.fromkeys(ALIASES.get(name, name) for name in problem.did_you_mean)
        return Notice(
            text=f"“{problem.parameter}” is not a parameter of this page.",
            suggestion=did_you_mean_text([f"“{name}”" for name in near]),
            details=f"{problem.suggestion[:1].upper()}{problem.suggestion[1:]}.",
        )
    return Notice(problem.message, problem.parameter, _advice(problem), is_error=True)


@dataclass(frozen=True, slots=True)
class _Totals:
    """The number of results as the page writes it: as digits, spoken if that differs, with its noun, and beside it."""

    count: str
    name: str
    label: str
    beside: str


def _totals(result: SearchResult, unified: UnifiedResult | None) -> _Totals:
    if unified is not None:
        return _Totals(number(unified.found), "", plural(unified.found, "result"), found_by_kind(unified))
    return _Totals(
        count=number(result.total, at_least=result.at_least),
        name=spoken_number(result.total, at_least=True) if result.at_least else "",
        label=memories(result.total, at_least=result.at_least),
        beside=f"of {result.corpus.total:,}" if result.total != result.corpus.total else "",
    )


def _title(query: SearchQuery, total: str, chips: tuple[Chip, ...]) -> str:
    parts = [total]
    if query.text:
        parts.append(query.text if len(query.text) <= 60 else query.text[:60] + "…")
    parts += [chip.text for chip in chips[:3]]
    return " · ".join(parts)


def _status(result: SearchResult) -> str:
    if not result.total:
        return "No memory matches"
    text = memories(result.total)
    return f"At least {text}" if result.at_least else text


def _matched(result: SearchResult, unified: UnifiedResult | None) -> str:
    took = f"{result.took_ms:,.0f} ms"
    if unified is not None:
        grouped = f"{unified.grouped:,} more {'is' if unified.grouped == 1 else 'are'} grouped under them · "
        matching = memories(result.total, at_least=result.at_least)
        # The results are the best of each kind; the facets are those of the memories alone, and of all of them.
        counted = f"facets count {matching}, all that match: {result.matched_by} · {took}"
        return f"{grouped if unified.grouped else ''}{counted}"
    # If there are none, the sentence in their place says it.
    is_said = not result.matched_by or (not result.total and result.matched_by.startswith(NONE_CONTAINS))
    return f"in {took}" if is_said else f"{result.matched_by} · {took}"


def _retag(query: SearchQuery, result: SearchResult) -> Link | None:
    """None if the total is a lower bound: the user could not know how many memories change."""
    return None if result.at_least or not result.total else Link(f"Edit all {number(result.total)}…", retag_url(query))


def _selection(result: SearchResult) -> Selection:
    exact = f"take all {number(result.total)}" if result.total and not result.at_least else ""
    return Selection(retag_url(SearchQuery()), exact)


def _named_link(query: SearchQuery, term: NamedTerm) -> Link:
    """The matches that carry a term, linked if a filter can select exactly them."""
    label, count = f"{FACET[term.facet].label.lower()} {term.label}", number(term.count)
    chosen = query.selection(term.facet)
    is_exact = chosen.require_all or not (chosen.include or chosen.no_value)
    url = explore_url(query.with_(text="").toggle(term.facet, term.value)) if is_exact and not term.selected else ""
    return Link(label, url, f"{label} {count}: show the memories that carry it", count=count)


def _hidden_note(query: SearchQuery, result: SearchResult) -> Link | None:
    if not result.hidden:
        return None
    shown = query.with_(state=tuple(sorted(set(STATES) - {"deleted"})))
    hidden = number(result.hidden, at_least=result.hidden_at_least)
    return Link(
        "Show them",
        explore_url(shown),
        count=f"{hidden} archived or superseded {'is' if hidden == '1' else 'are'} hidden",
    )


def _warning_notice(query: SearchQuery, pages: int, warning: SearchWarning) -> Notice:
    """A warning, with its suggestions as links."""
    links: tuple[Link, ...] = ()
    if warning.parameter in FACET:
        # Without a selection in the facet, the suggestion is about the words of the text.
        is_chosen = query.selection(warning.parameter).restricts
        base = query if is_chosen else query.with_(text="")
        kind = "" if is_chosen else f"{FACET[warning.parameter].label.lower()} "
        links = tuple(
            Link(f"{kind}{name}", explore_url(base.only(warning.parameter, name)), f"Search for {kind}{name} instead")
            for name in warning.did_you_mean
        )
    if warning.parameter == "q":
        links = tuple(
            Link(text, explore_url(query.with_(text=text)), f"Search for {text} instead")
            for text in warning.did_you_mean
        )
    if warning.parameter == REFUSED and query.refused:
        links = (Link("Search without it", explore_url(query.replace(refused=()))),)
        return Notice(warning.message, links=links, is_error=True)
    if warning.parameter == "page" and query.page > pages:
        last = query.model_copy(update={"page": pages})
        return Notice(warning.message, links=(Link(f"Go to page {pages:,}", explore_url(last)),))
    return Notice(
        warning.message,
        suggestion="Did you mean" if links else did_you_mean_text(warning.did_you_mean),
        links=links,
    )


def _scope_notice(query: SearchQuery) -> tuple[Notice, ...]:
    if query.facet_scope == FacetScope.CHOICES:
        return ()
    link = Link("Count what each choice would give", explore_url(query.with_(facet_scope=FacetScope.CHOICES)))
    return (Notice("The facets count these results alone.", links=(link,)),)


def did_you_mean_text(names: Sequence[str]) -> str:
    return f"Did you mean {' or '.join(names)}?" if names else ""


def _advice(problem: Problem) -> str:
    """The suggestions for a parameter that could not be read, as sentences."""
    advice = (
        f"{problem.suggestion[:1].upper()}{problem.suggestion[1:]}.".replace("..", ".") if problem.suggestion else ""
    )
    return " ".join(part for part in (did_you_mean_text(problem.did_you_mean), advice) if part)


def _plot(query: PageQuery, result: SearchResult, zone: tzinfo, now: datetime, *, has_table: bool) -> Plot | None:
    if result.histogram is None:
        return None
    splits = tuple(
        Option(key, FACET[key].label.lower() if key else "none", query.split_by == key) for key in ("", *SPLIT_KEYS)
    )
    return build_plot(
        query,
        result.histogram,
        result.quick_ranges,
        zone,
        now,
        has_table=has_table,
        split=result.split,
        splits=() if query.is_unified else splits,
    )


def _sorts(query: SearchQuery) -> tuple[Option, ...]:
    """The orders, none for unified search. The default order has an empty value, to keep it out of the URL."""
    natural = Sort.RELEVANCE if query.text else Sort.NEWEST
    if query.is_unified:
        return ()
    offered = [sort for sort in Sort if sort in SORT_LABELS and (query.text or sort is not Sort.RELEVANCE)]
    return tuple(Option("" if s is natural else s.value, SORT_LABELS[s], s is query.order) for s in offered)


def _views(query: PageQuery) -> tuple[Link, ...]:
    return tuple(
        Link(label, explore_url(query.replace(view=view)), view.value, current=view is query.view)
        for view, label in VIEW_LABELS.items()
    )


def _modes(query: SearchQuery) -> tuple[Option, ...]:
    """The search modes. The default mode has an empty value, to keep it out of the URL."""
    default = SearchQuery().mode
    offered = [mode for mode in Mode if mode in _MODES_OFFERED or mode is query.mode]
    return tuple(Option("" if m is default else m.value, MODE_LABELS[m], m is query.mode) for m in offered)


def _pager(query: SearchQuery, result: SearchResult, unified: UnifiedResult | None) -> Pager | None:
    """None if all results fit on the smallest page."""
    total, pages, at_least = result.total, result.pages, result.at_least
    if unified is not None:
        total, pages, at_least = unified.found, unified.pages, False
    if total <= min(_PAGE_SIZES[0], query.page_size):
        return None
    sizes = tuple(
        PageSize(str(size), explore_url(query.with_(page_size=size)), size == query.page_size) for size in _PAGE_SIZES
    )

    def at(page: int) -> str:
        return explore_url(query.model_copy(update={"page": page}))

    return build_pager(query.page, pages, query.page_size, total, at, sizes, at_least=at_least)


def _empty(query: SearchQuery, result: SearchResult) -> EmptyState:
    asked = criteria(query, result.labels)
    return EmptyState(
        message=f"Nothing matches {asked}." if asked else "There are no memories to show.",
        relaxations=tuple(
            Link(
                relaxation.label,
                explore_url(relaxation.query) if relaxation.count else "",
                count=_relaxation_count(relaxation),
            )
            for relaxation in result.relaxations
        ),
        clear_url=explore_url(query.without_filters().with_(text="")) if asked else "",
        corpus_is_empty=not result.corpus.total,
    )


def _relaxation_count(relaxation: FilterRelaxation) -> str:
    return number(relaxation.count, at_least=relaxation.at_least)


@dataclass(frozen=True, slots=True)
class VerdictContext:
    """The context of the why-not page. `memory` is None until the user enters one."""

    text: str
    pairs: tuple[HiddenField, ...]
    back_url: str
    notices: tuple[Notice, ...]
    chips: tuple[Chip, ...]
    memory: Link | None = None
    sentence: str = ""
    matches: bool = False
    page: Link | None = None
    checks: tuple[Check, ...] = ()
    has_either: bool = False
    """Whether passing one of several checks is enough."""


def build_verdict(query: SearchQuery, found: WhyNot | None, notices: Iterable[Notice]) -> VerdictContext:
    """The context of the why-not page."""
    text, pairs = query.text, form_fields(query)
    if found is None:
        return VerdictContext(text, pairs, explore_url(query), tuple(notices), build_chips(query, {}))
    page = None
    if found.page is not None:
        there = query.model_copy(update={"page": found.page})
        page = Link(f"Go to page {found.page:,}", f"{explore_url(there)}#hit-{found.id}")
    return VerdictContext(
        text,
        pairs,
        explore_url(query),
        (*notices, *(Notice(note) for note in found.notes)),
        build_chips(query, found.labels),
        memory=Link(plain_title(found.title), memory_url(found.id, query), f"#{found.id}"),
        sentence=found.verdict,
        matches=found.matches,
        page=page,
        checks=found.checks,
        has_either=sum(check.either for check in found.checks) > 1,
    )
