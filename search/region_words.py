"""Names for places on the map from the words of the texts there, where no value of a facet has one."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import log

from django.db.models.functions import Left

from memories.models import Memory
from search.facet_counts import log_likelihood
from search.facets import DEFAULT_STATES
from text.analysis import TOKEN, analyse_token, fold, is_stopword, is_unspaced
from web.sql import fetch_column

# Characters of a text that are read, and words in a name.
_READ, _WORDS = 300, 2
# Words that are looked at for each place, and the share of its texts that must have one.
_CANDIDATES, _LEAST_SHARE = 30, 0.12
_SHORTEST, _LONGEST = 3, 24
# Two letters of Hiragana are an ending or a particle rather than a word.
_INFLECTIONS = re.compile("^[\u3040-\u309f]+$")
_URL = re.compile(r"https?://\S+|www\.\S+")
# The words that say nothing in one of the languages whose lists Postgres has: nobody says in which one a text is.
_EMPTY_WORDS = """
SELECT word FROM unnest(%s::text[]) AS word WHERE EXISTS (
  SELECT FROM pg_ts_dict dictionary JOIN pg_ts_template template ON template.oid = dictionary.dicttemplate
  WHERE template.tmplname = 'snowball' AND ts_lexize(dictionary.oid::regdictionary, word) = '{}')"""


@dataclass(slots=True)
class _Words:
    """The number of texts with each word, of those with it in their title, and the spellings of the words."""

    texts: int = 0
    titles: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    spellings: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, words: Mapping[str, str]) -> None:
        self.texts += 1
        self.counts.update(words.keys())
        for key, spelling in words.items():
            self.spellings.setdefault(key, Counter())[spelling] += 1

    @property
    def common(self) -> list[str]:
        """The words that enough texts have to be in a name."""
        return [key for key, count in self.counts.items() if count >= max(2, _LEAST_SHARE * self.texts)]

    def spelling(self, key: str) -> str:
        """The usual one; of equally usual ones that with the fewest capitals."""
        return min(self.spellings[key].items(), key=lambda one: (-one[1], sum(map(str.isupper, one[0])), one[0]))[0]


def name_places(places: Sequence[Sequence[int]], others: Collection[int], projects: Collection[int]) -> list[str]:
    """A name for each place, given by some of the memories there: words that are more frequent in them than in those
    of the other places, and in some `others`. Only memories of the projects are read. Empty without any word.
    """
    ids = {*others, *(pk for place in places for pk in place)}
    memories = Memory.objects.filter(pk__in=ids, project_id__in=projects, state__in=DEFAULT_STATES)
    texts = memories.values_list("pk", "title", "summary", Left("content", _READ), "project__language")
    words = {
        pk: (dict(_words_of(f"{title}\n{summary}\n{content}", language)), dict(_words_of(title, language)))
        for pk, title, summary, content, language in texts
    }
    everywhere = _count_words(words.values())
    counted = [_count_words(words[pk] for pk in place if pk in words) for place in places]
    spread = Counter(key for own in counted for key in own.common)
    ranked = [
        _rank(own, everywhere, {key: log((1 + len(places)) / spread[key]) for key in own.common}) for own in counted
    ]
    # In lower case, as the lists have them.
    candidates = {own.spelling(key).lower() for own, keys in zip(counted, ranked, strict=True) for key in keys}
    empty = set(fetch_column(_EMPTY_WORDS, [sorted(candidates)]))
    names: list[str] = []
    for own, keys in zip(counted, ranked, strict=True):
        spelled = [spelling for key in keys if (spelling := own.spelling(key)).lower() not in empty]
        names.append(_name(spelled, names))
    return names


def _count_words(texts: Iterable[tuple[Mapping[str, str], Mapping[str, str]]]) -> _Words:
    found = _Words()
    for words, of_title in texts:
        found.add(words)
        found.titles.update(of_title.keys())
    return found


def _rank(own: _Words, everywhere: _Words, weights: Mapping[str, float]) -> list[str]:
    """The words of a place that say most about it first. `weights` are less for words of many places."""
    others = everywhere.texts - own.texts
    scored: list[tuple[float, int, str]] = []
    for key, weight in weights.items():
        count = own.counts[key]
        elsewhere = everywhere.counts[key] - count
        is_typical = count * others > elsewhere * own.texts
        evidence = log_likelihood(count, own.texts, elsewhere, others) if is_typical else 0.0
        # Titles name the subject.
        scored.append((evidence * weight * (1 + own.titles[key] / count), count, key))
    scored.sort(key=lambda one: (-one[0], -one[1], one[2]))
    return [key for *_, key in scored[:_CANDIDATES]]


def _name(words: Sequence[str], taken: Collection[str]) -> str:
    """The first words that are not parts of each other; with one more if another place has these."""
    chosen: list[str] = []
    for word in words:
        if not any(word.casefold() in one.casefold() or one.casefold() in word.casefold() for one in chosen):
            chosen.append(word)
        if len(chosen) >= _WORDS and ", ".join(chosen) not in taken:
            break
    return ", ".join(chosen)


def _words_of(text: str, language: str) -> Iterator[tuple[str, str]]:
    """The words of a text by the key of their equals. Scripts without spaces give pairs of characters."""
    before = None
    for match in TOKEN.finditer(_URL.sub(" ", text)):
        raw = analyse_token(match[0], language)
        if not raw.terms:
            continue
        if is_unspaced(raw):
            pair = before[0] + match[0] if before is not None and before.end() == match.start() else ""
            if pair and not _INFLECTIONS.match(pair):
                yield pair, pair
            before = match
            continue
        before = None
        spelling = match[0].strip("-@$.")
        letters = sum(map(str.isalpha, spelling))
        if not _SHORTEST <= len(spelling) <= _LONGEST or letters * 2 <= len(spelling):
            continue
        if not is_stopword(fold(spelling), language):
            yield (raw.terms[0][0] if len(raw.terms) == 1 else fold(spelling)), spelling
