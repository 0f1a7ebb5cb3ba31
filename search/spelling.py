"""What a word that nothing has may have been meant to be: a word like it that some memory of the viewer has."""

import difflib
from collections.abc import Iterator

from memories.models import Memory
from search.analysis import Pattern, analyse_token, fold, phrase_pattern, tokens
from search.engines.base import Engine, EngineTimeoutError, LanguageText, Plan
from search.planning import Planned
from search.query import SearchQuery, Sort
from search.result import SearchWarning
from search.words import TextQuery

_LEAST_LETTERS = 4
_MOST_WORDS = 5
_SUGGESTIONS = 2
_LIKENESS = 0.7
_SCOPE = 20_000


def spelling_warnings(engine: Engine, query: SearchQuery, planned: Planned) -> list[SearchWarning]:
    """For each word of a query that no memory has, in which nothing else narrows: what may have been meant."""
    try:
        return list(_warnings(engine, query, planned))
    except EngineTimeoutError:
        return []


def _warnings(engine: Engine, query: SearchQuery, planned: Planned) -> Iterator[SearchWarning]:
    if not planned.plan.texts:
        return
    language = planned.plan.texts[0].language
    visible = Plan(project_ids=planned.plan.project_ids)
    looked_for = set(planned.plan.texts[0].words.positive)
    for start, end, pattern in _words(query.text, language):
        if pattern not in looked_for or engine.totals([_having(visible, planned, pattern)])[0]:
            continue
        term = pattern.terms[0]
        close = difflib.get_close_matches(term, engine.near_terms(visible, term), 2 * _SUGGESTIONS, _LIKENESS)
        spelled = [_spelling(engine, visible, planned, other, language) for other in close]
        meant = [query.text[:start] + word + query.text[end:] for word in dict.fromkeys(spelled) if word]
        yield SearchWarning(f"Nothing has the word “{query.text[start:end]}”.", "q", tuple(meant[:_SUGGESTIONS]))


def _words(text: str, language: str) -> list[tuple[int, int, Pattern]]:
    """The words of a query that may be misspelled: where each stands, and what it looks for."""
    found = []
    for token in tokens(text, language):
        pattern = phrase_pattern([analyse_token(text[token.start : token.end], language)])
        if len(pattern.terms) == 1 and token.end - token.start >= _LEAST_LETTERS:
            found.append((token.start, token.end, pattern))
    return found[:_MOST_WORDS]


def _having(visible: Plan, planned: Planned, pattern: Pattern) -> Plan:
    words = TextQuery(required=(pattern,))
    texts = tuple(LanguageText(text.language, text.project_ids, words) for text in planned.plan.texts)
    return Plan(project_ids=visible.project_ids, texts=texts)


def _spelling(engine: Engine, visible: Plan, planned: Planned, term: str, language: str) -> str:
    """A term as the newest memory that has it writes it; empty where none does."""
    found = engine.hits(_having(visible, planned, Pattern((term,))), Sort.NEWEST, limit=1, offset=0)
    for memory in Memory.objects.filter(pk__in=[memory_id for memory_id, _ in found]).only("title", "content"):
        for text in (memory.title, memory.content[:_SCOPE]):
            for token in tokens(text, language):
                if any(term == other for other, _ in token.terms):
                    written = text[token.start : token.end]
                    # A word at the start of a sentence; an identifier keeps its capitals.
                    return fold(written) if written[1:].islower() else written
    return ""
