"""SearchQuery: what was asked, parsed once at the edge. Knows nothing of the database.

Every link on a page is another SearchQuery; `querystring` writes the one canonical form of it.
"""

import difflib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr

from search.area import check_area
from search.facets import DATE_KEY, DEFAULT_STATES, FACET, FACETS, STATES_THEN
from text.formatting import check_date, check_start, check_zone, date_text, instant, is_span, start_label, start_of
from web.params import MAX_PAGE, Pair, Params, QueryError, Text, Values, unknown_parameter
from web.validation import Problem

MAX_TEXT_LENGTH = 10_000

# Names that the seeds and other systems use for a parameter. The API's plural names of facets are among them.
ALIASES: dict[str, str] = {
    **{spec.api_name: spec.key for spec in FACETS},
    # For clients whose names of parameters are names of their language.
    **{f"exclude_{spec.key}": f"-{spec.key}" for spec in FACETS},
    **{f"match_all_{spec.api_name}": f"{spec.key}.all" for spec in FACETS if spec.may_require_all},
    "exclude_recalled_since": "-recalled_since",
    "query": "q",
    "text": "q",
    "memory_type": "type",
    "obs_type": "type",
    "types": "type",
    "start_date": "from",
    "date_from": "from",
    "dateStart": "from",
    "end_date": "to",
    "date_to": "to",
    "dateEnd": "to",
    "orderBy": "sort",
    "order_by": "sort",
    "limit": "page_size",
    "match_all": "tag.all",
    "includeChildren": "subcategories",
    "include_children": "subcategories",
    "includeFacets": "include_facets",
    "timezone": "tz",
    "minSimilarity": "min_similarity",
}
SORT_ALIASES = {"date_desc": "newest", "date_asc": "oldest", "created_at": "newest", "date": "newest"}

# The parameters that do not change which memories match. All others may: what cannot be read of them, or is of no
# parameter at all, lets nothing match.
VIEW = frozenset({"page", "page_size", "offset", "sort", "include_facets", "facet_scope", "bucket"})

# The start of all recalls.
EVER = "ever"

# The field that turns a facet to AND, where the seeds' name for it is older than the rule.
_ALL_SWITCH = {"tag": "match_all"}


class Mode(StrEnum):
    HYBRID = "hybrid"
    SEMANTIC = "semantic"
    KEYWORD = "keyword"
    TAG = "tag"
    FACETED = "faceted"
    UNIFIED = "unified"

    @property
    def looks_by_meaning(self) -> bool:
        return self not in {Mode.KEYWORD, Mode.TAG}


class Sort(StrEnum):
    RELEVANCE = "relevance"
    NEWEST = "newest"
    OLDEST = "oldest"
    UPDATED = "updated"
    TITLE = "title"
    RECALLED = "recalled"


class FacetScope(StrEnum):
    """The memories over which a facet with a selection is counted."""

    CHOICES = "choices"
    RESULTS = "results"


class Interval(StrEnum):
    AUTO = "auto"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"


def check_first_date(value: str) -> str:
    """The canonical form of a date from which memories are wanted."""
    if is_span(value):
        raise ValueError(f"is a time span and no date: write since={value}, or a day such as 2026-03-01")
    return check_date(value)


def check_recalled(value: str) -> str:
    """The canonical form of the start of a time of recalls."""
    try:
        return value if value == EVER else check_start(value)
    except ValueError as error:
        raise ValueError(f"{error}, or {EVER}") from None


def recalled_from(value: str, zone: tzinfo, now: datetime) -> datetime | None:
    """The instant of a start of a time of recalls; None without one."""
    return datetime.min.replace(tzinfo=UTC) if value == EVER else start_of(value, zone, now)


def recalled_label(value: str) -> str:
    """A start of a time of recalls in words."""
    return EVER if value == EVER else start_label(value)


def _sort_meant(value: object) -> object:
    return SORT_ALIASES.get(value, value) if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class Selection:
    """The selection in a facet. Included values are alternatives unless `require_all`; `no_value` is one more of them.

    `any_value` requires any value.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    no_value: bool = False
    any_value: bool = False
    require_all: bool = False

    @property
    def restricts(self) -> bool:
        return bool(self.include or self.exclude or self.no_value or self.any_value)


_NOTHING = Selection()


class SearchQuery(Params):
    """The parameters of a search. Immutable: every link is another SearchQuery."""

    aliases = ALIASES

    text: Text = Field(
        "",
        alias="q",
        max_length=MAX_TEXT_LENGTH,
        description='Words, "phrases", prefix*, title:word, +must, -not, `or` between choices. A text of more than 40'
        ' words is read as prose, where only "phrases" have a meaning of their own.',
    )
    mode: Mode = Field(
        Mode.HYBRID,
        description="How to match: words and meaning (hybrid, faceted), either of them only, tags only, or as hybrid"
        " does for memories, entities and relationships together.",
    )
    min_similarity: float | None = Field(
        None, ge=0, le=1, description="Minimum similarity for a match by meaning; by default that of the model."
    )
    project: Values = Field((), description="Slug of a project. Repeat for any of several.")
    type: Values = Field((), description="Type of memory.")
    category: Values = Field((), description="Slug path, name, alias or id of a category; descendants included.")
    tag: Values = Field((), description="A tag.")
    concept: Values = Field((), description="Name, alias or id of a concept.")
    entity: Values = Field((), description="`type:name`, name, alias or id of an entity.")
    author: Values = Field((), description="Name of an author.")
    agent: Values = Field((), description="Name of an agent.")
    source: Values = Field((), description="The system a memory came from.")
    import_: Values = Field((), alias="import", description="Number of an import, or followed:ID of a followed source.")
    state: Values = Field((), description="State; active and proposed by default.")
    not_project: Values = Field((), alias="-project", description="Exclude a project.")
    not_type: Values = Field((), alias="-type", description="Exclude a type.")
    not_category: Values = Field((), alias="-category", description="Exclude a category and its subcategories.")
    not_tag: Values = Field((), alias="-tag", description="Exclude a tag.")
    not_concept: Values = Field((), alias="-concept", description="Exclude a concept.")
    not_entity: Values = Field((), alias="-entity", description="Exclude an entity.")
    not_author: Values = Field((), alias="-author", description="Exclude an author.")
    not_agent: Values = Field((), alias="-agent", description="Exclude an agent.")
    not_source: Values = Field((), alias="-source", description="Exclude a source.")
    not_import: Values = Field((), alias="-import", description="Exclude what an import brought.")
    not_state: Values = Field((), alias="-state", description="Exclude a state.")
    match_all: bool = Field(False, alias="tag.all", description="All of the tags, not any (also `match_all`).")
    concept_all: bool = Field(False, alias="concept.all", description="All of the concepts, not any.")
    entity_all: bool = Field(False, alias="entity.all", description="All of the entities, not any.")
    has: Values = Field((), description="A facet in which a memory must have a value.")
    no: Values = Field((), description="A facet in which a memory must have no value.")
    subcategories: bool = Field(True, description="Whether a category includes its subcategories.")
    date_from: Annotated[str, AfterValidator(check_first_date)] = Field(
        "", alias="from", description="First day, YYYY-MM-DD in the time zone, or an ISO 8601 time."
    )
    date_to: Annotated[str, AfterValidator(check_date)] = Field(
        "", alias="to", description="Last day, included, YYYY-MM-DD in the time zone, or an ISO 8601 time."
    )
    since: Annotated[str, AfterValidator(check_start)] = Field(
        "",
        description="A span up to now: 30min, 24h, 7d, 4w, 6m (months), 1y, `last week`, `yesterday`; or a day, time.",
    )
    updated_since: Annotated[str, AfterValidator(check_start)] = Field(
        "", description="Changed within a span up to now, written as for `since`, or since a day or an ISO 8601 time."
    )
    recalled_since: Annotated[str, AfterValidator(check_recalled)] = Field(
        "", description="Recalled within a span up to now or since a day or time, as `updated_since`; or `ever`."
    )
    not_recalled_since: Annotated[str, AfterValidator(check_recalled)] = Field(
        "", alias="-recalled_since", description="Not recalled since then; with `ever`, never."
    )
    area: Annotated[str, AfterValidator(check_area)] = Field(
        "",
        max_length=1_300,
        description="An area of the map of meaning: the number of the map and three corners or more, MAP_X.Y_X.Y_X.Y.",
    )
    as_of: Annotated[str, AfterValidator(check_date)] = Field(
        "",
        description="Valid at the end of this day, or at this ISO 8601 time, whatever was retired since.",
    )
    timezone: Annotated[str, AfterValidator(check_zone)] = Field(
        "", alias="tz", description="Time zone of days and bars; by default that of the viewer."
    )
    sort: Annotated[Sort | None, BeforeValidator(_sort_meant)] = Field(
        None, description="By default relevance with words, newest without."
    )
    page: int = Field(1, ge=1, le=MAX_PAGE)
    page_size: int = Field(25, ge=1, le=100)
    offset: int = Field(0, ge=0, le=100 * MAX_PAGE, description="Skip this many results; pages then count from there.")
    include_facets: bool = Field(False, description="Count the facets over the whole match set.")
    facet_scope: FacetScope = Field(
        FacetScope.CHOICES,
        description="What facets count: what each choice would give, or the results, with the facet's own selection.",
    )
    bucket: Interval = Field(Interval.AUTO, description="Width of the bars of the histogram.")
    refused: tuple[Pair, ...] = Field((), exclude=True)
    """The parameters that cannot be read. While there are any, no memory matches; links and forms keep them."""

    view_parameters: ClassVar[frozenset[str]] = VIEW

    _is_by_offset: bool = PrivateAttr(False)

    # --- reading ---------------------------------------------------------------------------------------------

    @classmethod
    def read(cls, pairs: Iterable[Pair], **fixed: Any) -> tuple[Self, tuple[Problem, ...]]:
        """Read the valid parameters and describe the others. An `offset` at the start of a page becomes that page."""
        pairs = list(pairs)
        query, problems = super().read(pairs, **fixed)
        unknown = [(name, key) for name in ("has", "no") for key in getattr(query, name) if key not in FACET]
        known = {name: tuple(key for key in getattr(query, name) if key in FACET) for name in ("has", "no")}
        query = query.replace(**known, refused=(*query.refused, *unknown))
        if query.page > 1 and query.offset:
            problems = (*problems, Problem("offset", "is given together with page", "give one of the two"))
        elif query.offset and query.offset % query.page_size == 0:
            query = query.starting_at(query.offset)
            query._is_by_offset = True  # noqa: SLF001  # a field of this class
        return query, problems

    def without_reading(self, unread: Collection[Pair]) -> Self:
        """The query with what restricts it among the unread pairs. A choice too many in a facet is left out, since less
        is found without it; not where all are required, or among those excluded.
        """
        refused = (
            (key, value)
            for key, value in unread
            if key not in self.view_parameters
            and not (key in FACET and getattr(self, FACET[key].field) and not self.selection(key).require_all)
        )
        return self.replace(refused=tuple(dict.fromkeys(refused)))

    def conflicts(self) -> Iterator[Problem]:
        for parameter, keys in (("has", self.has), ("no", self.no)):
            for key in keys:
                if key not in FACET:
                    yield Problem(
                        parameter,
                        f"'{key}' is not a facet",
                        f"write one of {', '.join(FACET)}",
                        tuple(difflib.get_close_matches(key, FACET, 3)),
                    )
        if self.min_similarity is not None and not self.mode.looks_by_meaning:
            yield Problem(
                "min_similarity",
                f"mode {self.mode} does not look by meaning",
                "use mode=hybrid, semantic, faceted or unified",
            )
        if self.mode == Mode.UNIFIED and self.text and self.order != Sort.RELEVANCE:
            yield Problem("sort", "mode unified puts what fits best first", "leave sort out, or use mode=hybrid")
        if self.mode == Mode.TAG:
            if self.text:
                yield Problem("q", "mode tag takes no words", "leave q out, or use mode=faceted for words and tags")
            if not (self.tag or self.not_tag):
                yield Problem("tag", "mode tag needs at least one tag", "add tag=…, or use mode=faceted")

    # --- what is chosen --------------------------------------------------------------------------------------

    def selection(self, key: str) -> Selection:
        values = self.__dict__
        include, exclude = values[FACET[key].field], values[f"not_{key}"]
        require_all = FACET[key].may_require_all and values[_ALL_SWITCH.get(key, f"{key}_all")]
        if not (include or exclude or require_all or self.no or self.has):
            return _NOTHING
        return Selection(include, exclude, key in self.no, key in self.has, require_all)

    def selections(self) -> dict[str, Selection]:
        """The facets in which something is chosen, in their order."""
        chosen = {spec.key: self.selection(spec.key) for spec in FACETS}
        return {key: selection for key, selection in chosen.items() if selection.restricts}

    @property
    def has_dates(self) -> bool:
        return bool(self.date_from or self.date_to or self.since)

    @property
    def depends_on_recalls(self) -> bool:
        return bool(self.recalled_since or self.not_recalled_since) or self.order == Sort.RECALLED

    @property
    def default_states(self) -> tuple[str, ...]:
        """The states of results unless the query selects states."""
        return STATES_THEN if self.as_of else DEFAULT_STATES

    def then(self, zone: tzinfo) -> datetime | None:
        """The instant just before which a memory must be valid; None without one."""
        if not self.as_of:
            return None
        return instant(self.as_of, zone, end=True) or datetime.max.replace(tzinfo=UTC)

    @property
    def is_unified(self) -> bool:
        """Whether this is a unified search, which needs a text."""
        return self.mode == Mode.UNIFIED and bool(self.text.strip())

    @property
    def order(self) -> Sort:
        """The order asked for, or the one that suits the query."""
        if self.sort and not (self.sort == Sort.RELEVANCE and not self.text):
            return self.sort
        return Sort.RELEVANCE if self.text else Sort.NEWEST

    @property
    def is_by_offset(self) -> bool:
        """Whether the page was asked for by the number of results before it."""
        return self._is_by_offset or self.offset > 0

    @property
    def begin(self) -> int:
        """The number of results before those of the page."""
        return self.offset + (self.page - 1) * self.page_size

    def starting_at(self, begin: int) -> Self:
        """With the page that starts after `begin` results; with an offset where no page does."""
        pages, rest = divmod(begin, self.page_size)
        return self.replace(page=1, offset=begin) if rest else self.replace(page=pages + 1, offset=0)

    def with_(self, **changes: Any) -> Self:
        return super().with_(**{"offset": 0, **changes})

    def zone(self, default: tzinfo) -> tzinfo:
        return ZoneInfo(self.timezone) if self.timezone else default

    def period(self, zone: tzinfo, now: datetime) -> tuple[datetime | None, datetime | None]:
        """The dates asked for, as the first instant in and the first instant out again. `since` narrows the dates."""
        first, last = instant(self.date_from, zone, end=False), instant(self.date_to, zone, end=True)
        start = start_of(self.since, zone, now) if self.since else None
        if start is None:
            return first, last
        return max(first, start) if first else start, min(last, now) if last else now

    # --- other queries ---------------------------------------------------------------------------------------

    def toggle(self, key: str, value: str) -> Self:
        """With a value ticked, or unticked where it was. What was left out before is no longer."""
        return self._toggled(FACET[key].field, f"not_{key}", value)

    def toggle_exclusion(self, key: str, value: str) -> Self:
        """With a value left out, or no longer left out. What was ticked before is no longer."""
        return self._toggled(f"not_{key}", FACET[key].field, value)

    def _toggled(self, name: str, opposite: str, value: str) -> Self:
        chosen: tuple[str, ...] = getattr(self, name)
        if value in chosen:
            return self.with_(**{name: tuple(v for v in chosen if v != value)})
        kept = tuple(v for v in getattr(self, opposite) if v != value)
        return self.with_(**{name: tuple(sorted((*chosen, value))), opposite: kept})

    def toggle_presence(self, parameter: str, key: str) -> Self:
        """With `has=key` or `no=key` added, or taken away."""
        chosen: tuple[str, ...] = getattr(self, parameter)
        return self.with_(
            **{parameter: tuple(k for k in chosen if k != key) if key in chosen else tuple(sorted((*chosen, key)))}
        )

    def only(self, key: str, value: str) -> Self:
        """With nothing chosen in a facet but one value."""
        return self.without(key).with_(**{FACET[key].field: (value,)})

    def with_all(self, key: str, values: Iterable[str]) -> Self:
        """With all of these values required in a facet, whatever else was selected there."""
        chosen: dict[str, Any] = {key: tuple(sorted(set(values))), _ALL_SWITCH.get(key, f"{key}_all"): True}
        return self.with_(**chosen)

    def without(self, key: str) -> Self:
        """With nothing chosen in a facet, or in the dates."""
        if key == DATE_KEY:
            return self.with_(date_from="", date_to="", since="")
        changes: dict[str, Any] = {FACET[key].field: (), f"not_{key}": ()}
        changes["has"] = tuple(k for k in self.has if k != key)
        changes["no"] = tuple(k for k in self.no if k != key)
        return self.with_(**changes)

    def without_filters(self) -> Self:
        """With the text and the view alone."""
        nothing: dict[str, Any] = {name: () for spec in FACETS for name in (spec.field, f"not_{spec.key}")}
        return self.with_(
            **nothing,
            has=(),
            no=(),
            date_from="",
            date_to="",
            since="",
            updated_since="",
            recalled_since="",
            not_recalled_since="",
            area="",
            as_of="",
            match_all=False,
            concept_all=False,
            entity_all=False,
            subcategories=True,
            refused=(),
        )

    def between(self, first: str, last: str) -> Self:
        """With the dates set; both ends are included."""
        return self.with_(date_from=first, date_to=last, since="")

    # --- writing ---------------------------------------------------------------------------------------------

    def parameters(self) -> list[Pair]:
        return [*super().parameters(), *self.refused]

    def applied(self) -> dict[str, Any]:
        """The echo for a reply: what this query asked for, by canonical name, defaults left out."""
        echo: dict[str, Any] = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value != field.default and name not in {"page", "page_size", "offset", "include_facets", "refused"}:
                echo[field.alias or name] = list(value) if isinstance(value, tuple) else value
        return echo


class ExtraParams(Params):
    """The parameters that an operation takes in addition to those of a search."""

    ineffective: ClassVar[frozenset[str]] = frozenset()
    """Parameters of a search that the operation refuses, because they would have no effect."""
    ineffective_message: ClassVar[str] = ""
    ineffective_suggestion: ClassVar[str] = ""

    @classmethod
    def with_query(cls, pairs: Iterable[Pair]) -> tuple[Self, SearchQuery]:
        """Read these parameters and the search query among the pairs. Raises QueryError, naming all that is wrong."""
        own, rest = cls.split(pairs)
        refused = {key: cls._refused(key) for key, _ in rest}
        problems = [problem for problem in refused.values() if problem]
        query, unread = SearchQuery.read((key, value) for key, value in rest if not refused[key])
        extra, misread = cls.read(own)
        unmet = SearchQuery.as_given((*extra.missing(), *extra.conflicts_with(query)), (*own, *rest))
        if problems := [*problems, *unread, *misread] or list(unmet):
            raise QueryError(problems)
        return extra, query

    @classmethod
    def _refused(cls, key: str) -> Problem | None:
        """Why the operation takes no parameter of this name, of those that are not its own; None if it does."""
        if ALIASES.get(key, key) in cls.ineffective:
            return Problem(key, cls.ineffective_message, cls.ineffective_suggestion)
        if key in SearchQuery.names():
            return None
        taken = [parameter["name"] for parameter in cls.openapi_with_query()]
        other = [alias for alias, meant in ALIASES.items() if meant in taken and alias.islower()]
        return unknown_parameter(key, taken, [*other, *cls._shown_aliases(taken)])

    def conflicts_with(self, query: SearchQuery) -> Iterable[Problem]:
        """Problems of these parameters and a query that are valid by themselves and not together."""
        return ()

    @classmethod
    def openapi_with_query(cls) -> list[dict[str, Any]]:
        """These parameters, and those of a search that they neither replace nor exclude."""
        own = cls.openapi_parameters()
        replaced = {parameter["name"] for parameter in own}
        return [*own, *SearchQuery.openapi_parameters(without=cls.ineffective | replaced)]


def dates_label(query: SearchQuery) -> str:
    first, last = query.date_from, query.date_to
    labels = [start_label(query.since)] if query.since else []
    if first and last:
        labels.append(_from_to(first, last))
    elif first or last:
        labels.append(f"from {date_text(first)}" if first else f"to {date_text(last)}")
    return ", ".join(labels)


def _from_to(first: str, last: str) -> str:
    """Whole years by their numbers, a single day once, else both ends."""
    if first[4:] == "-01-01" and last[4:] == "-12-31":
        return first[:4] if first[:4] == last[:4] else f"{first[:4]} – {last[:4]}"
    return date_text(first) if first == last else f"{date_text(first)} – {date_text(last)}"


def import_query(*names: str) -> SearchQuery:
    """The search for all memories that imports brought, or followed sources, but for deleted ones."""
    return SearchQuery().with_(import_=names, state=tuple(sorted(STATES_THEN)))


def plain(query: SearchQuery) -> SearchQuery:
    """A search without its order, its page and how it is shown, which slices do not have."""
    fields = SearchQuery.model_fields.items()
    kept = {name: field.default if name in VIEW else getattr(query, name) for name, field in fields}
    return SearchQuery.model_construct(**kept)
