"""The tools for terms: the values of a facet, a concept or an entity with its links, and changes to the vocabulary."""

from collections.abc import Iterable, Sequence
from typing import Any

from access.viewer import Viewer
from agent_tools.calls import (
    Arguments,
    count_results,
    pairs_of_arguments,
    read_model,
    split_output_options,
    with_size,
    wrong_argument,
)
from agent_tools.rendering import (
    CellValue,
    OneLine,
    TableRow,
    encode,
    index_rows,
    joined,
    render_rows,
    render_tables,
    scope_line,
    warning_lines,
)
from categories.queries import Term
from curation.plan import Plan
from curation.queries import TermNotFoundError, similar_names
from curation.schemas import Alias, Create, Edit, Merge, Move, Operation, Relate, Rename, Retag
from curation.services import MadeRow, curation_apply, curation_plan
from explorer.graph.labels import AroundRequest, PathRequest
from explorer.graph.neighbourhood import Edge, Neighbourhood, NodeDetail, node_detail, node_neighbourhood
from explorer.graph.path_page import NodePath, find_path
from explorer.graph.queries import CONCEPT, ENTITY, NodeKind
from memories.invented_team import sample_beside_others
from memories.models import Project
from search.facets import FACET
from search.listings import facet_page
from search.query import SearchQuery
from search.result import FacetListing, HitDetail
from search.run import run
from text.highlight import cut_title
from web.params import Params, Value
from web.validation import Problem

# The operations of curation that need no preview.
OPERATIONS: dict[str, type[Operation]] = {
    operation.verb: operation for operation in (Create, Edit, Relate, Rename, Alias, Move, Merge, Retag)
}
_VALUES = 50
_PREVIEWED = 20
_NEIGHBOURS = 10
_COUNTED = 6
_SHARED = 10


# --- the values of a facet ---------------------------------------------------------------------------------------


def list_values(arguments: Arguments, viewer: Viewer) -> str:
    options, rest = split_output_options(arguments)
    key = str(rest.pop("facet", "") or "")
    spec = FACET.get(key) or next((one for one in FACET.values() if one.api_name == key), None)
    if spec is None:
        wrong = f"{key[:40]!a} is not a facet" if key else "is missing"
        raise wrong_argument("facet", wrong, f"write one of {', '.join(FACET)}")
    pairs = with_size(pairs_of_arguments(rest), _VALUES)
    listing, query = FacetListing.with_query(pairs)
    query, of_sample = _without_sample(count_results(query, pairs), viewer)
    found = facet_page(query, spec.key, listing, viewer)
    facet = found.facet
    head: dict[str, Any] = {
        "facet": spec.key,
        "distinct": facet.distinct,
        "memories_without": facet.no_value,
        "page": listing.page,
        "has_more": found.has_more,
        **scope_line(query, [spec.key]),
    }
    head |= warning_lines(found.warnings)
    if of_sample:
        head["left_out"] = f"the sample: name {' or '.join(of_sample)} as project for its values"
    if facet.unavailable:
        head["unavailable"] = facet.unavailable
    is_table = options.format == "toon"
    rows: list[TableRow] = [
        {"value": one.value, "label": "" if is_table and one.label == one.value else one.label, "count": one.count}
        for one in facet.values
    ]
    return render_rows(
        head, "values", rows, options, lambda n: f"raise it, or ask for limit={max(n, 1)} and further pages"
    )


def _without_sample(query: SearchQuery, viewer: Viewer) -> tuple[SearchQuery, tuple[str, ...]]:
    """The query without the projects of the sample, and these; unless it chooses projects or imports."""
    if query.selection("project").restricts or query.selection("import").restricts:
        return query, ()
    named = Project.objects.filter(pk__in=sample_beside_others(viewer)).order_by("slug")
    slugs = tuple(named.values_list("slug", flat=True))
    return (query.with_(not_project=slugs) if slugs else query), slugs


# --- one concept or entity, and what links two -------------------------------------------------------------------


class AboutRequest(Params):
    """A concept or an entity, and a second one of its kind if the links between the two are wanted."""

    concept: Value = ""
    entity: Value = ""
    to: Value = ""

    def conflicts(self) -> Iterable[Problem]:
        if bool(self.concept) == bool(self.entity):
            wrong = "both are given" if self.concept else "neither is given"
            yield Problem("concept", f"concept or entity: {wrong}", "write the name, alias or id of one")

    @property
    def kind(self) -> NodeKind:
        return CONCEPT if self.concept else ENTITY


def about(arguments: Arguments, viewer: Viewer) -> str:
    options, rest = split_output_options(arguments)
    asked = AboutRequest.from_pairs(pairs_of_arguments(rest))
    name = asked.concept or asked.entity
    if not asked.to:
        head, tables = _described(node_detail(asked.kind, name, AroundRequest(), viewer))
    elif asked.kind is ENTITY:
        pairs = [("from", name), ("to", asked.to)]
        found = find_path(PathRequest.from_pairs(pairs), viewer)
        if not found.steps:
            found = find_path(PathRequest.from_pairs([*pairs, ("together", "1")]), viewer)
        head, tables = _path(found)
    else:
        head, tables = _concepts_together(name, asked.to, viewer)
    return render_tables(head, tables, options, "raise it")


def _described(node: NodeDetail) -> tuple[dict[str, Any], dict[str, Sequence[TableRow]]]:
    profile = node.profile
    head: dict[str, Any] = {
        **_term(node.term),
        "aliases": list(node.aliases),
        "description": node.description,
        "memories": profile.memories,
        "first": str(profile.first or ""),
        "last": str(profile.last or ""),
        "categories": OneLine({node.path: count for node, count in profile.categories[:_COUNTED]}),
        "tags": OneLine(profile.tags[:_COUNTED]),
        "entities" if node.kind is CONCEPT else "concepts": OneLine(
            {term.label: count for term, count in profile.others[:_COUNTED]}
        ),
    }
    if profile.unavailable:
        head["unavailable"] = profile.unavailable
    if node.around.total > _NEIGHBOURS:
        head["neighbours_total"] = node.around.total
    return head, {
        "neighbours": _neighbours(node.around)[:_NEIGHBOURS],
        "memories_newest": index_rows(node.samples),
    }


def _neighbours(around: Neighbourhood) -> list[TableRow]:
    near = [one for one in (*around.drawn, *around.more) if one.level == 1]
    return [{"name": one.term.value, **_links(one.edge, around.center.id)} for one in near]


def _links(edge: Edge, source: int) -> dict[str, CellValue]:
    """How two terms are linked: by stated relations, seen from one of them, and by shared memories."""
    stated = {tie.type if tie.source == source else f"{tie.type} (reverse)" for tie in edge.ties}
    return {"how": sorted(stated), "shared_memories": edge.memories}


def _path(found: NodePath) -> tuple[dict[str, Any], dict[str, Sequence[TableRow]]]:
    head: dict[str, Any] = {"from": found.source.value, "to": found.target.value}
    if found.reason:
        head["reason"] = found.reason
    rows: list[TableRow] = [
        {
            "from": step.source.value,
            **_links(step.edge, step.source.id),
            "to": step.target.value,
            "fact": "; ".join(record.fact for record in step.relationships if record.fact),
            "evidence": [f"#{memory.id} {memory.title}" for memory in step.memories],
        }
        for step in found.steps
    ]
    return head, {"steps": rows}


def _concepts_together(name: str, other: str, viewer: Viewer) -> tuple[dict[str, Any], dict[str, Sequence[TableRow]]]:
    """The stated relation of two concepts, the concepts that both are linked to, and the memories about both."""
    first, _ = node_neighbourhood(CONCEPT, name, AroundRequest(), viewer)
    second, _ = node_neighbourhood(CONCEPT, other, AroundRequest(), viewer)
    ours = {one.term.id: one for one in (*first.drawn, *first.more)}
    theirs = {one.term.id: one for one in (*second.drawn, *second.more)}
    head: dict[str, Any] = {"from": first.center.value, "to": second.center.value}
    if direct := ours.get(second.center.id):
        head |= {key: value for key, value in _links(direct.edge, first.center.id).items() if value}
    between: list[TableRow] = [
        {
            "name": one.term.value,
            "to_first": one.edge.memories or _links(one.edge, first.center.id)["how"],
            "to_second": theirs[pk].edge.memories or _links(theirs[pk].edge, second.center.id)["how"],
        }
        for pk, one in ours.items()
        if pk in theirs
    ]
    both = SearchQuery(concept=(str(first.center.id), str(second.center.id)), concept_all=True, page_size=_SHARED)
    shared = run(both, viewer, include_facets=False, detail=HitDetail.INDEX)
    head["memories_about_both"] = shared.total
    return head, {"linked_to_both": between[:_NEIGHBOURS], "memories_newest": index_rows(shared.hits)}


def _term(term: Term) -> dict[str, Any]:
    return {"id": term.id, "name": term.label, "type": term.type}


# --- changes -----------------------------------------------------------------------------------------------------


def curate(arguments: Arguments, viewer: Viewer) -> str:
    given = dict(arguments)
    verb = given.pop("operation", "")
    model = OPERATIONS.get(str(verb))
    if model is None:
        wrong = f"{str(verb)[:40]!a} is unknown"
        raise wrong_argument("operation", wrong, f"write one of {', '.join(OPERATIONS)}")
    operation = read_model(model, given)
    is_previewed = isinstance(operation, Retag)
    if is_previewed and not (operation.dry_run or operation.token):
        first = "call it with dry_run first, show the user its counts, and send the token of that plan"
        raise wrong_argument("token", "is missing, and this changes many memories at once", first)
    made: tuple[MadeRow, ...] = ()
    undo: dict[str, str] = {}
    try:
        if operation.dry_run:
            plan = curation_plan(operation=operation, viewer=viewer)
        else:
            applied = curation_apply(operation=operation, viewer=viewer)
            plan, made = applied.plan, applied.made
            undo = {"undo": f"restore(forgotten={applied.curation.pk})"} if is_previewed else {}
    except TermNotFoundError as error:
        error.did_you_mean = similar_names(error, viewer)
        raise
    row: dict[str, Any] = {"done": "nothing yet: dry_run" if operation.dry_run else plan.title}
    row |= {"effect": plan.title} if operation.dry_run else {}
    row |= {"made": joined(f"{one.kind} #{one.id}" for one in made)} if made else {}
    row |= {"refused": "; ".join(plan.refusals)} if plan.refusals else {}
    row["memories"] = plan.memories
    if is_previewed and operation.dry_run:
        row |= _preview_of(plan)
    row |= undo
    lines = [" ".join(filter(None, (line.what, line.before and f"{line.before} →", line.after))) for line in plan.lines]
    return encode(row | ({"changes": lines} if lines else {}), "toon")


def _preview_of(plan: Plan) -> dict[str, Any]:
    """How many memories a change of many would give which values, with examples."""
    counts = [
        f"{one.moved} {one.kind}: {one.source or 'none'} → {one.target or 'none'}" for one in plan.figures[:_PREVIEWED]
    ]
    examples = [f"#{one.id} {cut_title(one.title)}" for one in plan.examples]
    row: dict[str, Any] = {"unchanged": plan.unchanged, "not_writable": plan.not_writable, "counts": counts}
    return row | {"examples": examples} | ({} if plan.refusals else {"token": plan.token})
