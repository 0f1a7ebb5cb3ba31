"""The JSON API of curation: one endpoint for each operation, the log, and undo."""

from datetime import datetime

from ninja import Router
from pydantic import BaseModel, ConfigDict, Field

from access.keys import ApiRequest, allowed, callers
from curation.queries import TermNotFoundError, read_log, similar_names, visible_curation
from curation.schemas import Alias, Create, Edit, Forget, Merge, Move, Operation, Relate, Rename, Retag, Split
from curation.services import curation_apply, curation_plan, curation_undo
from web.errors import GUARDED, ApiError, errors
from web.params import Params, pairs_of

router = Router()

_ERRORS = errors(400, *GUARDED, 404, 409, 411, 413, 415, 422)


class LogRequest(Params):
    """The curations that the log lists."""

    limit: int = Field(50, ge=1, le=100, description="How many.")
    before: int | None = Field(None, ge=1, le=2**63 - 1, description="Only those before the one of this id.")
    search: str = Field("", max_length=200, description="A part of their titles, in any case.")


class Reply(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class LineReply(Reply):
    """One thing that happens to the vocabulary."""

    what: str
    before: str
    after: str


class FigureReply(Reply):
    """The changes to the links of one term, or from one value to another; a source that is empty makes links or adds
    values, a target that is empty removes them.
    """

    kind: str
    source: str
    target: str
    moved: int = Field(description="Links that are moved, created or removed.")
    collapsed: int = Field(description="Memories that have both: one link is kept.")


class ExampleReply(Reply):
    """A memory that changes."""

    id: int
    title: str
    lines: list[LineReply] = Field(description="What changes in it, for operations on chosen memories.")


class PlanReply(Reply):
    """The effect of an operation, planned or applied."""

    verb: str
    kind: str
    title: str
    refusals: list[str] = Field(description="Why it would be refused; empty if it would not.")
    lines: list[LineReply]
    figures: list[FigureReply]
    memories: int = Field(description="Number of memories that it changes.")
    unchanged: int = Field(description="Number of chosen memories that stay as they are.")
    not_writable: int = Field(description="Number of matching memories that the key may not change, and that stay.")
    examples: list[ExampleReply]
    token: str = Field(description="Send it to execute exactly this plan; if the plan has changed, nothing is done.")


class CurationReply(Reply):
    """A curation that was done."""

    id: int
    verb: str
    kind: str
    title: str
    memories: int
    at: datetime
    by: str
    undone_at: datetime | None


class MadeReply(Reply):
    """A new row of the vocabulary."""

    kind: str = Field(description="`category`, `concept`, `entity` or `relationship`.")
    id: int


class Answer(Reply):
    """The plan; and with it, unless it was a dry run, the curation that was made of it."""

    plan: PlanReply
    curation: CurationReply | None
    made: list[MadeReply] = Field(description="The rows that it created.")


class Log(BaseModel):
    """Curations, the newest first."""

    curations: list[CurationReply]
    more: bool


_OPERATIONS: dict[type[Operation], str] = {
    Create: "Make a category, concept or entity, with its aliases and relations, and link memories to it.",
    Edit: "Correct the description of a term, the type of a concept or an entity, the weight of a concept.",
    Merge: "Merge a tag, concept, entity or category into another one: links, names, relations and children follow.",
    Rename: "Rename a term. The old name, and old paths of a category and all below it, go on finding it.",
    Move: "Hang a category, with all that is below it, under another parent.",
    Alias: "Add and remove other names of a term.",
    Split: "Make a new term of some of the memories of another one, chosen by a query or by their ids.",
    Relate: "Relate two categories, concepts or entities, correct a relationship of entities, or end either.",
    Retag: "Change tags, categories, concepts, entities, the state, type, project, date, authors or validity of the"
    " memories that match a query or are named by id, or merge duplicates. It needs the token of a dry run, and can be"
    " undone as a whole.",
    Forget: "Delete all memories that match a query. It needs the token of a dry run, and can be undone as a whole.",
}
# The address of an operation on memories that is not a curator's.
_ADDRESSES: dict[type[Operation], str] = {Forget: "/memories/forget"}
# These change many memories at once: nobody does that unseen.
_PREVIEWED = (Retag, Forget)


def _add_endpoint(model: type[Operation], description: str) -> None:
    """Register the endpoint of an operation, whose body is the operation's model."""

    def endpoint(request: ApiRequest, body: Operation) -> Answer:
        return _apply(request, body)

    endpoint.__annotations__["body"] = model
    router.post(
        _ADDRESSES.get(model, f"/curation/{model.verb}"),
        response={200: Answer, **_ERRORS},
        auth=callers(model.scope),
        operation_id=f"curation_{model.verb}",
        summary=model.verb.capitalize(),
        description=description,
    )(endpoint)


for _model, _description in _OPERATIONS.items():
    _add_endpoint(_model, _description)


@router.get(
    "/curation",
    response={200: Log, **errors(*GUARDED, 422)},
    operation_id="curation_log",
    openapi_extra={"parameters": LogRequest.openapi_parameters()},
)
def log(request: ApiRequest) -> Log:
    """The operations of curators that the key can see, newest first."""
    viewer = allowed(request, "read")
    query = LogRequest.from_pairs(pairs_of(request.GET))
    curations, more = read_log(viewer, query.limit, query.before, query.search)
    return Log(curations=[CurationReply.model_validate(curation) for curation in curations], more=more)


@router.get(
    "/curation/{int:curation_id}", response={200: CurationReply, **errors(*GUARDED, 404, 422)}, operation_id="curation"
)
def one(request: ApiRequest, curation_id: int) -> CurationReply:
    """One curation."""
    viewer = allowed(request, "read")
    Params.from_pairs(pairs_of(request.GET))
    return CurationReply.model_validate(visible_curation(curation_id, viewer))


@router.post(
    "/curation/{int:curation_id}/undo",
    response={200: CurationReply, **errors(*GUARDED, 404, 409, 411, 422)},
    operation_id="curation_undo",
)
def undo(request: ApiRequest, curation_id: int) -> CurationReply:
    """Put everything that a curation changed back as it was, unless it was changed again since."""
    viewer = request.viewer
    Params.from_pairs(pairs_of(request.GET))
    return CurationReply.model_validate(curation_undo(curation_id=min(curation_id, 2**63 - 1), viewer=viewer))


def _apply(request: ApiRequest, operation: Operation) -> Answer:
    viewer = allowed(request, operation.scope)
    if isinstance(operation, _PREVIEWED) and not (operation.dry_run or operation.token):
        raise ApiError(
            422,
            "invalid_request",
            "token: is missing, and this changes many memories at once",
            "Call it with dry_run first, check the counts, and send the token of that plan.",
        )
    Params.from_pairs(pairs_of(request.GET))
    try:
        if operation.dry_run:
            plan = curation_plan(operation=operation, viewer=viewer)
            return Answer.model_validate({"plan": plan, "curation": None, "made": []})
        applied = curation_apply(operation=operation, viewer=viewer)
    except TermNotFoundError as error:
        error.did_you_mean = similar_names(error, viewer)
        raise
    return Answer.model_validate(applied)
