"""What is asked of the queue: one reading of it for the page and for the API, with an error for each mistake."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from curation.suggestions.models import Suggestion

KindName = Literal[
    "category",
    "concept",
    "entity_duplicate",
    "concept_duplicate",
    "tag_duplicate",
    "memory_duplicate",
    "superseded",
]
StateName = Literal["open", "accepted", "rejected"]
MOST_PAGES = 10_000


class ReviewQuery(BaseModel):
    """Which suggestions, and which page of them. Immutable: every link is another one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: KindName | Literal[""] = ""
    project: str = Field("", max_length=100, pattern=r"^[^\x00]*$")
    state: StateName = "open"
    confidence: float = Field(0.0, ge=0, le=1, allow_inf_nan=False)
    page: int = Field(1, ge=1, le=MOST_PAGES)

    @classmethod
    def read(cls, pairs: Mapping[str, str]) -> tuple[Self, list[str]]:
        """What was asked, and what of it could not be read, which is left out."""
        known: dict[str, Any] = {name: value for name, value in pairs.items() if name in cls.model_fields and value}
        problems = [f"{name[:40]} is not a filter of this page." for name in pairs if name not in cls.model_fields]
        try:
            return cls(**known), problems
        except ValidationError as error:
            wrong = {str(detail["loc"][0]): detail["msg"] for detail in error.errors()}
        problems += [f"{name}: {known[name][:40]!r} is not allowed. {said}." for name, said in wrong.items()]
        return cls(**{name: value for name, value in known.items() if name not in wrong}), problems

    def but(self, **changes: Any) -> Self:
        """The same with something else, from the first page on."""
        return self.model_copy(update={"page": 1, **changes})

    def querystring(self, more: Iterable[tuple[str, str]] = ()) -> str:
        """Defaults left out: one state, one address."""
        own = [(name, str(value)) for name, value in self.model_dump(exclude_defaults=True).items()]
        return urlencode([*own, *more])


def kind_labels() -> dict[str, str]:
    return {kind.value: str(kind.label) for kind in Suggestion.Kind}
