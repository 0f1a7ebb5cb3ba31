"""The past of the site as JSON: the course of what is measured, and incidents."""

from datetime import UTC, datetime

from ninja import Router
from pydantic import BaseModel, ConfigDict, Field

from access.keys import ApiRequest, allowed
from explorer.operations import read_operation
from explorer.status.site_history import SiteHistoryRequest, site_history
from web.params import pairs_of

router = Router()


class PeriodReply(BaseModel):
    """A period. Its values are null if the site did not run then; speeds also without an answer."""

    model_config = ConfigDict(from_attributes=True)

    begin: datetime
    answers: int | None = Field(description="To pages, API and MCP, of all processes.")
    errors: int | None = Field(description="Those that failed or were refused because of the server.")
    p50_ms: float | None = Field(description="Half of the answers took at most this, to within a quarter.")
    p95_ms: float | None
    index_lag_seconds: float | None = Field(description="The most in the period.")
    memories: int | None = Field(description="At its end, as all that follows.")
    pending: int | None = Field(description="Memories without a vector; null without a model.")
    database_bytes: int | None
    free_bytes: int | None


class IncidentReply(BaseModel):
    """Something that went wrong for a time."""

    model_config = ConfigDict(from_attributes=True)

    kind: str = Field(description="`errors`, `restarts`, `slow`, `index`, `vectors`, `disk` or `off`.")
    begin: datetime
    end: datetime | None = Field(description="Null while it lasts.")
    text: str


class SiteHistoryReply(BaseModel):
    """The periods of the span, the oldest first, and the incidents of the last month, the newest first."""

    span: str
    step_seconds: int
    periods: list[PeriodReply]
    incidents: list[IncidentReply]


@read_operation(
    router, "/status/history", "site_history", SiteHistoryReply, parameters=SiteHistoryRequest.openapi_parameters()
)
def status_history(request: ApiRequest) -> SiteHistoryReply:
    """Measurements of the site over time, and its incidents. For keys that see every project."""
    viewer = allowed(request, "read")
    asked = SiteHistoryRequest.from_pairs(pairs_of(request.GET))
    found = site_history(viewer, asked.span, datetime.now(UTC))
    return SiteHistoryReply(
        span=found.span,
        step_seconds=int(found.step.total_seconds()),
        periods=[PeriodReply.model_validate(one) for one in found.periods],
        incidents=[IncidentReply.model_validate(one) for one in found.incidents],
    )
