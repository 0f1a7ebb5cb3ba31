"""Contexts of saved views: the list, the bar of the view that a reader is in, and the forms."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from urllib.parse import parse_qsl, urlencode

from django import forms
from django.urls import reverse

from access.viewer import Viewer
from explorer.explore.page import MODE_LABELS, SORT_LABELS
from explorer.links import Link, explore_url, path_of
from explorer.page_query import PageQuery
from search.engines.base import EngineTimeoutError
from search.facets import FACET
from search.listings import totals
from search.models import SavedView
from search.result import HitDetail
from search.run import run
from search.saved_views import OpenableView, ViewCount, ViewRefusedError, stored_form
from text.formatting import date_text, legible, number, start_label
from web.params import Pair

# Queries that every corpus has an answer to, to look into and to save.
READY_MADE = (
    ("Last 7 days", "since=7d"),
    ("Proposed, to be looked at", "state=proposed"),
    ("Without a category", "no=category"),
    ("Without a tag", "no=tag"),
    ("Written without an agent", "no=agent"),
    ("Replaced by newer ones", "state=superseded"),
)

# The first results that the forms show.
_SAMPLES = 6

ValueLabels = Mapping[tuple[str, str], str]


@dataclass(frozen=True, slots=True)
class Change:
    """A part of a query that a view lacks, or that only the view has."""

    sign: str
    text: str


@dataclass(frozen=True, slots=True)
class ViewBar:
    """The view that a reader of the explore page is in, and how the page differs from it."""

    id: int
    name: str
    url: str
    whose: str
    is_own: bool
    changes: tuple[Change, ...]
    query: str
    save_as_url: str
    discard_url: str
    leave_url: str


@dataclass(frozen=True, slots=True)
class ReadyMade:
    """A query that is not saved yet."""

    name: str
    url: str
    save_url: str
    count: str
    """Empty where it is not counted."""


def view_url(view_id: int) -> str:
    """The address of a view, to share: it leads to the query that the view has then."""
    return reverse("explorer:view", args=[view_id])


def new_view_url(query: PageQuery, name: str = "") -> str:
    """The form that saves a query."""
    named = [("name", name)] if name else []
    return f"{path_of('explorer:new_view')}?{urlencode(named + query.stored.parameters())}"


def build_bar(query: PageQuery, one: OpenableView, labels: ValueLabels) -> ViewBar:
    """The bar of a view. `labels` are those of the values in the query."""
    saved, now = page_query_of(one), query.stored
    before, after = saved.parameters(), now.parameters()
    changes = [Change("+", part_text(pair, labels, now.refused)) for pair in after if pair not in before]
    changes += [Change("−", part_text(pair, labels, saved.refused)) for pair in before if pair not in after]
    return ViewBar(
        id=one.id,
        name=one.view.name,
        url=view_url(one.id),
        whose="" if one.is_own else one.view.owner.get_username(),
        is_own=one.is_own,
        changes=tuple(changes),
        query=now.querystring(),
        save_as_url=new_view_url(query),
        discard_url=explore_url(in_view(one)),
        leave_url=explore_url(query.with_(saved_view=0)),
    )


def presentation_of(query: PageQuery) -> str:
    """The presentation in the query of a page, as a view stores it."""
    searched = dict.fromkeys(stored_form(query.search).parameters())
    return urlencode([pair for pair in query.stored.parameters() if pair not in searched])


def page_query_of(one: OpenableView) -> PageQuery:
    """The query of a view as a page has it."""
    query = PageQuery.read([*one.query.parameters(), *parse_qsl(one.view.presentation)])[0]
    # How it is shown restricts nothing, whether it can be read or not.
    return query.replace(refused=one.query.refused)


def in_view(one: OpenableView) -> PageQuery:
    """The query with which the explore page opens a view."""
    return page_query_of(one).with_(saved_view=one.id)


def new_link(one: OpenableView, count: ViewCount | None) -> Link | None:
    """Those since the view was last opened: "+12", or "12+" if there may be more; None if there are none."""
    if count is None or not count.new or one.newer is None:
        return None
    label = number(count.new, at_least=True) if count.at_least else f"+{number(count.new)}"
    return Link(label, explore_url(in_view(one).with_(updated_since=one.newer.updated_since)))


def ready_made(viewer: Viewer | None) -> tuple[ReadyMade, ...]:
    """The queries of `READY_MADE`, with what they find for a viewer, if there is one and it does not take too long."""
    queries = [PageQuery.from_pairs(parse_qsl(pairs)) for _, pairs in READY_MADE]
    try:
        found = totals([query.search for query in queries], viewer) if viewer else []
    except EngineTimeoutError:
        found = []
    counts = [number(one.total, at_least=one.truncated) for one in found] or [""] * len(queries)
    return tuple(
        ReadyMade(name, explore_url(query), new_view_url(query, name), count)
        for (name, _), query, count in zip(READY_MADE, queries, counts, strict=True)
    )


def describe(query: PageQuery) -> tuple[str, ...]:
    """The parts of a query in words, the values of a facet as one: “type fix or bugfix”."""
    pairs = tuple(query.stored.parameters())
    joined_by_and = {key.removesuffix(".all") for key, _ in pairs if key.endswith(".all")}
    parts = []
    for key, group in groupby(pairs, key=itemgetter(0)):
        first, *others = group
        if key.lstrip("-") in FACET:
            word = " and " if key in joined_by_and else " or "
            parts.append(word.join([part_text(first, {}, query.refused), *(value for _, value in others)]))
        else:
            parts += [part_text(pair, {}, query.refused) for pair in (first, *others)]
    return tuple(parts)


def part_text(pair: Pair, labels: ValueLabels, refused: Collection[Pair] = ()) -> str:
    """A parameter in words, as on a chip; of those that are refused, as it is written."""
    key, value = pair
    if pair in refused:
        return legible(f"{key} {value}")
    spec = FACET.get(key.lstrip("-"))
    if spec is not None:
        return f"{'not ' if key.startswith('-') else ''}{spec.label.lower()} {labels.get((spec.key, value), value)}"
    match key:
        case "q":
            return f"“{value}”"
        case "mode":
            return next(label for mode, label in MODE_LABELS.items() if mode.value == value).lower()
        case "sort":
            return next((label for sort, label in SORT_LABELS.items() if sort.value == value), value).lower()
        case "from" | "to":
            return f"{key} {date_text(value)}"
        case "since":
            return start_label(value)
        case "view":
            return f"as {value}"
        case "has" | "no" if value in FACET:
            return f"{'any' if key == 'has' else 'no'} {FACET[value].label.lower()}"
    return f"{key.removesuffix('.all')} {'all of them' if key.endswith('.all') else value}"


class ViewForm(forms.Form):
    """The name of a view, and who may open it."""

    name = forms.CharField(max_length=200, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    description = forms.CharField(
        max_length=1_000, required=False, widget=forms.TextInput(attrs={"autocomplete": "off"}), label="What it is for"
    )
    visibility = forms.ChoiceField(
        choices=[
            (SavedView.Visibility.PRIVATE.value, "Only me"),
            (
                SavedView.Visibility.TEAM.value,
                "Everybody who can sign in, except where it names a project that they may not see",
            ),
        ],
        initial=SavedView.Visibility.PRIVATE.value,
        required=False,
        widget=forms.RadioSelect,
        label="Who sees its name and filters",
    )

    def clean_visibility(self) -> str:
        return str(self.cleaned_data["visibility"] or SavedView.Visibility.PRIVATE.value)

    def refuse(self, error: ViewRefusedError) -> None:
        """Show why the view was not stored."""
        self.add_error(error.field, str(error))


def found_now(query: PageQuery, viewer: Viewer) -> dict[str, object]:
    """The query of a view in words, with its first results now; without these if looking takes too long.

    For the pages that name, share and publish a view.
    """
    try:
        result = run(query.search.with_(page_size=_SAMPLES), viewer, detail=HitDetail.INDEX)
    except EngineTimeoutError:
        result = None
    return {
        "parts": describe(query) or ("all memories",),
        "result": result,
        "explore_url": explore_url(query),
        "zone": viewer.timezone,
    }
