"""The naive counter: what a search must find and count, worked out in plain Python over every memory.

It reads the link tables, not the facet columns, and knows nothing of engines; only the analysis of text is shared.
"""

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from fractions import Fraction

from categories.models import Category, CategoryLink, Concept, ConceptLink, Entity, EntityLink, TagAlias
from memories.embedding.models import HASHED, min_similarity
from memories.models import MapPlace, Memory, MemoryLink, Recall
from search.facets import DEFAULT_STATES, FACETS
from tests.vectors import similarity
from text.analysis import index_terms
from text.formatting import start_of
from text.query_syntax import parse_text, plain_text_of


@dataclass(frozen=True)
class Document:
    id: int
    values: dict[str, frozenset[str]]
    own_categories: frozenset[str]
    created_at: datetime
    updated_at: datetime
    language: str
    index: dict[str, list[tuple[int, str]]]
    # The names of tags, categories, concepts and entities, by (facet, value).
    names: dict[tuple[str, str], frozenset[str]]
    # From when to when it is valid; to None while it still is.
    valid: tuple[datetime, datetime | None]
    # On the map of meaning; none without a place.
    place: object = None
    # When it was recalled last; none if never.
    recalled: datetime | None = None
    # By meaning; none where nothing was embedded.
    vectors: object = None


_NAMED = ("tag", "category", "concept", "entity")


def _names():
    """The names and aliases of every term, in lower case."""
    names = {}
    for key, model, value in (
        ("category", Category, lambda term: term.path),
        ("concept", Concept, lambda term: term.name),
        ("entity", Entity, str),
    ):
        for term in model.objects.all():
            names[key, value(term)] = frozenset(name.lower() for name in (term.name, *term.aliases))
    for tag in {tag for tags in Memory.objects.values_list("tags", flat=True) for tag in tags}:
        aliases = TagAlias.objects.filter(tag=tag).values_list("alias", flat=True)
        names["tag", tag] = frozenset(form for name in (tag, *aliases) for form in (name, name.replace("-", " ")))
    return names


def _validity(memory, created):
    ends = [memory.valid_to] if memory.valid_to else []
    if memory.state not in DEFAULT_STATES:
        ends.append(created.get(memory.superseded_by_id, memory.updated_at))
    return memory.valid_from or memory.created_at, min(ends, default=None)


def load_documents(ids=None):
    """Every memory as the oracle sees it."""
    links = {key: {} for key in ("category", "concept", "entity", "link")}
    for link in CategoryLink.objects.select_related("category"):
        links["category"].setdefault(link.memory_id, []).append(link.category.path)
    for link in ConceptLink.objects.select_related("concept"):
        links["concept"].setdefault(link.memory_id, []).append(link.concept.name)
    for link in EntityLink.objects.select_related("entity"):
        links["entity"].setdefault(link.memory_id, []).append(f"{link.entity.entity_type}:{link.entity.name}")
    for link in MemoryLink.objects.order_by("memory_id", "ordinal"):
        links["link"].setdefault(link.memory_id, []).append(link.target)
    documents, names = [], _names()
    created = dict(Memory.objects.values_list("id", "created_at"))
    places = {pk: (x, y) for pk, x, y in MapPlace.objects.values_list("memory_id", "x", "y")}
    recalls = dict(Recall.objects.values_list("memory_id", "last_at"))
    memories = Memory.objects.select_related("project").order_by("id")
    if ids is not None:
        memories = memories.filter(id__in=ids)
    for memory in memories.iterator():
        own = frozenset(links["category"].get(memory.pk, ()))
        rolled = {"/".join(path.split("/")[:n]) for path in own for n in range(1, path.count("/") + 2)}
        values = {
            "project": frozenset([memory.project.slug]),
            "type": frozenset([memory.memory_type]),
            "category": frozenset(rolled),
            "tag": frozenset(memory.tags),
            "concept": frozenset(links["concept"].get(memory.pk, ())),
            "entity": frozenset(links["entity"].get(memory.pk, ())),
            "author": frozenset(memory.authors),
            "agent": frozenset([memory.agent] if memory.agent else []),
            "source": frozenset([memory.source] if memory.source else []),
            "import": frozenset([str(memory.batch_id)] if memory.batch_id else []),
            "state": frozenset([memory.state]),
        }
        references = " ".join([memory.summary, memory.external_id, *links["link"].get(memory.pk, ())])
        fields = [(memory.title, "A"), (" ".join(memory.tags), "B"), (references, "C"), (memory.content, "D")]
        index = index_terms(fields, memory.project.language)
        documents.append(
            Document(
                memory.pk,
                values,
                own,
                memory.created_at,
                memory.updated_at,
                memory.project.language,
                index,
                names,
                _validity(memory, created),
                places.get(memory.pk),
                recalls.get(memory.pk),
            )
        )
    return documents


def _chosen(document, key, query):
    if key == "category" and not query.subcategories:
        return document.own_categories
    return document.values[key]


def _passes(document, query, *, skip="", now=None):
    for spec in FACETS:
        selection = query.selection(spec.key)
        include = selection.include
        if spec.key == "state" and not selection.restricts:
            include = {*DEFAULT_STATES, "archived", "superseded"} if query.as_of else DEFAULT_STATES
        has = _chosen(document, spec.key, query)
        if set(selection.exclude) & has or (selection.any_value and not document.values[spec.key]):
            return False
        if not (include or selection.no_value):
            continue
        if selection.require_all:
            if not set(include) <= has or (selection.no_value and document.values[spec.key]):
                return False
        elif spec.key != skip and not (set(include) & has or (selection.no_value and not document.values[spec.key])):
            return False
    if skip != "date":
        start, end = query.period(UTC, now or datetime.now(UTC))
        if (start and document.created_at < start) or (end and document.created_at >= end):
            return False
    changed_from = start_of(query.updated_since, UTC, now or datetime.now(UTC))
    if changed_from and document.updated_at < changed_from:
        return False
    if not _passes_recalls(document, query, now) or (query.as_of and not _is_valid(document, query.as_of)):
        return False
    if query.area and not _is_inside(document.place, query.area):
        return False
    if not query.text:
        return True
    words = parse_text(query.text, document.language)
    by_words = words.matches(document.index) and query.mode != "semantic"
    return by_words or _matches_by_name(document, query, words) or _matches_by_meaning(document, query, words)


def _passes_recalls(document, query, now):
    if query.recalled_since and not _is_recalled(document, query.recalled_since, now):
        return False
    return not (query.not_recalled_since and _is_recalled(document, query.not_recalled_since, now))


def _is_recalled(document, since, now):
    if document.recalled is None or since == "ever":
        return document.recalled is not None
    return document.recalled >= start_of(since, UTC, now or datetime.now(UTC))


def _is_valid(document, day):
    """Whether a memory was valid at the end of a day in UTC."""
    end = datetime.combine(date.fromisoformat(day), time.max, UTC)
    since, until = document.valid
    return since <= end and (until is None or until > end)


def _is_inside(place, area):
    """Whether a line from a place to the right crosses the outline an odd number of times."""
    layout, *corners = area.split("_")
    if place is None or layout != "1":
        return False
    points = [tuple(map(int, corner.split("."))) for corner in corners]
    crossed = 0
    for (ax, ay), (bx, by) in zip(points, points[1:] + points[:1], strict=True):
        if (ay <= place[1]) != (by <= place[1]):
            crossed += place[0] < ax + Fraction(bx - ax, by - ay) * (place[1] - ay)
    return crossed % 2 == 1


def _matches_by_name(document, query, words):
    if query.mode == "semantic" or '"' in query.text or words.required or words.excluded:
        return False
    name = " ".join(query.text.split()).lower()
    return any(
        name in document.names.get((key, value), ()) for key in _NAMED for value in _chosen(document, key, query)
    )


def _matches_by_meaning(document, query, words):
    said = plain_text_of(query.text)
    if document.vectors is None or query.mode not in {"hybrid", "faceted", "semantic"} or not said:
        return False
    least = min_similarity(HASHED) if query.min_similarity is None else query.min_similarity
    if similarity(document.vectors, said) < least:
        return False
    return words.always.is_empty or words.always.matches(document.index)


def matching(documents, query, now=None):
    """The match set."""
    return [document for document in documents if _passes(document, query, now=now)]


def facet_counts(documents, query, key):
    """Counts of one facet by the counting rules, and how many memories have no value in it."""
    skipped = "" if query.facet_scope == "results" else key
    passing = [document for document in documents if _passes(document, query, skip=skipped)]
    counts = Counter(value for document in passing for value in _chosen(document, key, query))
    return counts, sum(1 for document in passing if not document.values[key])


def date_counts(documents, query):
    """The days of what passes without the date filter."""
    passing = [document for document in documents if _passes(document, query, skip="date")]
    return Counter(document.created_at.date() for document in passing)
