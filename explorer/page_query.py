"""The query of a page: a search, and how the page shows it and its facets. The API and agents take the search alone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Self

from django import forms
from pydantic import AfterValidator, BeforeValidator, Field

from search.facets import FACET, FACETS
from search.query import VIEW, SearchQuery
from search.run import SPLIT_KEYS
from search.saved_views import stored_form
from web.params import Pair, sorted_values
from web.validation import Problem


class View(StrEnum):
    """How results are shown."""

    LIST = "list"
    COMPACT = "compact"
    TABLE = "table"
    MAP = "map"


class Column(StrEnum):
    """A column of the table of results, in its order there. The title is always the first."""

    TYPE = "type"
    PROJECT = "project"
    CATEGORY = "category"
    TAG = "tag"
    AUTHOR = "author"
    AGENT = "agent"
    SOURCE = "source"
    STATE = "state"
    IMPORTANCE = "importance"
    CREATED = "created"
    UPDATED = "updated"
    RECALLED = "recalled"
    NUMBER = "number"


class Look(StrEnum):
    """How the map is drawn: density and points, either of them as it is larger, or one of them alone."""

    AUTO = "auto"
    POINTS = "points"
    DENSITY = "density"


class Colour(StrEnum):
    """The facet that colours the points of the map, or the year."""

    TYPE = "type"
    PROJECT = "project"
    CATEGORY = "category"
    TAG = "tag"
    CONCEPT = "concept"
    ENTITY = "entity"
    AUTHOR = "author"
    AGENT = "agent"
    SOURCE = "source"
    STATE = "state"
    YEAR = "year"


DEFAULT_COLUMNS = (Column.TYPE, Column.PROJECT, Column.CATEGORY, Column.TAG, Column.CREATED, Column.NUMBER)


def check_split(key: str) -> str:
    """A facet whose values divide the histogram. Raises ValueError, naming those that can."""
    if key and key not in SPLIT_KEYS:
        raise ValueError(f"must be one of {', '.join(SPLIT_KEYS)}: only their values add up to a bar")
    return key


class PageQuery(SearchQuery):
    """A search with its presentation. Links and saved views of pages keep both."""

    view: View = Field(View.LIST, description="How results are shown.")
    column: Annotated[tuple[Column, ...], BeforeValidator(sorted_values)] = Field(
        (), description="A column of the table. Repeat for several; by default a choice of them."
    )

    saved_view: int = Field(
        0,
        ge=0,
        lt=2**63,
        alias="v",
        description="The saved view that the reader is in; it changes no result.",
    )
    colour: Colour = Field(Colour.TYPE, description="The facet that colours the points of the map, or `year`.")
    look: Look = Field(Look.AUTO, description="How the map is drawn.")

    split_by: Annotated[str, AfterValidator(check_split)] = Field(
        "", alias="split", description="A facet by whose values the bars of the histogram are divided."
    )

    view_parameters = VIEW | {"view", "column", "v", "colour", "look", "split"}

    @classmethod
    def read(cls, pairs: Iterable[Pair], **fixed: Any) -> tuple[Self, tuple[Problem, ...]]:
        query, problems = super().read(pairs, **fixed)
        if set(query.column) == set(DEFAULT_COLUMNS):
            query = query.replace(column=())
        return query, problems

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the table, in their order."""
        chosen = self.column or DEFAULT_COLUMNS
        return tuple(column for column in Column if column in chosen)

    @property
    def stored(self) -> Self:
        """The part that a saved view stores."""
        return stored_form(self).with_(saved_view=0)

    @property
    def search(self) -> SearchQuery:
        """The search alone."""
        return SearchQuery.model_construct(**{name: getattr(self, name) for name in SearchQuery.model_fields})


class Place(StrEnum):
    OPEN = "open"
    # Without its values, which the page requests when the reader opens the facet.
    CLOSED = "closed"
    HIDDEN = "hidden"


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The place of every facet, in the order of the sidebar."""

    places: Mapping[str, Place]

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> "Arrangement":
        """From keys and places. What is unknown is left out; facets that are not named follow in their usual order."""
        places = {key: Place(place) for key, place in pairs if key in FACET and place in list(Place)}
        return cls(places | {key: place for key, place in _usual().items() if key not in places})

    @classmethod
    def read(cls, stored: str) -> "Arrangement":
        """From the text of a cookie."""
        return cls.of((key, place) for key, _, place in (part.partition("-") for part in stored.split(".")))

    @property
    def stored(self) -> str:
        """The text for a cookie; empty for the usual arrangement."""
        if list(self.places.items()) == list(_usual().items()):
            return ""
        return ".".join(f"{key}-{place}" for key, place in self.places.items())

    def moved(self, key: str, by: int) -> "Arrangement":
        """With a facet further up (-1) or down (1), or unchanged at the end."""
        keys = list(self.places)
        at = keys.index(key)
        keys.insert(min(max(at + by, 0), len(keys) - 1), keys.pop(at))
        return Arrangement({one: self.places[one] for one in keys})


def _usual() -> dict[str, Place]:
    return {spec.key: Place.OPEN if spec.is_open else Place.CLOSED for spec in FACETS}


USUAL = Arrangement(_usual())


class ArrangementForm(forms.Form):
    """A choice for each facet; their order is that of the fields."""

    def __init__(self, data: Mapping[str, Any] | None, arrangement: Arrangement) -> None:
        super().__init__(data)
        for key, place in arrangement.places.items():
            choices = [(one.value, one.value.capitalize()) for one in Place]
            self.fields[key] = forms.ChoiceField(
                choices=choices, initial=place.value, label=FACET[key].label, help_text=FACET[key].help_text
            )

    def arrangement(self) -> Arrangement:
        return Arrangement.of(self.cleaned_data.items())
