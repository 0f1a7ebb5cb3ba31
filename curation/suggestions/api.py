"""The JSON API of suggestions: the queue, and the three decisions about each."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from ninja import Router
from ninja.responses import Status
from pydantic import BaseModel, ConfigDict, Field

from access.keys import ApiRequest, allowed
from curation.suggestions.background import is_searching, search_check, search_fault, search_start
from curation.suggestions.models import Suggestion
from curation.suggestions.params import AcceptRequest, KindName, StateName, SuggestionsRequest
from curation.suggestions.queries import (
    ShownSuggestion,
    counts_by_kind,
    suggestions_matching,
    visible_suggestion,
    with_names,
)
from curation.suggestions.services import SuggestionNotFoundError, suggestion_accept, suggestion_reject, suggestion_undo
from explorer.memory.api import ReasonRequest
from web.errors import GUARDED, errors
from web.params import Params, pairs_of

router = Router()


class SubjectReply(BaseModel):
    """A memory or a term. `id` is null for a tag, and for a concept that accepting would create."""

    model_config = ConfigDict(from_attributes=True)

    kind: str = Field(description="memory, category, concept, entity or tag.")
    id: int | None
    name: str = Field(description="Its title or name; for a category its slug path.")
    type: str = Field(description="For a concept or an entity.")


class SuggestionReply(BaseModel):
    """Something that might be done. Nothing is done before it is accepted."""

    id: int
    kind: KindName
    state: StateName
    project: str | None = Field(description="For suggestions about memories; names belong to no project.")
    subject: SubjectReply = Field(description="The subject: the memory; for duplicates the one to remove.")
    target: SubjectReply = Field(description="The proposal for it; for duplicates the one to keep.")
    is_turned: bool = Field(
        description="Of two names, whether they were exchanged since they were found, because more memories have the"
        " other one. Accepting takes it as `turned`."
    )
    confidence: float
    reason: str
    evidence: dict[str, Any] = Field(description="The evidence, by kind of suggestion.")
    made_at: datetime
    decided_at: datetime | None
    decided_by: str | None = Field(description="The person; null for a key or the policy of a project.")
    is_automatic: bool = Field(description="Accepted automatically by the policy of the project.")
    url: str = Field(description="Its page.")


class SuggestionsReply(BaseModel):
    """A page of suggestions, the surest first."""

    suggestions: list[SuggestionReply]
    counts: dict[str, int] = Field(description="Number of matches by kind, regardless of the selected kind.")
    total: int
    page: int
    page_size: int
    has_more: bool


class LookingReply(BaseModel):
    """Whether this machine looks for suggestions now, and why the last search did not come to its end."""

    is_searching: bool
    fault: str = Field(description="Empty if the last search came to its end, and while one is under way.")


_DECISION = {200: SuggestionReply, **errors(*GUARDED, 404, 409, 411, 422)}


@router.get(
    "/suggestions",
    response={200: SuggestionsReply, **errors(*GUARDED, 422)},
    operation_id="suggestions",
    openapi_extra={"parameters": SuggestionsRequest.openapi_parameters()},
)
def suggestions(request: ApiRequest) -> SuggestionsReply:
    """Suggested changes to memories and terms that the key can see, each with its confidence and its evidence."""
    viewer = allowed(request, "read")
    query = SuggestionsRequest.from_pairs(pairs_of(request.GET))
    counts = counts_by_kind(viewer, query)
    total = counts.get(query.kind, 0) if query.kind else sum(counts.values())
    start = (query.page - 1) * query.page_size
    rows = suggestions_matching(viewer, query)[start : start + query.page_size]
    return SuggestionsReply(
        suggestions=[_reply(shown, request) for shown in with_names(rows, viewer)],
        counts=counts,
        total=total,
        page=query.page,
        page_size=query.page_size,
        has_more=start + query.page_size < total,
    )


@router.get(
    "/suggestions/search", response={200: LookingReply, **errors(*GUARDED, 422)}, operation_id="suggestion_search"
)
def search_state(request: ApiRequest) -> LookingReply:
    """Whether a search for suggestions is under way, for keys that may change every project."""
    viewer = allowed(request, "read")
    Params.from_pairs(pairs_of(request.GET))
    search_check(viewer)
    return LookingReply(is_searching=is_searching(), fault=search_fault())


@router.post(
    "/suggestions/search",
    response={202: LookingReply, **errors(*GUARDED, 411, 422)},
    operation_id="suggestion_search_start",
)
def start_search(request: ApiRequest) -> Status[LookingReply]:
    """Look for suggestions of every kind in all projects, in the background, unless that is done already."""
    viewer = allowed(request, "curate")
    Params.from_pairs(pairs_of(request.GET))
    search_start(viewer=viewer)
    return Status(202, LookingReply(is_searching=is_searching(), fault=search_fault()))


@router.post(
    "/suggestions/{int:suggestion_id}/accept",
    response=_DECISION,
    operation_id="suggestion_accept",
    openapi_extra={"parameters": AcceptRequest.openapi_parameters()},
)
def accept(request: ApiRequest, suggestion_id: int) -> SuggestionReply:
    """Do what is proposed. It takes the scopes curate and write in the projects concerned."""
    return _decide(request, suggestion_accept, suggestion_id, AcceptRequest)


@router.post(
    "/suggestions/{int:suggestion_id}/reject",
    response=_DECISION,
    operation_id="suggestion_reject",
    openapi_extra={"parameters": ReasonRequest.openapi_parameters()},
)
def reject(request: ApiRequest, suggestion_id: int) -> SuggestionReply:
    """Say no. It is remembered: the same is never proposed again."""
    return _decide(request, suggestion_reject, suggestion_id, ReasonRequest)


@router.post("/suggestions/{int:suggestion_id}/undo", response=_DECISION, operation_id="suggestion_undo")
def undo(request: ApiRequest, suggestion_id: int) -> SuggestionReply:
    """Take a decision back, with all that accepting did. The suggestion is open again."""
    return _decide(request, suggestion_undo, suggestion_id, Params)


def _decide(
    request: ApiRequest, decide: Callable[..., Suggestion], suggestion_id: int, params: type[Params]
) -> SuggestionReply:
    """Decide as the parameters of the request say."""
    viewer = allowed(request, "curate")
    options = params.from_pairs(pairs_of(request.GET)).model_dump()
    if suggestion_id >= 2**63:
        raise SuggestionNotFoundError(suggestion_id)
    decide(suggestion_id=suggestion_id, viewer=viewer, **options)
    found = visible_suggestion(viewer, suggestion_id)
    if found is None:
        raise SuggestionNotFoundError(suggestion_id)
    return _reply(found, request)


def _reply(shown: ShownSuggestion, request: HttpRequest) -> SuggestionReply:
    row = shown.row
    return SuggestionReply(
        id=row.pk,
        kind=row.kind,
        state=row.state,
        project=row.project.slug if row.project else None,
        subject=SubjectReply.model_validate(shown.subject),
        target=SubjectReply.model_validate(shown.target),
        is_turned=shown.is_turned,
        confidence=row.confidence,
        reason=row.reason,
        evidence=row.evidence,
        made_at=row.made_at,
        decided_at=row.decided_at,
        decided_by=row.decided_by.get_username() if row.decided_by else None,
        is_automatic=row.is_automatic,
        url=request.build_absolute_uri(f"{reverse('suggestions:review')}?kind={row.kind}&item={row.pk}"),
    )
