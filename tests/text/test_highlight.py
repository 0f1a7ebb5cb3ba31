import pytest

from text.analysis import Pattern
from text.highlight import matched_spans, plain_text, snippet
from text.query_syntax import parse_text


def test_spans_cover_whole_matches():
    assert matched_spans("use asyncio.run now", (Pattern(("asyncio.run",)),), "english") == [(4, 15)]
    assert matched_spans("green tea, tea", (Pattern(("green", "tea"), (1,)),), "english") == [(0, 5), (6, 9)]


def test_spans_cover_the_whole_word_that_a_prefix_starts():
    assert matched_spans("connected, reconnected", (Pattern(("conn",), prefix=True),), "english") == [(0, 9)]
    phrase = Pattern(("green", "te"), (1,), prefix=True)
    assert matched_spans("green teapot, teapot, greenish tea", (phrase,), "english") == [(0, 5), (6, 12)]
    both = (Pattern(("te",), prefix=True), Pattern(("te",)))
    assert matched_spans("te teak", both, "english") == [(0, 2), (3, 7)]


def test_snippet_shows_the_match_and_marks_it():
    text = "filler word " * 60 + "the kettle valve broke " + "more words " * 60
    cut = snippet(text, matched_spans(text, (Pattern(("kettl",)), Pattern(("valv",))), "english"), 200)
    assert [segment.text for segment in cut if segment.marked] == ["kettle", "valve"]
    assert cut[0].text.startswith("…")
    assert cut[-1].text.endswith("…")
    assert len("".join(segment.text for segment in cut)) < 260


def test_snippet_is_where_most_distinct_words_stand():
    text = "kettle kettle kettle " + "filler word " * 60 + "the kettle valve broke " + "more words " * 60
    cut = snippet(text, matched_spans(text, (Pattern(("kettl",)), Pattern(("valv",))), "english"), 200)
    assert [segment.text for segment in cut if segment.marked] == ["kettle", "valve"]


def test_spans_are_those_of_the_patterns_asked_for_now():
    kettle, valve = (Pattern(("kettl",)),), (Pattern(("valv",)),)
    assert matched_spans("kettle valve", kettle, "english") == [(0, 6)]
    assert matched_spans("kettle valve", valve, "english") == [(7, 12)]
    assert matched_spans("kettle valve", valve, "simple") == []


def test_marks_of_lines_are_dropped_where_one_follows_another():
    assert plain_text("# Kettle\n> boils\n-\n## twice\n  3) a - b\n#tag") == "Kettle boils twice a - b #tag"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("See [[Tea|the tea]], ![[a/Tea#Hot]] and ![[pot.PNG|300]].", "See the tea, a/Tea and ."),
        ("> [!tip]- Title\n> Body", "Title Body"),
        ("| Flour | g |\n|---|:-:|\n| Rye | 1 |\n\na | b", "Flour g Rye 1 a | b"),
        ("- [ ] buy ==rye== now\n- [x] done", "buy rye now done"),
        ("a %%hidden\nwords%% b 5%% c 6%%", "a b 5%% c 6%%"),
        ("x==1 and y==2 [ ] a[!b]", "x==1 and y==2 [ ] a[!b]"),
        ("[[", "[["),
    ],
)
def test_marks_of_notes_are_left_out(text, shown):
    assert plain_text(text) == shown


@pytest.mark.parametrize("mark", ["%%", "==a", "|", "[[", "![[a", "\n|", "[!"])
def test_many_marks_are_read_soon(mark):
    assert plain_text(mark * 20_000) is not None


def test_highlights_stand_at_words_beside_marks_of_notes():
    text = plain_text("> [!tip] Kettle\n> ==valve== of the [[Kettle|big kettle]] %%kettle%%")
    spans = matched_spans(text, parse_text("kettle").positive, "english")
    assert (text, [text[start:end] for start, end in spans]) == ("Kettle valve of the big kettle", ["Kettle", "kettle"])


@pytest.mark.parametrize(
    ("text", "query", "marked"),
    [
        pytest.param("Ein re\u0301sume\u0301, kurz", "résumé", ["re\u0301sume\u0301"], id="decomposed"),
        pytest.param("Stra\u00dfe und STRASSE", "straße", ["Straße", "STRASSE"], id="of another length in capitals"),
        pytest.param("im Kar\u00adren\u00adfeld", "karrenfeld", ["Kar\u00adren\u00adfeld"], id="soft hyphens"),
        pytest.param("ﾃﾞｰﾀを", "データ", ["ﾃﾞｰﾀ"], id="half width"),
        pytest.param("o ﬁnal O’Connor’s", "o'connor", ["O’Connor’s"], id="apostrophe"),
        pytest.param("see app/server.py:88 or server.py", "server.py", ["app/server.py:88", "server.py"], id="name"),
        pytest.param("백업했다", "백업", ["백업"], id="hangul"),
        pytest.param("done ❤\ufe0f here", "❤", ["❤\ufe0f"], id="emoji"),
        pytest.param("at 50bcb4f2e10a, 50bcb4", "50bcb4f", ["50bcb4f2e10a"], id="commit"),
    ],
)
def test_marks_stand_at_the_characters_that_are_written(text, query, marked):
    spans = matched_spans(text, parse_text(query).positive, "english")
    assert [text[start:end] for start, end in spans] == marked
