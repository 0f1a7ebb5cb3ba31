"""The pages of the review queue: what they show besides suggestions and evidence, and their addresses."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.urls import reverse

from access.viewer import Viewer
from curation.suggestions.evidence import Evidence
from curation.suggestions.models import Suggestion
from curation.suggestions.params import ReviewQuery, kind_labels
from curation.suggestions.proposals import Kind
from curation.suggestions.queries import GROUPED_KINDS, PAGE, ProposalGroup, Queue, ShownSuggestion
from explorer.http import Pager, build_pager
from memories.models import Project

State = Suggestion.State
# The two names of a pair, before and after a decision.
_ROLES = {
    State.OPEN: ("will be merged away", "will be kept"),
    State.ACCEPTED: ("was merged away", "was kept"),
    State.REJECTED: ("stays", "stays"),
}
_CONFIDENCES = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9)
_QUESTIONS = {
    Kind.MARKED: "May this text steer the model that reads it?",
    Kind.CATEGORY: "Does this memory belong in",
    Kind.CONCEPT: "Is this memory about",
    Kind.ENTITY_DUPLICATE: "Are these the same entity?",
    Kind.CONCEPT_DUPLICATE: "Are these the same concept?",
    Kind.TAG_DUPLICATE: "Are these the same tag?",
    Kind.MEMORY_DUPLICATE: "Do these two memories say the same?",
    Kind.SUPERSEDED: "Does the newer memory replace the older one?",
}


def undo_many_url(together: datetime) -> str:
    return f"{reverse('suggestions:undo_many')}?{urlencode({'together': together.isoformat()})}"


def review_url(query: ReviewQuery, item: int | None = None, done: int | None = None) -> str:
    more = [(name, str(value)) for name, value in (("item", item), ("done", done)) if value is not None]
    querystring = urlencode([*query.parameters(), *more])
    return reverse("suggestions:review") + (f"?{querystring}" if querystring else "")


def groups_url(query: ReviewQuery) -> str:
    return f"{reverse('suggestions:proposals')}?{query.with_(proposal='').querystring()}"


@dataclass(frozen=True, slots=True)
class SearchState:
    """The search for more suggestions: whether the viewer may start one, one is under way, and why the last failed."""

    may_start: bool = False
    is_running: bool = False
    fault: str = ""


@dataclass(frozen=True, slots=True)
class ReviewPage:
    """The page of the queue."""

    queue: Queue
    evidence: Evidence | None
    projects: Sequence[Project]
    viewer: Viewer
    may_decide: bool
    search: SearchState
    notices: Sequence[str] = ()
    done: ShownSuggestion | None = None
    """The last decision, which can be undone."""
    is_stepping: bool = False
    """Whether the suggestion was opened, or comes after one that was decided: its question then has the focus."""
    together: tuple[datetime, int] | None = None
    """When the reader last decided several together, and how many."""

    @property
    def query(self) -> ReviewQuery:
        return self.queue.query

    @property
    def kinds(self) -> dict[str, str]:
        return kind_labels()

    @property
    def question(self) -> str:
        return _QUESTIONS[Kind(self.query.kind)]

    @property
    def confidences(self) -> list[float]:
        return sorted({*_CONFIDENCES, self.query.confidence})

    @property
    def roles(self) -> tuple[str, str]:
        return _ROLES[State(self.queue.current.row.state)] if self.queue.current else ("", "")

    @property
    def is_narrowed(self) -> bool:
        query = self.query
        return bool(query.project or query.confidence or query.proposal or query.state != "open")

    @property
    def by_column(self) -> bool:
        """Whether each of the two columns has the button that keeps it."""
        one, shown = self.queue.current, self.evidence
        is_open = one is not None and bool(one.ways[1]) and one.row.state == State.OPEN
        return is_open and shown is not None and 2 in (len(shown.texts), len(shown.sides))

    @property
    def here(self) -> str:
        return review_url(self.query if self.queue.rows else self.query.with_(kind=""))

    @property
    def groups_url(self) -> str:
        """The same suggestions grouped by proposal, for kinds that propose a term for many memories."""
        query = self.query
        return groups_url(query) if query.kind in GROUPED_KINDS and query.state == "open" else ""

    @property
    def pager(self) -> Pager:
        return _pager(self.query, self.queue.counts.get(self.query.kind, 0), review_url)

    @property
    def previous_url(self) -> str:
        at = self.queue.place
        return review_url(self.query, self.queue.rows[at - 1].row.pk) if at > 0 else self.pager.previous_url

    @property
    def next(self) -> ShownSuggestion | None:
        """The suggestion after the current one on the page."""
        at = self.queue.place
        return self.queue.rows[at + 1] if 0 <= at < len(self.queue.rows) - 1 else None

    @property
    def next_url(self) -> str:
        return review_url(self.query, self.next.row.pk) if self.next else self.pager.next_url


@dataclass(frozen=True, slots=True)
class GroupsPage:
    """The suggestions of a kind, grouped by proposal."""

    query: ReviewQuery
    rows: Sequence[ProposalGroup]
    total: int
    may_decide: bool
    notices: Sequence[str] = ()

    @property
    def kinds(self) -> dict[str, str]:
        return {kind.value: kind_labels()[kind] for kind in GROUPED_KINDS}

    @property
    def pager(self) -> Pager | None:
        return _pager(self.query, self.total, groups_url) if self.total > PAGE else None

    @property
    def queue_url(self) -> str:
        return review_url(self.query.with_(proposal=""))


@dataclass(frozen=True, slots=True)
class ManyPage:
    """The preview of accepting or rejecting many: the least confident suggestions first, since they are those to look
    at, and some of the others.
    """

    query: ReviewQuery
    count: int
    rest: int
    """How many more there are than are decided at once."""
    doubtful: Sequence[ShownSuggestion]
    surest: Sequence[ShownSuggestion]
    notices: Sequence[str]
    left_out: Collection[int]
    """The numbers of those without a tick."""
    instead: Mapping[int, ShownSuggestion]
    """Those that do not go together with a surer one, with that."""

    @property
    def kind(self) -> str:
        return kind_labels()[self.query.kind]

    @property
    def proposal(self) -> str:
        """The proposal, if all suggestions are of one."""
        return self.doubtful[0].proposal if self.query.proposal and self.doubtful else ""

    @property
    def listed(self) -> list[int]:
        return [one.row.pk for one in (*self.doubtful, *self.surest)]

    @property
    def unlisted(self) -> list[int]:
        """Those that contradict a listed or a surer one: they stay open."""
        return sorted(self.instead.keys() - set(self.listed))

    @property
    def others(self) -> int:
        return self.count - len(self.listed) - len(self.unlisted)

    @property
    def back_url(self) -> str:
        return review_url(self.query)


def _pager(query: ReviewQuery, total: int, url_of: Callable[[ReviewQuery], str]) -> Pager:
    pages = max(1, -(-total // PAGE))
    return build_pager(query.page, pages, PAGE, total, lambda page: url_of(query.with_(page=page)))
