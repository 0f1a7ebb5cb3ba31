"""The rows of a page: memories by id in rank order, with marked titles and snippets."""

from django.db.models.functions import Left

from access.viewer import Viewer, visible_to
from categories.queries import CategoryNode, category_nodes
from memories.models import Memory
from search.analysis import Pattern, Segment, matched_spans, plain_text, segments, snippet
from search.engines.base import Plan
from search.planning import Planned
from search.ranking import Ranked
from search.result import CategoryRef, Hit

# How much of a memory's text a snippet is looked for in: a longer search would cost more than it shows.
_SNIPPET_SCOPE = 20_000
_SNIPPET_LENGTH = 260


def hydrate(found: list[Ranked], planned: Planned, viewer: Viewer) -> tuple[Hit, ...]:
    """Rows of a page in their order: one statement for memories, two for the names of their categories."""
    if not found:
        return ()
    scope = _SNIPPET_SCOPE if planned.plan.has_text else 4 * _SNIPPET_LENGTH
    memories = {
        memory.pk: memory
        for memory in visible_to(viewer)
        .filter(pk__in=[one.id for one in found])
        .annotate(head=Left("content", scope))
        .defer("content", "raw", "terms")
    }
    memories = {pk: memory for pk, memory in memories.items() if _in_state(memory, planned.plan)}
    nodes = category_nodes([pk for memory in memories.values() for pk in memory.category_ids])
    return tuple(_hit(memories[one.id], one, planned, nodes) for one in found if one.id in memories)


def _in_state(memory: Memory, plan: Plan) -> bool:
    """Whether its state is one that is asked for: an index may not know yet that it was deleted."""
    chosen = plan.filter("state")
    if chosen is None or not chosen.includes or chosen.no_value:
        return True
    return any(memory.state in group for group in chosen.include)


def _hit(memory: Memory, why: Ranked, planned: Planned, nodes: dict[int, CategoryNode]) -> Hit:
    project = planned.projects[memory.project_id]
    patterns = _patterns(planned.plan, memory.project_id)
    categories = sorted((nodes[pk] for pk in memory.category_ids if pk in nodes), key=lambda node: node.path)
    return Hit(
        id=memory.pk,
        project=project.slug,
        memory_type=memory.memory_type,
        title=segments(memory.title, matched_spans(memory.title, patterns, project.language)),
        # What is asked for in the title is marked there alone.
        snippet=_snippet(memory, tuple(p for p in patterns if not p.field), project.language),
        created_at=memory.created_at,
        updated_at=memory.updated_at,
        state=memory.state,
        tags=tuple(memory.tags),
        categories=tuple(CategoryRef(node.path, node.names) for node in categories),
        authors=tuple(memory.authors),
        agent=memory.agent,
        source=memory.source,
        source_uri=memory.source_uri,
        external_id=memory.external_id,
        pinned=memory.pinned,
        importance=memory.importance,
        superseded_by=memory.superseded_by_id,
        score=why.score,
        why=why,
    )


def _patterns(plan: Plan, project_id: int) -> tuple[Pattern, ...]:
    for text in plan.texts:
        if text.project_ids is None or project_id in text.project_ids:
            return text.words.positive
    return ()


def _snippet(memory: Memory, patterns: tuple[Pattern, ...], language: str) -> tuple[Segment, ...]:
    head: str = getattr(memory, "head")  # noqa: B009 - an annotation of the queryset, unknown to the model
    text = plain_text(head)
    # A title that is the first sentence of the text need not be read twice; one that was cut short is read on.
    if memory.title and text.startswith(memory.title):
        text = text[len(memory.title) :].lstrip(" .…:;,-–—")
    if memory.summary and not (patterns and matched_spans(text, patterns, language)):
        text = memory.summary
    return snippet(text, patterns, language, _SNIPPET_LENGTH)
