"""The parameters of the review queue, for the page and the API."""

from typing import Literal

from pydantic import Field

from curation.suggestions.models import Suggestion
from web.params import Params, Text

KindName = Literal[
    "marked",
    "category",
    "concept",
    "entity_duplicate",
    "concept_duplicate",
    "tag_duplicate",
    "memory_duplicate",
    "superseded",
]
StateName = Literal["open", "accepted", "rejected"]


class ReviewQuery(Params):
    """Which suggestions the queue shows, and which page of them."""

    kind: Literal[KindName, ""] = Field("", description="Of one kind.")
    project: Text = Field("", max_length=100, description="About memories of one project, by its slug.")
    proposal: Text = Field(
        "",
        max_length=400,
        description="Of one category or concept: its `#id`, or the name of a new concept.",
    )
    state: StateName = Field("open", description="What became of them.")
    confidence: float = Field(0.0, ge=0, le=1, allow_inf_nan=False, description="From a confidence on.")
    page: int = Field(1, ge=1, le=10_000)


class SuggestionsRequest(ReviewQuery):
    """The same by the names of the API."""

    confidence: float = Field(
        0.0, alias="min_confidence", ge=0, le=1, allow_inf_nan=False, description="From a confidence on."
    )
    page_size: int = Field(25, ge=1, le=100)


class AcceptRequest(Params):
    """How a suggestion is accepted."""

    swap: bool = Field(False, description="Of two that are the same, keep the other one.")
    turned: bool | None = Field(
        None,
        description="`is_turned` as it was read, so that the subject and the target are those that were shown; without"
        " it, those of now.",
    )


def kind_labels() -> dict[str, str]:
    return {kind.value: str(kind.label) for kind in Suggestion.Kind}
