"""Projects as JSON: listed, made, changed and removed."""

from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Annotated

from django.http import HttpRequest
from ninja import Router
from ninja.responses import Status
from pydantic import BaseModel, ConfigDict, Field

from access.idempotency import PARAMETER as IDEMPOTENCY_KEY
from access.keys import ApiRequest, allowed, callers
from access.viewer import Viewer
from explorer.links import filter_url
from explorer.listings import ListedProject, ProjectsRequest, list_projects, listed_project
from explorer.listings_api import ListReply, list_fields
from explorer.operations import read_operation
from memories.models import Project
from memories.projects import project_create, project_delete, project_update
from web.errors import GUARDED, ApiError, errors
from web.params import Params, pairs_of
from web.timing import Timings, timed

router = Router()
_get = partial(read_operation, router)

_Name = Annotated[str, Field(max_length=200)]
_Slug = Annotated[str, Field(max_length=100)]
_Description = Annotated[str, Field(max_length=10_000)]
_SECRETS = "`mask`, `refuse` or `off`; empty: as on the whole site."
_Secrets = Annotated[str, Field(pattern="^(mask|refuse|off)?$", description=_SECRETS)]
_LANGUAGE = "The Snowball stemmer for its texts, or `simple`. It cannot change once the project has memories."
_Language = Annotated[str, Field(max_length=20, description=_LANGUAGE)]


class ProjectReply(BaseModel):
    """A project."""

    slug: str = Field(description="The value of `project`.")
    name: str
    description: str
    language: str = Field(description="Of its texts, for stemming.")
    secrets: str = Field(description="What is done about them: `mask`, `refuse`, `off`; empty: as on the site.")
    created_at: datetime
    memories: int | None = Field(description="Active and proposed ones; null if they could not be counted in time.")
    may_write: bool = Field(description="Whether the key may store memories in it.")
    url: str


class ProjectsReply(ListReply):
    projects: list[ProjectReply]


class NewProject(BaseModel):
    """A project to make: its name, its slug, or both. Without a slug, it is made of the name."""

    model_config = ConfigDict(extra="forbid")

    name: _Name = ""
    slug: _Slug = Field("", description="The value of `project` everywhere; it never changes.")
    description: _Description = ""
    language: _Language = "english"
    secrets: _Secrets = ""


class ProjectChange(BaseModel):
    """Changes of a project. Omitted fields stay unchanged; the slug always does."""

    model_config = ConfigDict(extra="forbid")

    name: _Name | None = None
    description: _Description | None = None
    language: _Language | None = None
    secrets: _Secrets | None = None


class RemovedProject(BaseModel):
    """The project that was removed."""

    slug: str
    name: str


@_get("/projects", "projects", ProjectsReply, parameters=ProjectsRequest.openapi_parameters())
@timed
def projects(request: ApiRequest) -> tuple[Timings, ProjectsReply]:
    """The projects that the key may see, with their numbers of memories."""
    viewer = allowed(request, "read")
    asked = ProjectsRequest.from_pairs(pairs_of(request.GET))
    found = list_projects(asked, viewer)
    rows = [project_reply(row, request) for row in found.rows]
    return found.timings, ProjectsReply(projects=rows, **list_fields(found, asked))


def project_reply(row: ListedProject, request: HttpRequest) -> ProjectReply:
    names = ("slug", "name", "description", "language", "secrets", "created_at")
    return ProjectReply(
        **{name: getattr(row.project, name) for name in names},
        memories=row.memories,
        may_write=row.may_write,
        url=request.build_absolute_uri(filter_url("project", row.project.slug)),
    )


@router.post(
    "/projects",
    response={201: ProjectReply, **errors(400, *GUARDED, 409, 411, 413, 415, 422)},
    auth=callers("write"),
    operation_id="project_create",
    openapi_extra={"parameters": [IDEMPOTENCY_KEY]},
)
def create(request: ApiRequest, project: NewProject) -> Status[ProjectReply]:
    """Make a project. Needs the scope write for every project.

    A memory that is stored with the slug of a missing project makes it too.
    """
    Params.from_pairs(pairs_of(request.GET))
    if not (project.name or project.slug):
        raise ApiError(422, "invalid_request", "name: is missing; a project has a name or a slug.", "Give one of them.")
    made = project_create(**project.model_dump(), viewer=request.viewer)
    return Status(HTTPStatus.CREATED, project_reply(listed_project(made, request.viewer), request))


@router.patch(
    "/projects/{path:slug}",
    response={200: ProjectReply, **errors(400, *GUARDED, 404, 411, 413, 415, 422)},
    auth=callers("curate"),
    operation_id="project_update",
)
def update(request: ApiRequest, slug: str, changes: ProjectChange) -> ProjectReply:
    """Change the name, the description, the language of a project, or what is done about secrets in it."""
    Params.from_pairs(pairs_of(request.GET))
    found = _visible(slug, request.viewer)
    names = ("name", "description", "language", "secrets")
    given = {name: value for name, value in changes.model_dump().items() if value is not None}
    stored = {name: getattr(found, name) for name in names}
    changed = project_update(project=found, viewer=request.viewer, **{**stored, **given})
    return project_reply(listed_project(changed, request.viewer), request)


@router.delete(
    "/projects/{path:slug}",
    response={200: RemovedProject, **errors(*GUARDED, 404, 409, 422)},
    auth=callers("write"),
    operation_id="project_delete",
)
def remove(request: ApiRequest, slug: str) -> RemovedProject:
    """Remove a project without memories, also without deleted ones. Needs the scopes write and curate for every
    project.
    """
    Params.from_pairs(pairs_of(request.GET))
    found = _visible(slug, request.viewer)
    project_delete(project=found, viewer=request.viewer)
    return RemovedProject(slug=found.slug, name=found.name)


def _visible(slug: str, viewer: Viewer) -> Project:
    found = Project.objects.filter(slug=slug.lower()).first()
    if found is None or not viewer.may_see(found.pk):
        suggestion = "GET /api/projects lists them."
        raise ApiError(404, "not_found", f"There is no project {slug[:100]!r} that you can see.", suggestion)
    return found
