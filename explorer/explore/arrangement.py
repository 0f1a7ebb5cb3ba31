"""How a reader arranges the facets beside the results: their order, and which are open, closed or hidden.

A cookie holds it, like the theme: it suits a screen rather than an account, and no link carries it to others.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django import forms

from search.facets import FACET, FACETS


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
