"""Curation as JSON: one address a verb, the log, and undo. Thin: requests say what may come in, services do it."""

from datetime import datetime

from ninja import Router
from pydantic import BaseModel, Field

from access.keys import ApiRequest, allowed
from curation.models import Curation
from curation.plan import Plan
from curation.queries import TermNotFoundError, curation_seen, curations_seen, names_like, who
from curation.schemas import Alias, Asked, Merge, Move, Relate, Rename, Retag, Split
from curation.services import curation_apply, curation_plan, curation_undo
from web.errors import GUARDED, ApiError, errors
from web.params import Params, pairs_of

router = Router()

_ERRORS = errors(400, *GUARDED, 404, 409, 411, 413, 415, 422)


class LogRequest(Params):
    """Which curations the log lists."""

    limit: int = Field(50, ge=1, le=100, description="How many.")
    before: int | None = Field(None, ge=1, le=2**63 - 1, description="Only those before the one of this id.")


class LineReply(BaseModel):
    """One thing that happens to the vocabulary."""

    what: str
    before: str
    after: str


class FigureReply(BaseModel):
    """What happens to links of one term; a source that is empty makes links, a target that is empty removes them."""

    kind: str
    source: str
    target: str
    moved: int = Field(description="Links that are moved, created or removed.")
    collapsed: int = Field(description="Memories that have both: one link is kept.")


class ExampleReply(BaseModel):
    id: int
    title: str


class PlanReply(BaseModel):
    """What a verb would do, or did."""

    verb: str
    kind: str
    title: str
    refusals: list[str] = Field(description="Why it would be refused; empty if it would not.")
    lines: list[LineReply]
    figures: list[FigureReply]
    memories: int = Field(description="Number of memories that it changes.")
    examples: list[ExampleReply]
    token: str = Field(description="Send it to execute exactly this plan; if the plan has changed, nothing is done.")


class CurationReply(BaseModel):
    """A curation that was done."""

    id: int
    verb: str
    kind: str
    title: str
    memories: int
    at: datetime
    by: str
    undone_at: datetime | None


class Answer(BaseModel):
    """The plan; and with it, unless it was a dry run, the curation that was made of it."""

    plan: PlanReply
    curation: CurationReply | None


class Log(BaseModel):
    """Curations, the newest first."""

    curations: list[CurationReply]
    more: bool


@router.post("/curation/merge", response={200: Answer, **_ERRORS}, operation_id="curation_merge")
def merge(request: ApiRequest, asked: Merge) -> Answer:
    """Merge a tag, concept, entity or category into another one: links, names, relations and children follow."""
    return _done(request, asked)


@router.post("/curation/rename", response={200: Answer, **_ERRORS}, operation_id="curation_rename")
def rename(request: ApiRequest, asked: Rename) -> Answer:
    """Rename a term. The old name, and old paths of a category and all below it, go on finding it."""
    return _done(request, asked)


@router.post("/curation/move", response={200: Answer, **_ERRORS}, operation_id="curation_move")
def move(request: ApiRequest, asked: Move) -> Answer:
    """Hang a category, with all that is below it, under another parent."""
    return _done(request, asked)


@router.post("/curation/alias", response={200: Answer, **_ERRORS}, operation_id="curation_alias")
def alias(request: ApiRequest, asked: Alias) -> Answer:
    """Add and remove other names of a term."""
    return _done(request, asked)


@router.post("/curation/split", response={200: Answer, **_ERRORS}, operation_id="curation_split")
def split(request: ApiRequest, asked: Split) -> Answer:
    """Make a new term of some of the memories of another one, chosen by a query or by their ids."""
    return _done(request, asked)


@router.post("/curation/relate", response={200: Answer, **_ERRORS}, operation_id="curation_relate")
def relate(request: ApiRequest, asked: Relate) -> Answer:
    """Relate two categories, concepts or entities, or end that."""
    return _done(request, asked)


@router.post("/curation/retag", response={200: Answer, **_ERRORS}, operation_id="curation_retag")
def retag(request: ApiRequest, asked: Retag) -> Answer:
    """Change tags, categories, concepts or entities of all memories that match. It needs the token of a dry run."""
    if not (asked.dry_run or asked.token):
        allowed(request, "curate")
        raise ApiError(
            422,
            "invalid_request",
            "token: is missing, and this changes many memories at once",
            "Call it with dry_run first, check the counts, and send the token of that plan.",
        )
    return _done(request, asked)


@router.get(
    "/curation",
    response={200: Log, **errors(*GUARDED, 422)},
    operation_id="curation_log",
    openapi_extra={"parameters": LogRequest.openapi_parameters()},
)
def log(request: ApiRequest) -> Log:
    """What curators did, the newest first, as far as it is about what the key may see."""
    viewer = allowed(request, "read")
    asked = LogRequest.from_pairs(pairs_of(request.GET))
    curations = curations_seen(viewer)
    if asked.before is not None:
        curations = curations.filter(pk__lt=asked.before)
    found = list(curations[: asked.limit + 1])
    return Log(curations=[_reply(curation) for curation in found[: asked.limit]], more=len(found) > asked.limit)


@router.get(
    "/curation/{int:curation_id}", response={200: CurationReply, **errors(*GUARDED, 404, 422)}, operation_id="curation"
)
def one(request: ApiRequest, curation_id: int) -> CurationReply:
    """One curation."""
    viewer = allowed(request, "read")
    Params.from_pairs(pairs_of(request.GET))
    curation = curation_seen(curation_id, viewer)
    if curation is None:
        raise TermNotFoundError("curation", f"#{curation_id}")
    return _reply(curation)


@router.post(
    "/curation/{int:curation_id}/undo",
    response={200: CurationReply, **errors(*GUARDED, 404, 409, 411, 422)},
    operation_id="curation_undo",
)
def undo(request: ApiRequest, curation_id: int) -> CurationReply:
    """Put everything that a curation changed back as it was, unless it was changed again since."""
    viewer = allowed(request, "curate")
    Params.from_pairs(pairs_of(request.GET))
    return _reply(curation_undo(curation_id=min(curation_id, 2**63 - 1), viewer=viewer))


def _done(request: ApiRequest, asked: Asked) -> Answer:
    viewer = allowed(request, "curate")
    Params.from_pairs(pairs_of(request.GET))
    try:
        if asked.dry_run:
            return Answer(plan=_plan(curation_plan(asked=asked, viewer=viewer)), curation=None)
        applied = curation_apply(asked=asked, viewer=viewer)
    except TermNotFoundError as error:
        error.did_you_mean = names_like(error, viewer)
        raise
    return Answer(plan=_plan(applied.plan), curation=_reply(applied.curation))


def _plan(plan: Plan) -> PlanReply:
    return PlanReply(
        verb=plan.verb,
        kind=plan.kind,
        title=plan.title,
        refusals=list(plan.refusals),
        lines=[LineReply(what=line.label, before=line.before, after=line.after) for line in plan.lines],
        figures=[FigureReply.model_validate(figure, from_attributes=True) for figure in plan.figures],
        memories=plan.memories,
        examples=[ExampleReply.model_validate(example, from_attributes=True) for example in plan.examples],
        token=plan.token,
    )


def _reply(curation: Curation) -> CurationReply:
    return CurationReply(
        id=curation.pk,
        verb=curation.verb,
        kind=curation.kind,
        title=curation.title,
        memories=curation.memories,
        at=curation.at,
        by=who(curation),
        undone_at=curation.undone_at,
    )
