"""The projects and sessions that a viewer may search in, with their numbers of memories, and the viewer itself."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Literal, TypeVar

from django.conf import settings
from django.db import OperationalError
from django.db.models import Count, Max, Min, Q
from psycopg.errors import QueryCanceled
from pydantic import Field

from access.models import ApiKey
from access.viewer import Viewer
from memories.models import NEWEST_SESSIONS, Memory, Project, Session
from memories.queries import visible_to
from search.baseline_counts import corpus_counts
from search.engines import snapshot, with_engine
from search.engines.sql import has_excluded_words, has_words
from search.result import CorpusCounts
from text.formatting import legible
from web.errors import close_to
from web.params import MAX_PAGE, Params, QueryError, Text, Values
from web.timing import Stopwatch, Timings
from web.validation import Problem


class PageRequest(Params):
    """A page of a list."""

    page: int = Field(1, ge=1, le=MAX_PAGE)
    page_size: int = Field(50, ge=1, le=200)

    @property
    def slice(self) -> slice:
        return slice((self.page - 1) * self.page_size, self.page * self.page_size)

    def pages(self, total: int) -> int:
        return max(1, -(-total // self.page_size))


class ProjectsRequest(PageRequest):
    """Which projects are listed, and their order."""

    search: Text = Field("", max_length=200, description="A part of the slug or the name.")
    sort: Literal["memories", "slug"] = Field("memories", description="The most memories first, or by slug.")


class SessionsRequest(PageRequest):
    """Which sessions are listed: those that began last first."""

    project: Values = Field((), description="Slug of a project. Repeat for any of several.")
    agent: Values = Field((), description="Name of an agent. Repeat for any of several.")
    search: Text = Field(
        "",
        max_length=200,
        description="A part of the session's id or title, or words of a memory that was stored in it.",
    )


@dataclass(frozen=True, slots=True)
class ListedProject:
    """A project. `memories` are those in the default states; None if they could not be counted in time."""

    project: Project
    memories: int | None
    may_write: bool


@dataclass(frozen=True, slots=True)
class ListedSession:
    """A session, with the number and the dates of its memories but for deleted ones.

    `begins` is the title of its first memory.
    """

    session: Session
    memories: int
    first: datetime | None
    last: datetime | None
    begins: str = ""


Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Listed(Generic[Row]):
    """A page of a list, and the number of rows on all pages."""

    rows: tuple[Row, ...]
    total: int
    timings: Timings


@dataclass(frozen=True, slots=True)
class Whoami:
    """A viewer: its key if it has one, and the slugs of its projects; None for every project."""

    key: ApiKey | None
    projects: tuple[str, ...] | None
    writable: tuple[str, ...] | None


def list_projects(request: ProjectsRequest, viewer: Viewer) -> Listed[ListedProject]:
    """The projects that a viewer may see. There are few: they are sorted here, by counts that are cached."""
    watch = Stopwatch()
    with watch.stage("hits"):
        rows = listed_projects(viewer, request.search)
    if request.sort == "memories":
        rows.sort(key=lambda row: -(row.memories or 0))
    return Listed(tuple(rows[request.slice]), len(rows), watch.timings)


def listed_projects(viewer: Viewer, search: str = "") -> list[ListedProject]:
    """All projects that a viewer may see and whose names have a text, by slug."""
    corpus = with_engine(lambda engine: corpus_counts(engine, viewer), viewer)
    projects = Project.objects.all()
    if viewer.project_ids is not None:
        projects = projects.filter(pk__in=viewer.project_ids)
    if search:
        projects = projects.filter(Q(slug__icontains=search) | Q(name__icontains=search))
    return [_with_count(project, corpus, viewer) for project in projects.order_by("slug")]


def listed_project(project: Project, viewer: Viewer) -> ListedProject:
    """A project as lists have it."""
    return _with_count(project, with_engine(lambda engine: corpus_counts(engine, viewer), viewer), viewer)


def _with_count(project: Project, corpus: CorpusCounts, viewer: Viewer) -> ListedProject:
    count = corpus.counts.get(("project", project.pk), 0) if corpus.known else None
    return ListedProject(project, count, viewer.may_write(project.pk))


def list_sessions(request: SessionsRequest, viewer: Viewer) -> Listed[ListedSession]:
    """The sessions of the projects that a viewer may see. Memories are counted for the page alone. Uses the index
    session_begun_idx.

    Raises QueryError for a project that the viewer does not see, and for words that too many memories have.
    """
    watch = Stopwatch()
    with watch.stage("hits"):
        sessions = Session.objects.select_related("project").order_by(*NEWEST_SESSIONS)
        if viewer.project_ids is not None:
            sessions = sessions.filter(project_id__in=viewer.project_ids)
        if request.project:
            sessions = sessions.filter(project_id__in=visible_project_ids(request.project, viewer))
        if request.agent:
            sessions = sessions.filter(agent__in=request.agent)
        if request.search:
            sessions = sessions.filter(_session_has(request.search, viewer))
        page = list(sessions[request.slice])
        stored = visible_to(viewer).filter(session_id__in=[one.pk for one in page])
        numbers = {
            pk: (count, first, last)
            for pk, count, first, last in stored.exclude(state=Memory.State.DELETED)
            .order_by()
            .values_list("session_id")
            .annotate(Count("pk"), Min("created_at"), Max("created_at"))
        }
        titles = first_titles(page, viewer)
        rows = tuple(ListedSession(one, *numbers.get(one.pk, (0, None, None)), titles.get(one.pk, "")) for one in page)
        return Listed(rows, sessions.count(), watch.timings)


def first_titles(sessions: Iterable[Session], viewer: Viewer) -> dict[int, str]:
    """The title of the first memory of each session, by which one without a title is known. Uses memory_session_idx."""
    stored = visible_to(viewer).filter(session_id__in=[one.pk for one in sessions]).exclude(state=Memory.State.DELETED)
    firsts = stored.order_by("session_id", "created_at", "pk").distinct("session_id")
    return dict(firsts.values_list("session_id", "title"))


def _session_has(text: str, viewer: Viewer) -> Q:
    """A condition for sessions with a text in their id or title, or with a memory that has its words and none that has
    a word that it excludes.

    Raises QueryError if looking at all memories that have them takes too long.
    """
    named = Q(external_id__icontains=text) | Q(title__icontains=text)
    if not (words := has_words(text)):
        return named
    memories = visible_to(viewer).exclude(state=Memory.State.DELETED).filter(session__isnull=False)
    ids = memories.order_by().values_list("session_id", flat=True).distinct()
    # Once for the page and the total, since all of these memories are read.
    try:
        with snapshot(settings.SEARCH_FACET_TIMEOUT_MS):
            found = set(ids.filter(words))
            if found and (excluded := has_excluded_words(text)):
                found -= set(ids.filter(excluded, session_id__in=found))
    except OperationalError as error:
        if not isinstance(error.__cause__, QueryCanceled):
            raise
        message = f"too many memories have the words of '{legible(text, 40)}': it took too long to look at them"
        raise QueryError([Problem("search", message, "add a word that fewer have")]) from None
    return named | Q(pk__in=found)


def visible_project_ids(slugs: Iterable[str], viewer: Viewer) -> list[int]:
    """The ids of visible projects. Raises QueryError for others, whether they exist or not."""
    visible = Project.objects.all()
    if viewer.project_ids is not None:
        visible = visible.filter(pk__in=viewer.project_ids)
    known = dict(visible.values_list("slug", "pk"))
    if unknown := [slug for slug in slugs if slug.lower() not in known]:
        raise QueryError(
            Problem(
                "project",
                f"there is no project '{legible(slug, 40)}' that you can see",
                "leave it out for all projects",
                close_to(slug, known),
            )
            for slug in unknown
        )
    return [known[slug.lower()] for slug in slugs]


def whoami(viewer: Viewer) -> Whoami:
    """The viewer's key and projects."""
    key = None if viewer.api_key_id is None else ApiKey.objects.get(pk=viewer.api_key_id)
    ids = (viewer.project_ids or frozenset()) | (viewer.writable_project_ids or frozenset())
    slugs = dict(Project.objects.filter(pk__in=ids).order_by("slug").values_list("pk", "slug"))

    def named(chosen: frozenset[int] | None) -> tuple[str, ...] | None:
        return None if chosen is None else tuple(slug for pk, slug in slugs.items() if pk in chosen)

    writable: frozenset[int] | None = viewer.writable_project_ids if "write" in viewer.scopes else frozenset()
    return Whoami(key, named(viewer.project_ids), named(writable))
