"""People and times in the plain words of a search, such as "Hannah Okafor March" or "before the migration to Postgres",
offered as filters with what they would find. Nothing is applied by itself.

Only words that can hardly mean anything else are offered: whole names, times with a year; and a first name or a month
alone if nothing else is asked, or a word such as "by" or "in" says so.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Generic, TypeVar

from access.viewer import Viewer
from categories.models import Entity
from memories.models import Project
from memories.queries import visible_to
from search.baseline_counts import corpus_counts
from search.engines import with_engine
from search.engines.base import Engine, EngineTimeoutError
from search.facets import FACET
from search.listings import totals
from search.query import Mode, SearchQuery
from search.result import HitDetail
from search.run import run
from text.analysis import fold
from text.formatting import local_day
from text.periods import Period, find_period, is_ambiguous, month_period
from web.cache import RevisionCache
from web.params import Pair

Query = TypeVar("Query", bound=SearchQuery)

_MOST_WORDS = 24
_MOST_OFFERS = 4
_WORD = re.compile(r"[^\W_]+(?:[-'’.][^\W_]+)*")
_BY = {"by", "von", "par", "por", "da", "door", "from"}
# Words before a time, with the bound that they make of it.
_BOUNDS = {
    **dict.fromkeys(["since", "from", "seit", "ab", "depuis", "desde", "dal", "sinds"], "since"),
    **dict.fromkeys(["until", "till", "bis", "jusqu'en", "hasta", "fino", "ate", "tot"], "until"),
    **dict.fromkeys(["before", "vor", "avant", "antes", "prima", "voor"], "before"),
    **dict.fromkeys(["after", "nach", "apres", "despues", "dopo", "depois", "na"], "after"),
    **dict.fromkeys(["in", "im", "during", "on", "en", "em", "nel"], ""),
}
_EVENT_WORDS = {"before", "after", "since", "until"}
_ARTICLES = {"the", "a", "an", "our", "der", "die", "das", "le", "la", "les", "el", "los", "il", "o", "de", "het"}
_TITLES_READ = 5
_LEAST_SHARE = 0.6
# First names that are words besides: alone they need a capital.
_NAMES_AND_WORDS = (
    "april art august bill chase cliff dale dawn dean drew earl faith frank gene grace grant guy hope jack joy june"
    " lance march mark max may miles nick norm pat penny pierce ray rich rob rose rusty sandy sky storm sue van"
    " victor wade ward will"
)
_ALSO_WORDS = frozenset(_NAMES_AND_WORDS.split())
# Names of accounts that are words of their own.
_NO_NAMES = {
    "admin",
    "agent",
    "assistant",
    "bot",
    "me",
    "root",
    "system",
    "team",
    "test",
    "user",
    "unknown",
    "anonymous",
}
# A name that more memories have in their text than this is an ordinary word.
_ORDINARY, _ORDINARY_SHARE = 50, 20
_NAMES_READ = 20_000


@dataclass(frozen=True, slots=True)
class WordOffer(Generic[Query]):
    """Words of a query as filters: `pairs` are the parameters, `query` is the query with these in place of the words,
    which finds `count` memories.
    """

    label: str
    words: str
    pairs: tuple[Pair, ...]
    query: Query
    count: int
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class _Part:
    """Some of the words, from one place to another, as a filter."""

    begin: int
    end: int
    label: str
    pairs: tuple[Pair, ...]
    is_sure: bool
    name: str = ""
    """A single name that may be an ordinary word."""
    weight: int = 0
    """The memories of the person."""
    month: Period | None = None
    """A month without a year, and the word before it that makes a bound of it."""
    bound: str = ""


@dataclass(frozen=True, slots=True)
class _Person:
    facet: str
    value: str
    label: str
    count: int


@dataclass(frozen=True, slots=True)
class _People:
    """The people and agents that a viewer sees, by the words of their whole names, and by a first or last name that one
    alone has.
    """

    by_name: Mapping[tuple[str, ...], _Person]
    by_word: Mapping[str, _Person]
    longest: int
    projects: Mapping[tuple[str, ...], _Person]
    """Projects by all words of their names."""


# They may be this late.
_people = RevisionCache[frozenset[int] | None, _People](16, seconds=60)


def offer_filters(query: Query, viewer: Viewer) -> tuple[WordOffer[Query], ...]:
    """The filters that the words of a query may mean, those that go together first, each with what it finds."""
    matches = list(_WORD.finditer(query.text))
    if not 0 < len(matches) <= _MOST_WORDS or query.mode == Mode.TAG or '"' in query.text:
        return ()
    parts = [part for part in _find_parts(query, matches, viewer) if not _is_chosen(query, part)]
    if not parts:
        return ()
    together = _compatible(parts)
    sets = [*([together] if len(together) > 1 else []), *([part] for part in parts)]
    accepted = [(chosen, _accept(query, matches, chosen)) for chosen in sets[:_MOST_OFFERS]]
    sizes = totals([changed for _, changed in accepted], viewer)
    return tuple(
        WordOffer(
            label=" · ".join(part.label for part in chosen),
            words=" ".join(query.text[matches[part.begin].start() : matches[part.end - 1].end()] for part in chosen),
            pairs=tuple(pair for part in chosen for pair in part.pairs),
            query=changed,
            count=size.total,
            at_least=size.truncated,
        )
        for (chosen, changed), size in zip(accepted, sizes, strict=True)
        if size.total
    )


def _compatible(parts: Iterable[_Part]) -> list[_Part]:
    """The parts that can be filters at once: one of each key, the first that is named."""
    taken: set[str] = set()
    found = []
    for part in parts:
        keys = {key for key, _ in part.pairs}
        if taken.isdisjoint(keys):
            found.append(part)
            taken |= keys
    return found


def _is_chosen(query: SearchQuery, part: _Part) -> bool:
    """Whether the query has a filter of this kind already."""
    key = part.pairs[0][0]
    return query.selection(key).restricts if key in FACET else query.has_dates


def _accept(query: Query, matches: Sequence[re.Match[str]], parts: Sequence[_Part]) -> Query:
    """The query with filters in place of some of its words."""
    text = query.text
    for part in sorted(parts, key=lambda part: part.begin, reverse=True):
        text = f"{text[: matches[part.begin].start()].rstrip()} {text[matches[part.end - 1].end() :].lstrip()}"
    left = query.with_(text=" ".join(text.split()).strip(" ,;?"))
    return _with_pairs(left, [pair for part in parts for pair in part.pairs])


def _with_pairs(query: Query, pairs: Iterable[Pair]) -> Query:
    for key, value in pairs:
        query = query.only(key, value) if key in FACET else query.with_(**{f"date_{key}": value})
    return query


# --- the words ----------------------------------------------------------------------------------------------------


def _find_parts(query: SearchQuery, matches: Sequence[re.Match[str]], viewer: Viewer) -> list[_Part]:
    words = [match.group() for match in matches]
    if project := _people_of(viewer).projects.get(_name_of(_apart(words))):
        return [_of_person(project, 0, len(words), is_sure=True)]
    today = local_day(datetime.now(UTC), viewer.timezone)
    found = list(_scan(words, viewer, today))
    # Words that may mean something else count if nothing besides is asked.
    is_all = sum(part.end - part.begin for part in found) == len(words)
    has_sure = any(part.is_sure for part in found)
    parts = [part for part in found if part.is_sure or (is_all and (has_sure or not _is_only_a_word(words, part)))]
    named = {part.name for part in parts if part.name}
    ordinary = _ordinary_words(named, {part.name: part.weight for part in parts}, viewer) if named else set()
    parts = [part for part in parts if part.name not in ordinary or not part.name]
    return [_in_its_year(part, parts, viewer) for part in parts]


def _is_only_a_word(words: Sequence[str], part: _Part) -> bool:
    """Whether a part is a word without a capital that is no name first of all, such as "may" or "mark"."""
    word = words[part.begin]
    return word[:1].islower() and part.end - part.begin == 1 and (is_ambiguous(word) or fold(word) in _ALSO_WORDS)


def _scan(words: Sequence[str], viewer: Viewer, today: date) -> Iterator[_Part]:
    at = 0
    while at < len(words):
        time = _time_at(words, at, viewer, today)
        # "Marco" is a month to some.
        part = time if time and time.is_sure else _person_at(words, at, viewer) or time
        if part is not None:
            yield part
        at = part.end if part else at + 1


def _time_at(words: Sequence[str], at: int, viewer: Viewer, today: date) -> _Part | None:
    bound = _BOUNDS.get(fold(words[at]))
    begin = at + (bound is not None)
    if begin == len(words):
        return None
    period = find_period(words, begin, today)
    if period is None:
        return _event_at(words, at, viewer) if fold(words[at]) in _EVENT_WORDS else None
    is_named = bound is not None and not (is_ambiguous(words[begin]) and words[begin][:1].islower())
    found = _bounded_period(period, bound or "", at, begin + period.width, is_sure=period.is_sure or is_named)
    return replace(found, month=period, bound=bound or "") if found and period.month else found


def _bounded_period(period: Period, bound: str, begin: int, end: int, *, is_sure: bool) -> _Part | None:
    """A period, or all that is before or after it, as the days of a filter."""
    try:
        first, last = {
            "": (period.first, period.last),
            "since": (period.first, None),
            "until": (None, period.last),
            "before": (None, period.first - timedelta(days=1)),
            "after": (period.last + timedelta(days=1), None),
        }[bound]
    except OverflowError:
        return None
    label = period.label if not bound else f"{bound} {period.label}"
    pairs = [(key, day.isoformat()) for key, day in (("from", first), ("to", last)) if day]
    return _Part(begin, end, label, tuple(pairs), is_sure)


def _in_its_year(part: _Part, others: Sequence[_Part], viewer: Viewer) -> _Part:
    """A part with a month that has no year, in the latest year in which it has memories; of a person, those of them."""
    month = part.month
    if month is None:
        return part
    base = _with_pairs(SearchQuery(), [pair for one in others if one.month is None for pair in one.pairs])
    years = [month.first.year - back for back in range(_YEARS_BACK)]
    days = [month_period(year, month.month) for year in years]
    sizes = totals([base.between(one.first.isoformat(), one.last.isoformat()) for one in days], viewer)
    held = next((year for year, size in zip(years, sizes, strict=True) if size.total), years[0])
    dated = _bounded_period(month.in_year(held), part.bound, part.begin, part.end, is_sure=part.is_sure)
    return dated or part


_YEARS_BACK = 10


def _event_at(words: Sequence[str], at: int, viewer: Viewer) -> _Part | None:
    """A memory whose title is the rest of the words, as a bound of time: before what it tells, or after."""
    named = [fold(word) for word in words[at + 1 :] if fold(word) not in _ARTICLES]
    if len(named) < 2:
        return None
    phrase = " ".join(words[at + 1 :]).replace('"', "")
    asked = SearchQuery(text=f'title:"{_without_article(phrase)}"', mode=Mode.KEYWORD, page_size=_TITLES_READ)
    hits = run(asked, viewer, include_facets=False, detail=HitDetail.INDEX).hits
    near = []
    for hit in hits:
        title = [fold(word) for word in _WORD.findall(hit.title_text) if fold(word) not in _ARTICLES]
        if title == named:
            near = [hit]
            break
        if title[: len(named)] == named and len(named) >= _LEAST_SHARE * len(title):
            near.append(hit)
    if len(near) != 1:
        return None
    memory = visible_to(viewer).only("happened_at", "created_at").filter(pk=near[0].id).first()
    if memory is None:
        return None
    day = local_day(memory.happened_at or memory.created_at, viewer.timezone)
    is_end = fold(words[at]) in ("before", "until")
    label = f"{'until' if is_end else 'since'} {day.day} {day:%B} {day.year} (“{near[0].title_text}”)"
    return _Part(at, len(words), label, (("to" if is_end else "from", day.isoformat()),), is_sure=True)


def _without_article(phrase: str) -> str:
    first, _, rest = phrase.partition(" ")
    return rest if fold(first) in _ARTICLES and rest else phrase


# --- people -------------------------------------------------------------------------------------------------------


def _person_at(words: Sequence[str], at: int, viewer: Viewer) -> _Part | None:
    people = _people_of(viewer)
    is_named = fold(words[at]) in _BY and at + 1 < len(words)
    for begin in (at + 1, at) if is_named else (at,):
        for width in range(min(people.longest, len(words) - begin), 1, -1):
            found = people.by_name.get(_name_of(words[begin : begin + width]))
            if found is not None:
                return _of_person(found, at, begin + width, is_sure=True)
        (name,) = _name_of(words[begin : begin + 1])
        found = people.by_name.get((name,)) or people.by_word.get(name)
        if found is not None and name not in _NO_NAMES:
            is_written = words[begin][:1].isupper() and name not in _ALSO_WORDS
            part = _of_person(found, at if begin > at else begin, begin + 1, is_sure=begin > at or is_written)
            return replace(part, name=name)
    return None


def _people_of(viewer: Viewer) -> _People:
    return _people.get_or_make(viewer.project_ids, lambda: with_engine(lambda one: _read_people(one, viewer), viewer))


def _of_person(person: _Person, begin: int, end: int, *, is_sure: bool) -> _Part:
    label = f"{FACET[person.facet].label.lower()}: {person.label}"
    return _Part(begin, end, label, ((person.facet, person.value),), is_sure, weight=person.count)


def _name_of(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(fold(word).replace("’", "'").removesuffix("'s") for word in words)


def _read_people(engine: Engine, viewer: Viewer) -> _People:
    """Authors first, then agents, then people among the entities, who have a memory that the viewer sees."""
    by_name: dict[tuple[str, ...], _Person] = {}
    alone: dict[str, list[_Person]] = defaultdict(list)
    for person in _persons(engine, viewer):
        name = _name_of(_WORD.findall(person.label))
        if not name or name in by_name:
            continue
        by_name[name] = person
        if len(name) > 1 and person.facet != "agent":
            for word in {name[0], name[-1]}:
                alone[word].append(person)
    by_word = {word: some[0] for word, some in alone.items() if len(some) == 1 and len(word) > 2}
    return _People(by_name, by_word, max(map(len, by_name), default=0), _read_projects(viewer))


def _read_projects(viewer: Viewer) -> dict[tuple[str, ...], _Person]:
    rows = Project.objects.order_by("-pk").values_list("slug", "name")
    if viewer.project_ids is not None:
        rows = rows.filter(pk__in=viewer.project_ids)
    names = ((text, slug, name or slug) for slug, name in rows for text in (name, slug))
    return {
        _name_of(words): _Person("project", slug, name, 0)
        for text, slug, name in names
        if (words := _apart(_WORD.findall(text)))
    }


def _apart(words: Iterable[str]) -> list[str]:
    """Words with those apart that a dash or a dot joins, as in slugs."""
    return [part for word in words for part in re.split("[-.]", word) if part]


def _persons(engine: Engine, viewer: Viewer) -> Iterator[_Person]:
    try:
        corpus = corpus_counts(engine, viewer)
    except EngineTimeoutError:
        return
    counts = Counter({key: count for key, count in corpus.counts.items() if key[0] in ("author", "agent")})
    for facet in ("author", "agent"):
        for (key, value), count in counts.most_common(_NAMES_READ):
            if key == facet and isinstance(value, str) and value:
                yield _Person(facet, value, value, count)
    entities = Entity.objects.filter(entity_type="person").order_by("pk").values_list("pk", "name", "entity_type")
    for pk, name, kind in entities[:_NAMES_READ]:
        if count := corpus.counts.get(("entity", pk), 0):
            yield _Person("entity", f"{kind}:{name}", name, count)


def _ordinary_words(names: Iterable[str], weights: Mapping[str, int], viewer: Viewer) -> set[str]:
    """The single names that are words of many memories."""
    asked = sorted(names)
    sizes = totals([SearchQuery(text=name, mode=Mode.KEYWORD) for name in asked], viewer)
    return {
        name
        for name, size in zip(asked, sizes, strict=True)
        if size.total > _ORDINARY + _ORDINARY_SHARE * weights[name]
    }
