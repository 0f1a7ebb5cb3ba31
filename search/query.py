"""SearchQuery: what was asked, parsed once at the edge. Knows nothing of the database.

Every link on a page is another SearchQuery; `querystring` writes the one canonical form of it.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Self
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from search.facets import DATE_KEY, FACET, FACET_KEYS, FACETS
from search.spellings import ALIASES, SORT_ALIASES, Problem, QueryError, gather, pairs_of, problem_of
from text.dates import check_date, check_since, check_zone, instant, since_span, zone_names
from text.formatting import date_text

MAX_TEXT_LENGTH = 1_000
MAX_VALUE_LENGTH = 1_600
MAX_VALUES = 100
MAX_PAGE = 1_000_000


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
        return self in {Mode.HYBRID, Mode.SEMANTIC, Mode.UNIFIED}


class Sort(StrEnum):
    RELEVANCE = "relevance"
    NEWEST = "newest"
    OLDEST = "oldest"
    UPDATED = "updated"
    TITLE = "title"


class Interval(StrEnum):
    AUTO = "auto"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"


def _clean_text(value: str) -> str:
    if "\x00" in value or any("\ud800" <= c <= "\udfff" for c in value):
        raise ValueError("holds a character that is not text (NUL or half of a surrogate pair)")
    return value


def _as_tuple(value: object) -> object:
    if isinstance(value, str):
        value = (value,)
    if isinstance(value, list | tuple | set | frozenset):
        # Order and repeats never make another query; an empty value is a field somebody left blank.
        return tuple(sorted({str(item).strip() for item in value} - {""}))
    return value


Text = Annotated[str, AfterValidator(_clean_text)]
Value = Annotated[str, Field(max_length=MAX_VALUE_LENGTH), AfterValidator(_clean_text)]
Values = Annotated[tuple[Value, ...], BeforeValidator(_as_tuple), Field(max_length=MAX_VALUES)]


@dataclass(frozen=True, slots=True)
class Selection:
    """What is chosen in one facet. Included values OR, unless `require_all`; `no_value` is one more choice among
    them; `any_value` asks that there be a value at all.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    no_value: bool = False
    any_value: bool = False
    require_all: bool = False

    @property
    def restricts(self) -> bool:
        return bool(self.include or self.exclude or self.no_value or self.any_value)


class SearchQuery(BaseModel):
    """What the visitor asked. Immutable: every link is another SearchQuery."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    text: Text = Field(
        "",
        alias="q",
        max_length=MAX_TEXT_LENGTH,
        description='Words, "phrases", prefix*, title:word, +must, -not, `or` between choices.',
    )
    mode: Mode = Field(
        Mode.HYBRID,
        description="How to match: words and meaning, either of them only, tags only, filters, or as hybrid does"
        " for memories, entities and relationships together.",
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
    not_state: Values = Field((), alias="-state", description="Exclude a state.")
    match_all: bool = Field(False, alias="tag.all", description="All of the tags, not any (also `match_all`).")
    concept_all: bool = Field(False, alias="concept.all", description="All of the concepts, not any.")
    entity_all: bool = Field(False, alias="entity.all", description="All of the entities, not any.")
    has: Values = Field((), description="A facet in which a memory must have a value.")
    no: Values = Field((), description="A facet in which a memory must have no value.")
    subcategories: bool = Field(True, description="Whether a category includes its subcategories.")
    date_from: Annotated[str, AfterValidator(check_date)] = Field(
        "", alias="from", description="First day, YYYY-MM-DD in the time zone, or an ISO 8601 time."
    )
    date_to: Annotated[str, AfterValidator(check_date)] = Field(
        "", alias="to", description="Last day, included, YYYY-MM-DD in the time zone, or an ISO 8601 time."
    )
    since: Annotated[str, AfterValidator(check_since)] = Field("", description="A span up to now: 24h, 7d, 4w, 6m, 1y.")
    timezone: Annotated[str, AfterValidator(check_zone)] = Field(
        "", alias="tz", description="Time zone of days and bars; by default that of the viewer."
    )
    sort: Sort | None = Field(None, description="By default relevance with words, newest without.")
    page: int = Field(1, ge=1, le=MAX_PAGE)
    page_size: int = Field(25, ge=1, le=100)
    include_facets: bool = Field(False, description="Count the facets over the whole match set.")
    bucket: Interval = Field(Interval.AUTO, description="Width of the bars of the histogram.")

    # --- reading ---------------------------------------------------------------------------------------------

    @classmethod
    def from_mapping(cls, arguments: Mapping[str, Any]) -> Self:
        """Build from named arguments, as an agent's tool or a caller in Python gives them.

        Raises QueryError, which names every parameter at fault.
        """
        pairs: list[tuple[str, str]] = []
        for key, value in arguments.items():
            if value is None:
                continue
            items = value if isinstance(value, list | tuple | set | frozenset) else [value]
            pairs.extend((key, str(item).lower() if isinstance(item, bool) else str(item)) for item in items)
        return cls.from_pairs(pairs)

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[str, str]]) -> Self:
        """Build from the pairs of a query string. Raises QueryError, which names every parameter at fault."""
        query, problems = cls.read(pairs)
        if problems:
            raise QueryError(problems)
        return query

    @classmethod
    def read(cls, pairs: Iterable[tuple[str, str]]) -> tuple[Self, tuple[Problem, ...]]:
        """Build from what can be read, and name the rest: a page goes on with a notice."""
        data, problems = gather(pairs, _FIELD_NAMES, _MULTIPLE)
        while True:
            try:
                query = cls.model_validate(data)
                break
            except ValidationError as error:
                for detail in error.errors():
                    key = str(detail["loc"][0])
                    name = _FIELD_NAMES.get(key, key)
                    choices = [choice.value for choice in _CHOICES.get(name, Mode)]
                    problems.append(problem_of(_KEYS.get(name, key), data.pop(key, None), detail, choices))
        problems.extend(query._contradictions())
        known = {"has": tuple(k for k in query.has if k in FACET), "no": tuple(k for k in query.no if k in FACET)}
        return query.model_copy(update=known), tuple(problems)

    def _contradictions(self) -> Iterator[Problem]:
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
                "min_similarity", f"mode {self.mode} does not look by meaning", "use mode=hybrid, semantic or unified"
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
        """What is chosen in a facet."""
        return Selection(
            include=getattr(self, key),
            exclude=getattr(self, f"not_{key}"),
            no_value=key in self.no,
            any_value=key in self.has,
            require_all=FACET[key].may_require_all and getattr(self, _ALL_SWITCH.get(key, f"{key}_all")),
        )

    def selections(self) -> dict[str, Selection]:
        """The facets in which something is chosen, in their order."""
        chosen = {spec.key: self.selection(spec.key) for spec in FACETS}
        return {key: selection for key, selection in chosen.items() if selection.restricts}

    @property
    def has_dates(self) -> bool:
        return bool(self.date_from or self.date_to or self.since)

    @property
    def order(self) -> Sort:
        """The order asked for, or the one that suits the query."""
        if self.sort and not (self.sort == Sort.RELEVANCE and not self.text):
            return self.sort
        return Sort.RELEVANCE if self.text else Sort.NEWEST

    def zone(self, default: tzinfo) -> tzinfo:
        return ZoneInfo(self.timezone) if self.timezone else default

    def period(self, zone: tzinfo, now: datetime) -> tuple[datetime | None, datetime | None]:
        """The dates asked for, as the first instant in and the first instant out again. Explicit dates win."""
        if self.date_from or self.date_to:
            return instant(self.date_from, zone, end=False), instant(self.date_to, zone, end=True)
        if self.since:
            return now - since_span(self.since), None
        return None, None

    # --- other queries ---------------------------------------------------------------------------------------

    def but(self, **changes: Any) -> Self:
        """This query with changes, from its first page."""
        return self.model_copy(update={"page": 1, **changes})

    def toggle(self, key: str, value: str) -> Self:
        """With a value ticked, or unticked where it was. What was left out before is no longer."""
        return self._toggled(key, f"not_{key}", value)

    def toggle_exclusion(self, key: str, value: str) -> Self:
        """With a value left out, or no longer left out. What was ticked before is no longer."""
        return self._toggled(f"not_{key}", key, value)

    def _toggled(self, name: str, opposite: str, value: str) -> Self:
        chosen: tuple[str, ...] = getattr(self, name)
        if value in chosen:
            return self.but(**{name: tuple(v for v in chosen if v != value)})
        kept = tuple(v for v in getattr(self, opposite) if v != value)
        return self.but(**{name: tuple(sorted((*chosen, value))), opposite: kept})

    def toggle_presence(self, parameter: str, key: str) -> Self:
        """With `has=key` or `no=key` added, or taken away."""
        chosen: tuple[str, ...] = getattr(self, parameter)
        return self.but(
            **{parameter: tuple(k for k in chosen if k != key) if key in chosen else tuple(sorted((*chosen, key)))}
        )

    def only(self, key: str, value: str) -> Self:
        """With nothing chosen in a facet but one value."""
        return self.without(key).but(**{key: (value,)})

    def without(self, key: str) -> Self:
        """With nothing chosen in a facet, or in the dates."""
        if key == DATE_KEY:
            return self.but(date_from="", date_to="", since="")
        changes: dict[str, Any] = {key: (), f"not_{key}": ()}
        changes["has"] = tuple(k for k in self.has if k != key)
        changes["no"] = tuple(k for k in self.no if k != key)
        return self.but(**changes)

    def without_filters(self) -> Self:
        """With the text and the view alone."""
        query = self.without(DATE_KEY)
        for spec in FACETS:
            query = query.without(spec.key)
        return query.but(match_all=False, concept_all=False, entity_all=False, subcategories=True)

    def between(self, first: str, last: str) -> Self:
        """With the dates set; both ends are included."""
        return self.but(date_from=first, date_to=last, since="")

    # --- writing ---------------------------------------------------------------------------------------------

    def parameters(self) -> list[tuple[str, str]]:
        """The canonical pairs: fixed order of keys, sorted values, defaults left out."""
        pairs: list[tuple[str, str]] = []
        for name, key, default in _written_fields():
            value = getattr(self, name)
            if value == default:
                continue
            if isinstance(value, tuple):
                pairs.extend((key, item) for item in value)
            elif isinstance(value, bool):
                pairs.append((key, "1" if value else "0"))
            else:
                pairs.append((key, str(value)))
        return pairs

    def querystring(self) -> str:
        """The canonical query string: one state, one URL."""
        return urlencode(self.parameters())

    def applied(self) -> dict[str, Any]:
        """The echo for a reply: what this query asked for, by canonical name, defaults left out."""
        echo: dict[str, Any] = {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value != field.default and name not in {"page", "page_size", "include_facets"}:
                echo[field.alias or name] = list(value) if isinstance(value, tuple) else value
        return echo

    @classmethod
    def openapi_parameters(cls) -> list[dict[str, Any]]:
        """The query parameters as the API document lists them."""
        schema = cls.model_json_schema()
        definitions = schema.get("$defs", {})
        listed = []
        for name, prop in schema["properties"].items():
            prop = dict(prop)
            description = prop.pop("description", "")
            prop.pop("title", None)
            options = [prop.pop("anyOf")[0]] if "anyOf" in prop else []
            reference = prop.pop("$ref", "") or (options[0].get("$ref", "") if options else "")
            if reference:
                prop = {**definitions[reference.rsplit("/", 1)[1]], "default": prop.get("default")}
                prop.pop("title", None)
            if prop.get("default", 0) is None:
                del prop["default"]
            listed.append({"name": name, "in": "query", "required": False, "schema": prop, "description": description})
        return listed


@lru_cache(maxsize=1)
def _written_fields() -> tuple[tuple[str, str, Any], ...]:
    """Name, key and default of each field in the order of the canonical form. A page writes hundreds of queries."""
    return tuple((name, field.alias or name, field.default) for name, field in SearchQuery.model_fields.items())


_FIELD_NAMES = {field.alias or name: name for name, field in SearchQuery.model_fields.items()}
_MULTIPLE = {
    key for key, name in _FIELD_NAMES.items() if SearchQuery.model_fields[name].default == () and name != "text"
}
_KEYS = {name: key for key, name in _FIELD_NAMES.items()}
_CHOICES: dict[str, type[StrEnum]] = {"mode": Mode, "sort": Sort, "bucket": Interval}


def dates_label(query: SearchQuery) -> str:
    """The dates asked for in words."""
    first, last = query.date_from, query.date_to
    if first and last:
        return _from_to(first, last)
    if first or last:
        return f"from {date_text(first)}" if first else f"to {date_text(last)}"
    units = {"h": "hours", "d": "days", "w": "weeks", "m": "months", "y": "years"}
    number, unit = query.since[:-1], units[query.since[-1]]
    return f"last {unit[:-1]}" if number == "1" else f"last {number} {unit}"


def _from_to(first: str, last: str) -> str:
    """Whole years by their numbers, one day once, else both ends."""
    if first[4:] == "-01-01" and last[4:] == "-12-31":
        return first[:4] if first[:4] == last[:4] else f"{first[:4]} – {last[:4]}"
    return date_text(first) if first == last else f"{date_text(first)} – {date_text(last)}"


__all__ = [
    "ALIASES",
    "FACET_KEYS",
    "SORT_ALIASES",
    "Interval",
    "Mode",
    "Problem",
    "QueryError",
    "SearchQuery",
    "Selection",
    "Sort",
    "pairs_of",
    "since_span",
    "zone_names",
]
