"""Contexts for the templates of the explorer: labels, links and chips from a query and its result.

No database and no request, so that everything a page shows can be tested here.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import cached_property

from explorer.explore.answer import PageAnswer
from explorer.explore.cards import (
    HitCard,
    KnownLink,
    ResultCard,
    ResultsTable,
    build_cards,
    build_known,
    build_result_cards,
    build_table,
    found_by_kind,
)
from explorer.explore.histogram_plot import Option, Plot, build_plot
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
    compare_url,
    explore_url,
    matrix_url,
    memory_url,
    new_url,
    retag_url,
    text_url,
    why_not_url,
)
from explorer.page_query import USUAL, Arrangement, PageQuery, View
from search.facets import FACET, STATES
from search.plain_words import WordOffer
from search.query import ALIASES, FacetScope, Mode, SearchQuery, Sort
from search.result import NONE_CONTAINS, REFUSED, NamedTerm, SearchResult, SearchWarning
from search.run import SPLIT_KEYS
from search.typed import Understood, as_text
from search.unified.rows import UnifiedHit
from search.why_not import Check, WhyNot
from text.formatting import listed, memories, number, plural, spoken_number
from text.highlight import plain_title
from web.params import Pair
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


# The key that takes the first filter offered.
_TAKE = "Alt+Enter"


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
    key: str = ""
    """The key by which the first link is taken."""


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


@dataclass(frozen=True)
class ExplorerContext:
    """The explore page. Each part of it is built when the template comes to it."""

    query: PageQuery
    answer: PageAnswer
    problems: Sequence[Notice] = ()
    """Notices about parameters that cannot be read; `notes` are others."""
    notes: Sequence[Notice] = ()
    offers: Sequence[WordOffer[PageQuery]] = ()
    """Filters that the words of the text may mean."""
    typed: Sequence[str] = ()
    """Typed filters that are not applied yet."""
    best: UnifiedHit | None = None
    """The fact or term that a search for memories fits best."""
    may_write: bool = False
    reader_zone: tzinfo = UTC
    now: datetime | None = None
    opened: Container[str] = ()
    """The ids of the parts that the reader has open."""
    arrangement: Arrangement = USUAL

    @property
    def result(self) -> SearchResult:
        return self.answer.result

    @cached_property
    def zone(self) -> tzinfo:
        return self.query.zone(self.reader_zone)

    # --- the search ----------------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        return self.query.text or dict(self.query.refused).get("q", "")

    @cached_property
    def as_text(self) -> str:
        """The whole query as a text with typed filters."""
        return as_text(self.query.search)

    @property
    def text_url(self) -> str:
        """The form that edits this text, for readers without scripts."""
        return text_url(self.query)

    @property
    def pending(self) -> str:
        """The typed filters that Enter will apply."""
        return listed(list(self.typed))

    @cached_property
    def modes(self) -> tuple[Option, ...]:
        """The search modes. The default mode has an empty value, to keep it out of the URL."""
        default, current = SearchQuery().mode, self.query.mode
        offered = [mode for mode in Mode if mode in _MODES_OFFERED or mode is current]
        return tuple(Option("" if m is default else m.value, MODE_LABELS[m], m is current) for m in offered)

    @cached_property
    def sorts(self) -> tuple[Option, ...]:
        """The orders, none for unified search. The default order has an empty value, to keep it out of the URL."""
        text, order = self.query.text, self.query.order
        if self.query.is_unified or self.empty:
            return ()
        natural = Sort.RELEVANCE if text else Sort.NEWEST
        offered = [sort for sort in Sort if sort in SORT_LABELS and (text or sort is not Sort.RELEVANCE)]
        return tuple(Option("" if s is natural else s.value, SORT_LABELS[s], s is order) for s in offered)

    # --- its filters ---------------------------------------------------------------------------------------------

    @cached_property
    def chips(self) -> tuple[Chip, ...]:
        return build_chips(self.query, self.result.labels)

    @property
    def clear_url(self) -> str:
        return explore_url(self.query.without_filters())

    @cached_property
    def panels(self) -> tuple[Panel, ...]:
        facets, corpus = self.result.facets or (), self.result.corpus
        return build_panels(self.query, facets, corpus.count, self.opened, self.arrangement)

    @cached_property
    def hidden(self) -> tuple[HiddenField, ...]:
        """The part of the query that no visible field of the form sends."""
        own = {"q"} | ({"mode"} if self.result.corpus.total else set()) | ({"sort"} if self.sorts else set())
        own |= self.plot.fields if self.plot else set()
        own |= {"column"} if self.table else {"colour"} if self.view == View.MAP else set()
        own |= {panel.all_switch.name for panel in self.panels if panel.all_switch}
        own -= {key for key, _ in self.query.refused} - {"q"}
        return hidden_fields(self.query, [row for panel in self.panels for row in panel.controls()], own)

    @property
    def filter_count(self) -> int:
        return sum(len(chip.parts) for chip in self.chips)

    @property
    def arrange_url(self) -> str:
        return arrange_url(self.query)

    @property
    def hidden_facets(self) -> int:
        return len(self.arrangement.places) - len(self.panels) if self.result.facets else 0

    @cached_property
    def pairs(self) -> tuple[HiddenField, ...]:
        """The query as hidden fields, for other forms."""
        return form_fields(self.query)

    # --- how many there are --------------------------------------------------------------------------------------

    @property
    def title(self) -> str:
        parts, text = [self._label], self.query.text
        if text:
            parts.append(text if len(text) <= 60 else text[:60] + "…")
        return " · ".join([*parts, *(chip.text for chip in self.chips[:3])])

    @property
    def status(self) -> str:
        if self.answer.unified:
            return self._label
        if not self.result.total:
            return "No memory matches"
        text = memories(self.result.total)
        return f"At least {text}" if self.result.at_least else text

    @cached_property
    def _label(self) -> str:
        """The number of results with its noun."""
        if self.answer.unified:
            return plural(self.answer.total, "result")
        return memories(self.answer.total, at_least=self.answer.at_least)

    @property
    def total(self) -> str:
        return number(self.answer.total, at_least=self.answer.at_least)

    @property
    def total_name(self) -> str:
        """The total for screen readers, if it differs from the text."""
        return spoken_number(self.answer.total, at_least=True) if self.answer.at_least else ""

    @property
    def noun(self) -> str:
        return self._label.rpartition(" ")[2]

    @property
    def of_total(self) -> str:
        if self.answer.unified:
            return found_by_kind(self.answer.unified)
        everything = self.result.corpus.total
        # Hidden states are no part of everything, and may be part of the results.
        return f"of {everything:,}" if self.result.total < everything else ""

    @property
    def match_text(self) -> str:
        """How memories matched; empty where nothing is to be said, or the sentence in place of the results says it."""
        result = self.result
        if found := self.answer.unified:
            grouped = f"{found.grouped:,} more {'is' if found.grouped == 1 else 'are'} grouped under them · "
            matching = memories(result.total, at_least=result.at_least)
            # The results are the best of each kind; the facets are those of the memories alone, and of all of them.
            counted = f"facets count {matching}, all that match: {result.matched_by}"
            return f"{grouped if found.grouped else ''}{counted}"
        return "" if not result.total and result.matched_by.startswith(NONE_CONTAINS) else result.matched_by

    @property
    def measures(self) -> str:
        """The time that the search took, and the least similarity of what matches by meaning."""
        took, least = f"{self.result.took_ms:,.0f} ms", self.result.min_similarity
        return f"{took}, similarity of at least {least:.2f}" if least is not None else took

    @property
    def hidden_note(self) -> Link | None:
        result = self.result
        if not result.hidden:
            return None
        shown = self.query.with_(state=tuple(sorted(set(STATES) - {"deleted"})))
        hidden = number(result.hidden, at_least=result.hidden_at_least)
        count = f"{hidden} archived or superseded {'is' if hidden == '1' else 'are'} hidden"
        return Link("Show them", explore_url(shown), count=count)

    @cached_property
    def named(self) -> tuple[Link, ...]:
        """The terms that the text names. `count` says how many matches carry each."""
        return tuple(_named_link(self.query, term) for term in self.result.named[:_NAMED_SHOWN])

    @cached_property
    def known(self) -> KnownLink | None:
        """The fact or term that the text fits best, above the hits."""
        return build_known(self.query, self.best) if self.best else None

    @cached_property
    def notices(self) -> tuple[Notice, ...]:
        warnings = [
            _warning_notice(self.query, self.answer.pages, warning, self.offers) for warning in self.result.warnings
        ]
        # One that a warning names already is not repeated.
        offers = () if any(notice.key for notice in warnings) else _offer_notices(self.offers)
        return (*self.problems, *offers, *self.notes, *warnings, *_scope_notice(self.query))

    @cached_property
    def plot(self) -> Plot | None:
        if self.result.histogram is None:
            return None
        splits = tuple(
            Option(key, FACET[key].label.lower() if key else "none", self.query.split_by == key)
            for key in ("", *SPLIT_KEYS)
        )
        return build_plot(
            self.query,
            self.result.histogram,
            self.result.quick_ranges,
            self.zone,
            self.now or datetime.now(UTC),
            has_table="histogram-table" in self.opened,
            split=self.result.split,
            splits=() if self.query.is_unified else splits,
        )

    @property
    def as_of(self) -> str:
        """The day or time at which the results are valid; empty for the present state."""
        return self.query.as_of

    # --- the results ---------------------------------------------------------------------------------------------

    @cached_property
    def empty(self) -> EmptyState | None:
        """The message in the place of results where there are none."""
        if self.answer.total:
            return None
        query, result = self.query, self.result
        asked = criteria(query, result.labels)
        return EmptyState(
            message=f"Nothing matches {asked}." if asked else "There are no memories to show.",
            relaxations=tuple(
                Link(
                    relaxation.label,
                    explore_url(relaxation.query) if relaxation.count else "",
                    count=number(relaxation.count, at_least=relaxation.at_least),
                )
                for relaxation in result.relaxations
            ),
            clear_url=explore_url(query.without_filters().with_(text="")) if asked else "",
            corpus_is_empty=not result.corpus.total,
        )

    @property
    def view(self) -> str:
        return (View.LIST if self.answer.unified or self.empty else self.query.view).value

    @property
    def views(self) -> tuple[Link, ...]:
        """How results can be shown; none if there is no choice."""
        if self.answer.unified or self.empty:
            return ()
        return tuple(
            Link(label, explore_url(self.query.replace(view=view)), view.value, current=view is self.query.view)
            for view, label in VIEW_LABELS.items()
        )

    @cached_property
    def hits(self) -> tuple[HitCard, ...]:
        return () if self.answer.unified else build_cards(self.query, self.result, self.zone, self.opened)

    @cached_property
    def results(self) -> tuple[ResultCard, ...]:
        """The results of unified search, instead of `hits`."""
        found = self.answer.unified
        return build_result_cards(self.query, found, self.zone, self.opened) if found else ()

    @cached_property
    def table(self) -> ResultsTable | None:
        """The hits as a table, if they are shown as one."""
        return build_table(self.query, self.result, self.hits, self.zone) if self.view == View.TABLE else None

    @cached_property
    def pager(self) -> Pager | None:
        """None if all results fit on the smallest page."""
        query, total = self.query, self.answer.total
        if total <= min(_PAGE_SIZES[0], query.page_size):
            return None
        sizes = tuple(
            PageSize(str(size), explore_url(query.with_(page_size=size)), size == query.page_size)
            for size in _PAGE_SIZES
        )

        def at(page: int) -> str:
            return explore_url(query.model_copy(update={"page": page}))

        at_least = self.answer.at_least
        return build_pager(query.page, self.answer.pages, query.page_size, total, at, sizes, at_least=at_least)

    # --- what can be done with them ------------------------------------------------------------------------------

    @property
    def _may_edit(self) -> bool:
        return self.may_write and not self.problems

    @property
    def retag(self) -> Link | None:
        """Edits all matches; for viewers who may write. None of a lower bound: nobody could know how many change."""
        result = self.result
        if not self._may_edit or result.at_least or not result.total:
            return None
        return Link(f"Edit all {number(result.total)}…", retag_url(self.query))

    @property
    def selection(self) -> Selection | None:
        """The form that edits ticked hits; for viewers who may write."""
        if not self._may_edit or self.empty:
            return None
        result = self.result
        exact = f"take all {number(result.total)}" if result.total and not result.at_least else ""
        return Selection(retag_url(SearchQuery()), exact)

    @property
    def new_url(self) -> str:
        """The form for a new memory, in the only project that is selected; for viewers who may write."""
        projects = self.query.project
        return new_url(projects[0] if len(projects) == 1 else "") if self.may_write else ""

    @property
    def matrix_url(self) -> str:
        """The table of counts of the results; empty if there are none."""
        return "" if self.answer.unified or self.empty else matrix_url(self.query)

    @property
    def why_url(self) -> str:
        """The page that explains why a memory was found, without the number of the memory."""
        return why_not_url(self.query)

    @property
    def compare_url(self) -> str:
        """The page that compares two slices of the results."""
        return compare_url(self.query)


def typed_notices(understood: Understood[PageQuery]) -> tuple[Notice, ...]:
    """Notices about parts of the text that look like filters and cannot be read."""
    return tuple(Notice(f"“{part}” is searched for as text: {reason}") for part, reason in understood.unread)


def _offer_notices(offers: Iterable[WordOffer[PageQuery]]) -> tuple[Notice, ...]:
    """A notice with the filters that words of the text may mean; none without any."""
    links = tuple(
        Link(
            f"{one.label} ({number(one.count, at_least=one.at_least)})",
            explore_url(one.query),
            f"Filter by {one.label} in place of “{one.words}”: {memories(one.count, at_least=one.at_least)}",
        )
        for one in offers
    )
    return (Notice("Did you mean", links=links, key=_TAKE),) if links else ()


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


def _named_link(query: SearchQuery, term: NamedTerm) -> Link:
    """The matches that carry a term, linked if a filter can select exactly them."""
    label, count = f"{FACET[term.facet].label.lower()} {term.label}", number(term.count)
    chosen = query.selection(term.facet)
    is_exact = chosen.require_all or not (chosen.include or chosen.no_value)
    url = explore_url(query.with_(text="").toggle(term.facet, term.value)) if is_exact and not term.selected else ""
    return Link(label, url, f"{label} {count}: show the memories that carry it", count=count)


def _warning_notice(
    query: SearchQuery, pages: int, warning: SearchWarning, offers: Sequence[WordOffer[PageQuery]]
) -> Notice:
    """A warning, with its suggestions as links. It has the key if these are what is offered."""
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
        key=_TAKE if len(offers) == 1 and set(offers[0].pairs) <= set(_suggested_pairs(warning)) else "",
    )


def _suggested_pairs(warning: SearchWarning) -> Iterable[Pair]:
    return ((warning.parameter, name) for name in warning.did_you_mean)


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
