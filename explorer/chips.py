"""The filters in force as chips, every one of them removable. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from explorer.links import explore_url
from search.facets import DATE_KEY, FACET
from search.query import SearchQuery, Selection, dates_label

# What a chosen value is called, where that is not what the URL says.
Labels = Mapping[tuple[str, str], str]


@dataclass(frozen=True, slots=True)
class ChipPart:
    """One value of a chip. `joint` is what stands before it: "or", "and", or nothing."""

    label: str
    remove_url: str
    remove_name: str
    joint: str = ""


@dataclass(frozen=True, slots=True)
class Chip:
    """What is chosen in one facet, or left out of it."""

    id: str
    label: str
    parts: tuple[ChipPart, ...]
    negative: bool = False

    @property
    def text(self) -> str:
        values = "".join(f" {part.joint} {part.label}" if part.joint else part.label for part in self.parts)
        return f"{self.label} {values}"


def build_chips(
    query: SearchQuery, labels: Labels, address: Callable[[SearchQuery], str] = explore_url
) -> tuple[Chip, ...]:
    """The chips in the order of the sidebar, the dates last. `address` is where a query is shown."""
    chips: list[Chip] = []
    for key, chosen in query.selections().items():
        chips += _facet_chips(query, key, chosen, labels, address)
    if query.has_dates:
        label = dates_label(query)
        removed = ChipPart(label, address(query.without(DATE_KEY)), f"Remove filter: date {label}")
        chips.append(Chip("chip-date", "date", (removed,)))
    return tuple(chips)


def _facet_chips(
    query: SearchQuery, key: str, chosen: Selection, labels: Labels, address: Callable[[SearchQuery], str]
) -> list[Chip]:
    name = FACET[key].label.lower()
    chips = []
    included = [
        ChipPart(label := labels.get((key, value), value), address(query.toggle(key, value)), f"{name} {label}")
        for value in chosen.include
    ]
    if chosen.no_value:
        included.append(ChipPart("none", address(query.toggle_presence("no", key)), f"no {name}"))
    if included:
        heading = f"{name} itself" if key == "category" and not query.subcategories else name
        chips.append(Chip(f"chip-{key}", heading, _joined(included, "and" if chosen.require_all else "or")))
    if chosen.any_value:
        anything = ChipPart("any", address(query.toggle_presence("has", key)), f"any {name}")
        chips.append(Chip(f"chip-has-{key}", name, _joined([anything], "")))
    if chosen.exclude:
        left_out = [
            ChipPart(
                label := labels.get((key, value), value),
                address(query.toggle_exclusion(key, value)),
                f"not {name} {label}",
            )
            for value in chosen.exclude
        ]
        chips.append(Chip(f"chip-not-{key}", f"not {name}", _joined(left_out, "or"), negative=True))
    return chips


def _joined(parts: list[ChipPart], word: str) -> tuple[ChipPart, ...]:
    return tuple(
        ChipPart(part.label, part.remove_url, f"Remove filter: {part.remove_name}", word if place else "")
        for place, part in enumerate(parts)
    )
