"""The facets, declared once in the order of the sidebar, and the types of their counts."""

from dataclasses import asdict, dataclass
from enum import Enum
from keyword import iskeyword
from typing import NamedTuple


class FacetKind(Enum):
    """How memories store the values of a facet."""

    SCALAR = "scalar"  # one text column, empty where there is no value
    TEXTS = "texts"  # an array of texts
    IDS = "ids"  # an array of ids of a vocabulary
    TREE = "tree"  # an array of category ids, with all ancestors
    PROJECT = "project"  # the foreign key, shown by slug
    IMPORT = "import"  # the foreign key, null where there is none


@dataclass(frozen=True, slots=True)
class FacetSpec:
    """A facet. `key` is its URL parameter, its JSON key and its HTML id."""

    key: str
    label: str
    kind: FacetKind
    column: str
    api_name: str
    limit: int = 6
    may_require_all: bool = False
    """Whether a query may require all selected values (`tag.all=1`)."""
    shows_zeros: bool = False
    """Whether the sidebar shows values without matches."""
    exclusive: bool = False
    """Whether a memory has at most one value, so that the counts and `no_value` add up to the total."""
    help_text: str = ""
    """The meaning of the values, for readers who see them for the first time."""
    is_open: bool = False
    """Whether the sidebar shows the values before the reader arranges it."""

    @property
    def field(self) -> str:
        """The field of a query: the key, unless that is a word of Python."""
        return f"{self.key}_" if iskeyword(self.key) else self.key


FACETS: tuple[FacetSpec, ...] = (
    FacetSpec(
        "project",
        "Project",
        FacetKind.PROJECT,
        "project_id",
        "projects",
        exclusive=True,
        shows_zeros=True,
        is_open=True,
        help_text="The product, repository or team that memories belong to. People have their roles by project.",
    ),
    FacetSpec(
        "type",
        "Type",
        FacetKind.SCALAR,
        "memory_type",
        "memory_types",
        exclusive=True,
        shows_zeros=True,
        is_open=True,
        help_text="The kind of memory, such as a decision, a bug fix or a note.",
    ),
    FacetSpec(
        "category",
        "Category",
        FacetKind.TREE,
        "category_path_ids",
        "categories",
        is_open=True,
        help_text="Where memories are filed: one tree for all projects. A category includes its subcategories.",
    ),
    FacetSpec(
        "tag",
        "Tag",
        FacetKind.TEXTS,
        "tags",
        "tags",
        may_require_all=True,
        is_open=True,
        help_text="Words that people and agents put on memories.",
    ),
    FacetSpec(
        "concept",
        "Concept",
        FacetKind.IDS,
        "concept_ids",
        "concepts",
        may_require_all=True,
        is_open=True,
        help_text="Ideas that memories are about. Concepts have a definition, other names and related concepts.",
    ),
    FacetSpec(
        "entity",
        "Entity",
        FacetKind.IDS,
        "entity_ids",
        "entities",
        may_require_all=True,
        is_open=True,
        help_text="People, services, files and other things that memories mention by name.",
    ),
    FacetSpec(
        "author",
        "Author",
        FacetKind.TEXTS,
        "authors",
        "authors",
        help_text="Who wrote the memory.",
    ),
    FacetSpec(
        "agent",
        "Agent",
        FacetKind.SCALAR,
        "agent",
        "agents",
        exclusive=True,
        help_text="The program that wrote the memory, such as a coding agent.",
    ),
    FacetSpec(
        "source",
        "Source",
        FacetKind.SCALAR,
        "source",
        "sources",
        exclusive=True,
        shows_zeros=True,
        help_text="The system that the memory was imported from, or how it was written here.",
    ),
    FacetSpec(
        "import",
        "Import",
        FacetKind.IMPORT,
        "batch_id",
        "imports",
        exclusive=True,
        help_text="The import that brought the memory. Memories that were written here have none.",
    ),
    FacetSpec(
        "state",
        "State",
        FacetKind.SCALAR,
        "state",
        "states",
        exclusive=True,
        shows_zeros=True,
        help_text="Whether the memory holds (active, proposed) or no longer does (archived, superseded, deleted).",
    ),
)
# The column of the categories that a memory is filed in, without their ancestors.
OWN_CATEGORIES = "category_ids"
# The columns of memories that facets read, in the order of the facets.
FACET_COLUMNS: tuple[str, ...] = (*(spec.column for spec in FACETS), OWN_CATEGORIES)
# The kinds that have a number in each memory: of a row of another table.
KEY_KINDS = frozenset({FacetKind.PROJECT, FacetKind.IMPORT})
FACET: dict[str, FacetSpec] = {spec.key: spec for spec in FACETS}

# Dates are a facet with a histogram instead of values.
DATE_KEY = "date"
FACET_KEYS: tuple[str, ...] = (*FACET, DATE_KEY)

# The states of results unless the query selects states.
DEFAULT_STATES: tuple[str, ...] = ("active", "proposed")
# Those of a query as of a date: a memory that is archived or superseded now may have been valid then.
STATES_THEN: tuple[str, ...] = ("active", "proposed", "archived", "superseded")
# The states that a search leaves out unless it asks for them.
HIDDEN_STATES: tuple[str, ...] = ("archived", "superseded")
STATES: tuple[str, ...] = ("active", "proposed", "archived", "superseded", "deleted")


class FacetValue(NamedTuple):
    """A value of a facet. `value` is for URLs, `label` for people. A tuple is cheap: replies have thousands.

    `count` is the number of results with this value in place of the selection of its facet; for an excluded value, the
    number of results that the exclusion hides.
    """

    value: str
    label: str
    count: int  # type: ignore[assignment]  # not the method of tuples
    selected: bool = False
    excluded: bool = False
    own_count: int | None = None
    """For a category: the number of memories without its descendants."""
    parent: str | None = None
    """For a category: the slug path of its parent."""
    depth: int = 1
    has_children: bool = False
    """For a category: whether it has children with memories."""
    type: str = ""
    """For an entity or a concept."""
    canonical: str = ""
    """The canonical value for URLs; for a category its slug path."""
    ref: int | str | None = None
    """The value of engines; None for an unknown name."""


@dataclass(frozen=True, slots=True)
class Facet:
    """The counts of a facet under a query. `unavailable` is the reason if there are none.

    With `at_least` they are lower bounds, because the semantic search was truncated.
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
    """Cumulative counts up to now: the last 30 days include the last 7. `older` is before the last year, `future` after
    now.
    """

    last_7d: int = 0
    last_30d: int = 0
    last_90d: int = 0
    last_year: int = 0
    older: int = 0
    future: int = 0

    def by_name(self) -> dict[str, int]:
        """The counts; `future` only if there are any."""
        return {name: count for name, count in asdict(self).items() if count or name != "future"}
