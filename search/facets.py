"""The facets: declared once, in the order of the sidebar. And what a count of them comes back as."""

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """How a facet's values stand on a memory."""

    SCALAR = "scalar"  # one text column, empty where there is no value
    TEXTS = "texts"  # an array of texts
    IDS = "ids"  # an array of ids of a vocabulary
    TREE = "tree"  # an array of category ids, with all ancestors
    PROJECT = "project"  # the foreign key, shown by slug


@dataclass(frozen=True, slots=True)
class FacetSpec:
    """A way to divide memories. `key` is the URL parameter, the JSON key and the HTML id alike."""

    key: str
    label: str
    kind: Kind
    column: str
    api_name: str
    limit: int = 6
    # Whether several ticked values may be asked for all at once (`tag.all=1`).
    may_require_all: bool = False
    # Whether values that count nothing are shown all the same, because there are few and they are known.
    shows_zeros: bool = False
    # Whether every memory has exactly one value, so that the counts add up to the total.
    exclusive: bool = False


FACETS: tuple[FacetSpec, ...] = (
    FacetSpec("project", "Project", Kind.PROJECT, "project_id", "projects", exclusive=True, shows_zeros=True),
    FacetSpec("type", "Type", Kind.SCALAR, "memory_type", "memory_types", exclusive=True, shows_zeros=True),
    FacetSpec("category", "Category", Kind.TREE, "category_path_ids", "categories"),
    FacetSpec("tag", "Tag", Kind.TEXTS, "tags", "tags", may_require_all=True),
    FacetSpec("concept", "Concept", Kind.IDS, "concept_ids", "concepts", may_require_all=True),
    FacetSpec("entity", "Entity", Kind.IDS, "entity_ids", "entities", may_require_all=True),
    FacetSpec("author", "Author", Kind.TEXTS, "authors", "authors"),
    FacetSpec("agent", "Agent", Kind.SCALAR, "agent", "agents", exclusive=True),
    FacetSpec("source", "Source", Kind.SCALAR, "source", "sources", exclusive=True, shows_zeros=True),
    FacetSpec("state", "State", Kind.SCALAR, "state", "states", exclusive=True, shows_zeros=True),
)
# The column of the categories that a memory is filed in, without their ancestors.
OWN_CATEGORIES = "category_ids"
# The columns of memories that facets read, in the order of the facets.
FACET_COLUMNS: tuple[str, ...] = (*(spec.column for spec in FACETS), OWN_CATEGORIES)
FACET: dict[str, FacetSpec] = {spec.key: spec for spec in FACETS}

# The date is a facet too: a histogram, not a list of values.
DATE_KEY = "date"
FACET_KEYS: tuple[str, ...] = (*FACET, DATE_KEY)

# What is shown where nobody asked for a state. The rest is hidden, and the page says how many.
DEFAULT_STATES: tuple[str, ...] = ("active", "proposed")
STATES: tuple[str, ...] = ("active", "proposed", "archived", "superseded", "deleted")


@dataclass(frozen=True, slots=True)
class FacetValue:
    """One choice in a facet.

    `value` is what the URL says, `label` what people read. `count` is how many memories there would be if this value
    were ticked instead of what is ticked in its facet; for an excluded value, how many the exclusion hides.
    """

    value: str
    label: str
    count: int
    selected: bool = False
    excluded: bool = False
    # Of a category: the memories filed right here, the path of its parent, whether it has children with memories.
    own_count: int | None = None
    parent: str | None = None
    depth: int = 1
    has_children: bool = False
    # Of an entity or concept: its type.
    type: str = ""
    # What a link says for it where nobody spelled it otherwise; for a category its slug path, as `parent` has it.
    canonical: str = ""
    # What engines know the value by; None for a name that means nothing.
    ref: int | str | None = None


@dataclass(frozen=True, slots=True)
class Facet:
    """A facet counted under one query. `unavailable` says why there are no counts, where there are none.

    With `at_least`, its counts are lower bounds: the set they are over reached the limit of looking by meaning.
    """

    key: str
    values: tuple[FacetValue, ...] = ()
    distinct: int = 0
    no_value: int = 0
    no_value_selected: bool = False
    any_value_selected: bool = False
    requires_all: bool = False
    unavailable: str = ""
    at_least: bool = False

    @property
    def spec(self) -> FacetSpec:
        return FACET[self.key]

    @property
    def has_more(self) -> bool:
        return self.distinct > sum(1 for value in self.values if value.count)


@dataclass(frozen=True, slots=True)
class DateBuckets:
    """The cumulative buckets: the last 30 days include the last 7. `older` is what is before the last year."""

    last_7d: int = 0
    last_30d: int = 0
    last_90d: int = 0
    last_year: int = 0
    older: int = 0
