"""The home page as JSON: what changed, and how much there is, each number with the query that shows its memories."""

from datetime import UTC, datetime

from django.http import HttpRequest
from ninja import Router
from pydantic import BaseModel, Field

from access.keys import ApiRequest, allowed
from explorer.links import memory_url
from explorer.operations import read_operation
from home.overview import FIRST_SPAN, HomeRequest, Slice, overview
from memories.models import Memory
from web.params import pairs_of

router = Router()


class SliceReply(BaseModel):
    """The number of memories that a query finds."""

    label: str
    count: int
    at_least: bool = Field(description="Whether the number is a lower bound.")
    query: str = Field(description="The query string, for `GET /api/search` and the page.")
    url: str


class ContributorReply(BaseModel):
    kind: str = Field(description="`author` or `agent`.")
    written: SliceReply = Field(description="Memories dated since.")
    changed: SliceReply = Field(description="Memories new or changed since.")


class OverviewMemory(BaseModel):
    id: int
    title: str
    type: str
    project: str
    created_at: datetime
    updated_at: datetime
    url: str


class ArrivalsReply(BaseModel):
    """The memories that imports brought since, whatever their own dates are."""

    count: int = Field(description="Their number when they came in.")
    brought: SliceReply | None = Field(
        description="Those that are not deleted; null without any, or of more than 100 imports."
    )
    others: SliceReply | None = Field(description="Memories new or changed since that these imports did not bring.")
    imports: int = Field(description="The number of imports.")
    first: datetime | None = Field(description="The date of the oldest of them.")
    last: datetime | None = Field(description="The date of the newest of them.")


class NewsReply(BaseModel):
    memory: OverviewMemory
    reason: str = Field(description="`replaces`, `pinned`, `important`, `decision` or `changed`.")
    replaces: OverviewMemory | None


class ProjectNewsReply(BaseModel):
    memories: SliceReply
    newest: OverviewMemory | None
    months: list[int] = Field(description="Memories of each of the last 24 months, the oldest first.")


class CoverageReply(BaseModel):
    having: SliceReply
    lacking: SliceReply


class QuestionsReply(BaseModel):
    kind: str
    label: str
    count: int


class EmbeddedReply(BaseModel):
    embedded: int
    total: int


class IdeaReply(BaseModel):
    typed: str
    found: SliceReply


class OverviewReply(BaseModel):
    """The content of the home page."""

    since: str = Field(description="The start of the changes, as `updated_since` takes it.")
    corpus: SliceReply
    changed: SliceReply = Field(description="Memories new or changed since.")
    written: SliceReply = Field(description="Memories dated since.")
    states: list[SliceReply] = Field(description="Memories superseded, archived or deleted since, by state.")
    projects: list[SliceReply] = Field(description="The projects with the most changes.")
    contributors: list[ContributorReply]
    arrivals: ArrivalsReply
    news: list[NewsReply] = Field(description="Memories to read first: new to the caller, and important.")
    newest: list[ProjectNewsReply] = Field(description="The largest projects.")
    questions: list[QuestionsReply] = Field(description="Open suggestions by kind.")
    views: list[SliceReply] = Field(description="Saved views.")
    coverage: list[CoverageReply] = Field(
        description="Memories with a category, concept, entity, or recall, and without."
    )
    embedded: EmbeddedReply = Field(description="Memories that are found by meaning; 0 of 0 once all are.")
    ideas: list[IdeaReply]


@read_operation(router, "/overview", "overview", OverviewReply, parameters=HomeRequest.openapi_parameters())
def overview_read(request: ApiRequest) -> OverviewReply:
    """The latest changes, and how much there is, as the home page shows them."""
    viewer = allowed(request, "read")
    asked = HomeRequest.from_pairs(pairs_of(request.GET))
    found = overview(viewer, asked.since or FIRST_SPAN, datetime.now(UTC))

    def shown(one: Slice) -> SliceReply:
        return SliceReply(
            label=one.label,
            count=one.count,
            at_least=one.at_least,
            query=one.query.querystring(),
            url=request.build_absolute_uri(one.url),
        )

    return OverviewReply(
        since=found.since,
        corpus=shown(found.corpus),
        changed=shown(found.changed),
        written=shown(found.written),
        states=[shown(state) for state in found.states],
        projects=[shown(project) for project in found.projects],
        contributors=[
            ContributorReply(kind=one.kind, written=shown(one.written), changed=shown(one.changed))
            for one in found.contributors
        ],
        arrivals=ArrivalsReply(
            count=found.arrivals.count,
            brought=shown(found.brought) if found.brought else None,
            others=shown(found.others) if found.others else None,
            imports=found.arrivals.imports,
            first=found.arrivals.first,
            last=found.arrivals.last,
        ),
        news=[
            NewsReply(
                memory=_memory(request, item.memory),
                reason=item.reason,
                replaces=_memory(request, item.replaces) if item.replaces else None,
            )
            for item in found.news
        ],
        newest=[
            ProjectNewsReply(
                memories=shown(one.memories),
                newest=_memory(request, one.newest) if one.newest else None,
                months=list(one.months),
            )
            for one in found.newest
        ],
        questions=[QuestionsReply(kind=kind, label=label, count=count) for kind, label, count in found.questions],
        views=[
            shown(Slice(one.view.name, count.total, one.query, count.at_least))
            for one in found.views
            if (count := found.view_counts.get(one.id))
        ],
        coverage=[CoverageReply(having=shown(one.having), lacking=shown(one.lacking)) for one in found.coverage],
        embedded=EmbeddedReply(embedded=found.embedded.embedded, total=found.embedded.total),
        ideas=[IdeaReply(typed=idea.typed, found=shown(idea.found)) for idea in found.ideas],
    )


def _memory(request: HttpRequest, memory: Memory) -> OverviewMemory:
    return OverviewMemory(
        id=memory.pk,
        title=memory.title,
        type=memory.memory_type,
        project=memory.project.slug,
        created_at=memory.created_at,
        updated_at=memory.updated_at,
        url=request.build_absolute_uri(memory_url(memory.pk)),
    )
