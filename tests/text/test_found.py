"""Every word of a text finds it, as it stands, in any normal form, in any case and with either apostrophe."""

import unicodedata
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text.analysis import document_vector, index_terms, languages, to_tsvector, tokens
from text.highlight import matched_spans
from text.query_syntax import parse_text

_SCRIPTS = {
    "latin": "abcXYZéÜñçøÅßłđæœıﬁǆ",
    "vietnamese": "ếộữắđƠ",
    "greek": "αΒγΣςώΐᾳ",
    "cyrillic": "жШйёЇї",
    "armenian": "աԲև",
    "hebrew": "שׁלוֹםאּ",
    "arabic": "مُحدَّثةأإـ",
    "devanagari": "कि्षज़ताॐ",
    "bengali": "বাংলোয়",
    "tamil": "தமிழ்ொ",
    "thai": "กำี้ขไ",
    "lao": "ລາວໍ",
    "khmer": "ក្ខាំ",
    "burmese": "မြန်မာ",
    "georgian": "აბჯᲐ",
    "ethiopic": "ሀለሐ",
    "hangul": "데이터백업했ㄱ",
    "kana": "がパーんﾃﾞｰﾀﾊﾟ",
    "han": "東京湾𠮷神",
    "emoji": "🚀✅❤👍🏽🇩🇪👩\u200d👧",
    "digits": "0123abf９²٣",
}
_INVISIBLE = "\u00ad\u200b\u200c\u200d\u200e\u2060\ufeff\u0301"
_JOINTS = [".", "/", "-", "_", "::", ":", "@", "\\", "'", "\u2019", "", "__", "._", "\u2011"]


def _piece(script):
    letters = st.text(_SCRIPTS[script], min_size=1, max_size=6)
    return st.tuples(letters, st.one_of(st.just(""), st.text(_INVISIBLE, max_size=1))).map("".join)


PIECES = st.one_of(*map(_piece, _SCRIPTS))
NAMES = st.tuples(
    st.sampled_from(["", "", "", "@", "#", "$", ".", "--", "_", "__"]),
    PIECES,
    st.lists(st.tuples(st.sampled_from(_JOINTS), PIECES).map("".join), max_size=4).map("".join),
    st.sampled_from(["", "", "", "++", "#", "'s", "\u2019S", "__", ":42"]),
).map("".join)
TEXTS = st.lists(NAMES, min_size=1, max_size=6)
LANGUAGES = st.sampled_from(["english", "simple", "german", "french", "russian", "hindi", "arabic", "turkish"])


def forms_of(word):
    """The word as others write it."""
    forms = [word, word.replace("'", "\u2019"), word.replace("\u2019", "'"), word.upper(), word.lower(), word.title()]
    return dict.fromkeys(unicodedata.normalize(name, form) for form in forms for name in ("NFC", "NFD")) | {word: None}


@given(TEXTS, LANGUAGES)
def test_every_word_is_found_as_it_stands_and_as_others_write_it(words, language):
    index = index_terms([(" ".join(words), "D")], language)
    for word in words:
        for form in forms_of(word):
            query = parse_text(form, language)
            # A dash before anything but a flag excludes.
            assert query.is_empty or query.excluded or query.matches(index), (form, query.positive, sorted(index))


@given(TEXTS, LANGUAGES)
def test_what_is_found_is_marked_from_letter_to_letter(words, language):
    text = f"({'), ('.join(words)})"
    for word in words:
        query = parse_text(word, language)
        spans = matched_spans(text, query.positive, language)
        start = text.index(f"({word})") + 1
        within = [(begin, end) for begin, end in spans if begin < start + len(word) and end > start]
        assert within or not query.positive, (text, word, query.positive)
        assert all(not unicodedata.combining(text[end]) for _, end in spans), (text, word, spans)


@given(TEXTS.map(" ".join), LANGUAGES)
def test_terms_of_a_document_are_those_of_its_tokens(text, language):
    placed = {(term, at) for token in tokens(text, language, 1) for term, at in token.terms}
    assert placed == {(term, at) for term, places in index_terms([(text, "D")], language).items() for at, _ in places}


@given(st.lists(TEXTS.map(" ".join), min_size=1, max_size=4), LANGUAGES, st.booleans())
def test_vector_of_a_document_has_its_terms(texts, language, is_joined):
    fields = list(zip(texts, "ADBC", strict=False))
    made = document_vector(fields, language, is_joined=is_joined)
    expected = to_tsvector(index_terms(fields, language, is_joined=is_joined))
    assert places_in(made) == places_in(expected)


def places_in(vector):
    """Each term with each of its places."""
    entries = (entry.rpartition("':") for entry in vector.split(" '"))
    return {(term.removeprefix("'"), place) for term, _, places in entries for place in places.split(",")}


@pytest.mark.parametrize("language", languages())
def test_no_language_makes_an_empty_term_of_a_word(language):
    index = index_terms([(" ".join(chain.from_iterable(forms_of(" ".join(_SCRIPTS.values())))), "D")], language)
    assert "" not in index
    assert all(not any(map(str.isspace, term)) for term in index)


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        pytest.param("GitHub's limits", ["GitHub's", "github’s", "GITHUB'S", "GitHub", "github"], id="possessive"),
        pytest.param("O’Connor and James's boss's", ["o'connor", "OConnor", "connor", "James", "boss"], id="names"),
        pytest.param("iPhone's, MacBook’s", ["iphone", "IPHONE'S", "macbook's", "MacBook"], id="humps"),
        pytest.param("l'équipe, qu'il, l’or", ["équipe", "l’équipe", "L'ÉQUIPE", "lequipe", "il", "or"], id="elision"),
        pytest.param("don't, it's", ["don’t", "dont", "DON'T", "it's", "IT’S"], id="contraction"),
        pytest.param(
            unicodedata.normalize("NFD", "Résumé über Größe"), ["Résumé", "resume", "größe", "GRÖSSE"], id="nfd"
        ),
        pytest.param("مُحدَّثة، مـــهم", ["محدثة", "مهم"], id="arabic"),
        pytest.param("שָׁלוֹם", ["שלום"], id="hebrew"),
        pytest.param("ﾃﾞｰﾀﾍﾞｰｽ ガス", ["データベース", "データ", "ｶﾞｽ"], id="half width"),
        pytest.param(
            "Donau\u00addampf smørrebrød Łódź œuvre ışık",
            ["Donaudampf", "smorrebrod", "lodz", "oeuvre", "isik"],
            id="letters",
        ),
        pytest.param("می\u200cخواهم", ["میخواهم", "می\u200cخواهم"], id="joiners"),
        pytest.param("데이터베이스를 백업했다", ["데이터베이스", "백업", "데이터베이스를"], id="hangul"),
        pytest.param("ฐานข้อมูลใหม่", ["ข้อมูล", "ฐานข้อมูล"], id="thai"),
        pytest.param("𠮷野家で", ["野家", "𠮷野"], id="rare han"),
        pytest.param("done ✅ 👍🏽 ❤️ 👩\u200d👩\u200d👧", ["✅", "👍", "❤", "👩\u200d👩\u200d👧", "👩"], id="emoji"),
        pytest.param(
            "agent_tools/server.py:88",
            ["server.py", "server.py:88", "agent_tools/server.py", "tools/server"],
            id="position",
        ),
        pytest.param(
            "/home/me/app/index.js:12:7", ["index.js", "app/index.js", "me/app/index.js:12", "home/me"], id="column"
        ),
        pytest.param(
            "https://github.com/acme/tool/blob/main/src/my-app/App.tsx#L10",
            ["acme/tool", "github.com/acme/tool", "tool/blob/main/src", "App.tsx", "src/my-app/app.tsx", "my-app"],
            id="address",
        ),
        pytest.param(
            "db.prod.example.internal:5432", ["example.internal", "prod.example", "internal:5432", "5432"], id="host"
        ),
        pytest.param(f"in 50bcb4f2e1{'0a' * 15}.", ["50bcb4f", "50BCB4F2", "(50bcb4f..)"], id="commit"),
        pytest.param(
            f"acme/tool@50bcb4f2e1{'0a' * 15}", ["tool@50bcb4f", "acme/tool@50bcb4f2"], id="commit of a project"
        ),
        pytest.param(
            "v20.11.1 python3.11 3.13.0rc1 1.5GB",
            ["20.11.1", "20.11", "3.11", "python3.11", "3.13.0", "1.5", "v20.11"],
            id="version",
        ),
        pytest.param(
            "@angular/material .env.local",
            ["angular/material", "@angular/material", ".env", "env.local", "@angular"],
            id="sigils",
        ),
        pytest.param(
            "MAX_RETRY_COUNT", ["MAX_RETRY", "retry_count", "max_retry_count", "MAX_RETRY_COUNT"], id="snake case"
        ),
        pytest.param(
            "HTTPServerError, XMLHttpRequest",
            ["ServerError", "servererror", "HTTPServer", "httprequest"],
            id="camel case",
        ),
        pytest.param("e-mail, x-ray, UTF-8", ["email", "E-Mail", "xray", "utf8"], id="hyphens"),
        pytest.param(
            "obj.__init__ self._buffer Foo::Bar", ["__init__", "_buffer", "obj.__init__", "foo::bar"], id="dunder"
        ),
    ],
)
def test_parts_and_other_spellings_find_it(text, queries):
    index = index_terms([(text, "D")])
    assert [query for query in queries if not parse_text(query).matches(index)] == []


@pytest.mark.parametrize(
    ("text", "query"),
    [
        pytest.param("कोई तुम बात यहाँ", "किताब", id="letters without their vowels"),
        pytest.param("カラス", "ガラス", id="voicing"),
        pytest.param("src/app server.py", "app/server.py", id="parts of two names"),
        pytest.param("example.com/internal", "example.internal", id="other signs"),
        pytest.param("50bcb4a", "50bcb4f", id="another commit"),
        pytest.param("50bcb4f2e1", '"50bcb4f"', id="a commit in quotes"),
        pytest.param("defaced", "deface1", id="a word of hexadecimal letters"),
        pytest.param("bench-00000042", "bench-0000004", id="numbers of ids"),
    ],
)
def test_other_words_do_not_find_it(text, query):
    assert not parse_text(query).matches(index_terms([(text, "D")]))
