"""What a word that nothing has may have been meant to be: a word like it that some memory of the viewer has."""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from access.viewer import Viewer
from categories.queries import ids_named
from memories.queries import visible_to
from search.engines.base import Engine, EngineQuery, EngineTimeoutError, Filter, LanguageText, Value
from search.facets import FACET
from search.plan import ResolvedQuery
from search.query import SearchQuery, Sort
from search.result import SearchWarning
from text.analysis import Pattern, analyse_token, fold, phrase_pattern, tokens
from text.formatting import memories
from text.query_syntax import TextQuery

_MIN_LETTERS = 4
_MAX_WORDS = 5
_SUGGESTIONS = 2
_MIN_LIKENESS = 0.72
_SCOPE = 20_000
_MEMORIES_READ = 5


def spelling_warnings(
    engine: Engine, query: SearchQuery, resolved: ResolvedQuery, viewer: Viewer
) -> list[SearchWarning]:
    """The words of a query that no memory of the viewer has, whatever the filters, and what may have been meant."""
    try:
        unknown = list(_unknown(engine, query, resolved, viewer))
    except EngineTimeoutError:
        return []
    if not unknown:
        return []
    named = " or ".join(f"“{query.text[start:end]}”" for start, end, _ in unknown)
    candidates = [_corrected(query.text, unknown, choice) for choice in range(_SUGGESTIONS)]
    texts = tuple(text for text in dict.fromkeys(candidates) if text != query.text)
    return [SearchWarning(f"Nothing has the word {named}.", "q", texts)]


def _corrected(text: str, unknown: Sequence[tuple[int, int, Sequence[str]]], choice: int) -> str:
    """The text with the likeliest word for each unknown one; for the first of them the one of that rank."""
    for place, (start, end, spelled) in reversed(list(enumerate(unknown))):
        if spelled:
            text = text[:start] + spelled[min(choice if place == 0 else 0, len(spelled) - 1)] + text[end:]
    return text


def _unknown(
    engine: Engine, query: SearchQuery, resolved: ResolvedQuery, viewer: Viewer
) -> Iterator[tuple[int, int, Sequence[str]]]:
    """Where each such word stands, and words like it that there are, the likeliest first."""
    if not resolved.plan.texts:
        return
    visible = EngineQuery(project_ids=resolved.plan.project_ids)
    language = resolved.plan.texts[0].language
    looked_for = {pattern for text in resolved.plan.texts for pattern in text.words.positive}
    for start, end in _words(query.text, language):
        typed = query.text[start:end]
        texts = tuple(_having(typed, text) for text in resolved.plan.texts)
        if looked_for.isdisjoint(pattern for text in texts for pattern in text.words.required):
            continue
        if engine.totals([replace(visible, texts=texts)])[0]:
            continue
        term = _pattern(typed, language).terms[0]
        close = difflib.get_close_matches(term, engine.similar_terms(visible, term), _SUGGESTIONS, _MIN_LIKENESS)
        spelled = [_spelling(engine, visible, other, language, viewer) for other in close]
        yield start, end, list(dict.fromkeys(word for word in spelled if word))


def _words(text: str, language: str) -> list[tuple[int, int]]:
    """Where the words of a query stand that may be misspelled."""
    places = [(token.start, token.end) for token in tokens(text, language)]
    plain = [(start, end) for start, end in places if len(_pattern(text[start:end], language).terms) == 1]
    return [(start, end) for start, end in plain if end - start >= _MIN_LETTERS][:_MAX_WORDS]


def _pattern(word: str, language: str) -> Pattern:
    return phrase_pattern([analyse_token(word, language)])


def _having(word: str, text: LanguageText) -> LanguageText:
    """A word as it is looked for in the projects of one language."""
    return replace(text, words=TextQuery(required=(_pattern(word, text.language),)))


def _spelling(engine: Engine, visible: EngineQuery, term: str, language: str, viewer: Viewer) -> str:
    """A term as one of the newest memories that have it writes it; empty where none does."""
    having = LanguageText(language, None, TextQuery(required=(Pattern((term,)),)))
    found = engine.hits(replace(visible, texts=(having,)), Sort.NEWEST, limit=_MEMORIES_READ, offset=0)
    within = False
    for memory in visible_to(viewer).filter(pk__in=[memory_id for memory_id, _ in found]).only("title", "content"):
        for text in (memory.title, memory.content[:_SCOPE]):
            for token in tokens(text, language):
                if any(term == other for other, _ in token.terms):
                    if len(token.terms) == 1:
                        return fold(text[token.start : token.end])
                    within = True
    # Only ever as a part of longer names, where its own spelling cannot be told from its stem.
    return term if within else ""


# What people ask in a sentence is no name.
_MAX_NAME_WORDS = 6
_MAX_NAME_WARNINGS = 3


def name_warnings(engine: Engine, query: SearchQuery, resolved: ResolvedQuery, total: int) -> list[SearchWarning]:
    """The filters that would find what the words do not, by which most is found first. `total` is of all that matches.

    Only what is found under the other filters is told, so that a name never tells of what the viewer may not see.
    """
    name_text = query.text.strip().strip('"').strip()
    if not name_text or len(name_text.split()) > _MAX_NAME_WORDS or not _has_no_words(engine, resolved, total):
        return []
    without_text = replace(resolved.plan, texts=(), meaning=None)
    candidates = [one for one in _named(name_text, resolved) if not query.selection(one[0]).restricts]
    counts = engine.totals([without_text.with_filter(Filter(key, include=(values,))) for key, _, values in candidates])
    found = sorted((count, key, name) for (key, name, _), count in zip(candidates, counts, strict=True) if count)
    return [
        SearchWarning(
            f"Nothing here has the words “{name_text}”, but {memories(count)} {'has' if count == 1 else 'have'} the "
            f"{FACET[key].label.lower()} of that name.",
            key,
            (name,),
        )
        for count, key, name in reversed(found[-_MAX_NAME_WARNINGS:])
    ]


def _has_no_words(engine: Engine, resolved: ResolvedQuery, total: int) -> bool:
    """Whether nothing of the match set was found by words."""
    plan = resolved.plan
    if not plan.texts or plan.texts[0].words.is_empty:
        return False
    if total and plan.meaning is not None:
        total = engine.summary(replace(plan, meaning=None), no_values=False).total
    return total == 0


def _named(name_text: str, resolved: ResolvedQuery) -> Iterator[tuple[str, str, tuple[Value, ...]]]:
    """What is called so: its facet, how a query says it, and how an engine does."""
    for project in resolved.projects.values():
        if name_text.lower() in (project.slug, project.name.lower()):
            yield "project", project.slug, (project.id,)
    named = ids_named(name_text)
    for pk, node in resolved.names.category_nodes(named.get("category", ())).items():
        yield "category", node.path, (pk,)
    for pk, concept in resolved.names.concept_terms(named.get("concept", ())).items():
        yield "concept", concept.value, (pk,)
    for pk, entity in resolved.names.entity_terms(named.get("entity", ())).items():
        yield "entity", entity.value, (pk,)
    # As people write names, where they did not trouble to.
    for name in dict.fromkeys((name_text, name_text.title())):
        yield "author", name, (name,)
        yield "agent", name, (name,)
