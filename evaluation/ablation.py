"""What each part of the pipeline adds or costs: the same questions to a server that is set up otherwise.

A variation is environment variables of the web server, parameters of the query, or both. Documents, index and vectors
are those of the other rows, so it can only change what happens when a query is answered.
"""

from dataclasses import dataclass, field
from pathlib import Path

from django.conf import settings

from search.query import Mode

_READERS = ("config/settings.py", "config/database.py")


@dataclass(frozen=True, slots=True)
class Variation:
    """One row of the table for each of its modes; none named means every one that is measured."""

    name: str
    environment: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    modes: tuple[str, ...] = ()


_BY_MEANING = tuple(mode.value for mode in Mode if mode.looks_by_meaning)
# Those with the same variables, one after the other, share a server.
VARIATIONS: tuple[Variation, ...] = (
    Variation("no least similarity", parameters={"min_similarity": "0"}, modes=_BY_MEANING),
    Variation("no rerank", {"SEARCH_WEIGHTS": "quality=0,recency=0,source=0"}, modes=_BY_MEANING),
    Variation("no folding", {"SEARCH_DEDUP_SIMILARITY": "1"}, modes=_BY_MEANING),
    Variation("ranked by words alone", {"SEARCH_SEMANTIC_WEIGHT": "0"}, modes=("hybrid",)),
    Variation("ranked by meaning alone", {"SEARCH_SEMANTIC_WEIGHT": "1"}, modes=("hybrid",)),
    Variation("words and meaning alike", {"SEARCH_SEMANTIC_WEIGHT": "0.5"}, modes=("hybrid",)),
    # Last: a server without the derived index removes it.
    Variation("postgres alone", {"SEARCH_ENGINE": "postgres"}),
)


def unread_variables(variations: tuple[Variation, ...]) -> list[str]:
    """The variables that no setting is read from: a row that changes nothing would look like a part without effect."""
    sources = [(Path(settings.BASE_DIR) / reader).read_text() for reader in _READERS]
    named = dict.fromkeys(name for variation in variations for name in variation.environment)
    return [name for name in named if not any(f'"{name}"' in source for source in sources)]
