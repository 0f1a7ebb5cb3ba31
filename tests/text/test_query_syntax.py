import pytest

from search.engines.sql import tsquery
from text.analysis import Pattern, index_terms, languages, prefix_term
from text.query_syntax import parse_text, words_needed


def matches(query, text, title=""):
    return parse_text(query).matches(index_terms([(title, "A"), (text, "D")]))


@pytest.mark.parametrize(
    ("count", "need"), [(1, 1), (2, 2), (3, 2), (6, 2), (7, 3), (15, 3), (16, 4), (31, 4), (32, 5), (64, 6)]
)
def test_words_needed_follow_the_design(count, need):
    assert words_needed(count) == need


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        pytest.param("tea", "Green TEA", True, id="case is folded"),
        pytest.param("brewing", "we brewed", True, id="stems meet"),
        pytest.param("tea milk", "tea alone", False, id="both of two words"),
        pytest.param("tea milk sugar", "tea and sugar", True, id="two of three"),
        pytest.param("tea milk sugar", "tea and honey", False, id="one of three is not enough"),
        pytest.param("tea -milk", "tea with milk", False, id="minus excludes"),
        pytest.param("tea -milk", "tea with lemon", True, id="minus lets others pass"),
        pytest.param("-milk", "anything", True, id="only an exclusion matches the rest"),
        pytest.param("+sugar tea milk honey lemon", "tea and milk", False, id="plus is always obeyed"),
        pytest.param('"green tea"', "green tea", True, id="phrase"),
        pytest.param('"green tea"', "tea, green", False, id="phrase in another order"),
        pytest.param('-"green tea" tea', "black tea", True, id="excluded phrase"),
        pytest.param('-"green tea" tea', "green tea", False, id="excluded phrase excludes"),
        pytest.param("tea or coffee", "coffee", True, id="or"),
        pytest.param("tea OR coffee", "milk", False, id="or of two absent"),
        pytest.param("tea milk or coffee", "tea", False, id="or binds looser than words"),
        pytest.param("or", "either or", True, id="or alone is a word"),
        pytest.param("the kettle", "kettle", True, id="stopwords are not counted"),
        pytest.param("is it (the) kettle, then?", "kettle", True, id="nor are stopwords with marks around them"),
        pytest.param("the", "the kettle", True, id="a stopword alone is"),
        pytest.param("a++ kettle", "a kettle", False, id="a stopword with symbols is a name"),
        pytest.param("C++", "we use C++ here", True, id="C++"),
        pytest.param("C++", "we use C here", False, id="C++ is not C"),
        pytest.param("C", "we use C++ here", True, id="C is a part of C++"),
        pytest.param("rm -rf", "never rm -rf that", True, id="rm -rf"),
        pytest.param("rm -rf", "rm the file", False, id="rm alone is not rm -rf"),
        pytest.param('rm -"rf"', "rm the file", True, id="a quoted flag is excluded"),
        pytest.param("--full", "descale --full now", True, id="long flag"),
        pytest.param("--full", "the full cup", False, id="a flag is not its word"),
        pytest.param("asyncio.run", "use asyncio.run(main())", True, id="dotted name"),
        pytest.param("asyncio.run", "asyncio can run", False, id="dotted name is kept whole"),
        pytest.param("Lock.acquire", "threading.Lock.acquire blocks", True, id="the end of a dotted name"),
        pytest.param("__init__", "def __init__(self)", True, id="dunder"),
        pytest.param("__init__", "init the pump", False, id="dunder is kept whole"),
        pytest.param("foo_bar", "set foo_bar", True, id="snake case"),
        pytest.param("foo_bar", "foo bar", False, id="snake case is kept whole"),
        pytest.param("bar", "set foo_bar", True, id="a part of snake case"),
        pytest.param("CVE-2023-27043", "fixes CVE-2023-27043.", True, id="CVE"),
        pytest.param("CVE-2023-27043", "fixes CVE-2023-27044.", False, id="another CVE"),
        pytest.param("gh-101000", "(gh-101000)", True, id="gh number"),
        pytest.param("state of the art", "a state-of-the-art winch", True, id="hyphens and words meet"),
        pytest.param("state-of-the-art", "state of the art", True, id="words and hyphens meet"),
        pytest.param("mattooltip", "the MatTooltip", True, id="camel case as one word"),
        pytest.param("tooltip", "the MatTooltip", True, id="a hump of camel case"),
        pytest.param("3.8", "in 3.8.0a1", True, id="the start of a version"),
        pytest.param("motor.ts", "src/lib/winch/motor.ts", True, id="the end of a path"),
        pytest.param("src/lib", "src/lib/winch/motor.ts", True, id="the start of a path"),
        pytest.param("cafe", "im Café", True, id="accents are folded"),
        pytest.param("東京", "東京湾の船", True, id="characters in a row"),
        pytest.param("京東", "東京湾の船", False, id="characters in another order"),
        pytest.param("don't", "dont", True, id="apostrophes are dropped"),
    ],
)
def test_query_matches_text(query, text, expected):
    assert matches(query, text) is expected


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        pytest.param("conn*", "the connection broke", True, id="a prefix"),
        pytest.param("CONN*", "the connection broke", True, id="its case is folded"),
        pytest.param("conn*", "in Connacht", True, id="of any word"),
        pytest.param("conn*", "a reconnected pump", False, id="not the middle of a word"),
        pytest.param("connections*", "it connects", True, id="its stem is looked for"),
        pytest.param("skies*", "skiesville", True, id="unless the word does not start with its stem"),
        pytest.param("the*", "a theorem", True, id="never a stopword"),
        pytest.param("tea -conn*", "tea and a connection", False, id="excluded prefix"),
        pytest.param("+conn* tea milk sugar", "tea and milk", False, id="required prefix"),
        pytest.param('"connection po*"', "a connection pool", True, id="the last word of a phrase"),
        pytest.param('"connection po*"', "the pool of a connection", False, id="in its place"),
        pytest.param('"conn* pool"', "a connection pool", False, id="not another word of a phrase"),
        pytest.param("asyncio.ru*", "use asyncio.run(main())", True, id="a dotted name"),
        pytest.param("asyncio.ru*", "asyncio runs", False, id="which is kept whole"),
        pytest.param("foo_*", "set foo_bar", True, id="snake case"),
        pytest.param("MatTool*", "the MatTooltip", True, id="camel case"),
        pytest.param("state-of-the-ar*", "state of the arts", True, id="the last of words with hyphens"),
        pytest.param("3.8*", "in 3.8.0a1", True, id="a version"),
        pytest.param("--fu*", "descale --full now", True, id="a flag"),
        pytest.param("-fu*", "descale --full now", False, id="with one dash it is excluded"),
        pytest.param("東京*", "東京湾の船", True, id="characters are found anywhere as they are"),
        pytest.param("c*", "the crane", False, id="one letter is a word"),
        pytest.param("c*", "in C", True, id="and found as one"),
        pytest.param("co*n", "the cone", False, id="a star inside of a word is none"),
        pytest.param("tea *", "tea", True, id="a lone star is ignored"),
        pytest.param("**tea**", "a teapot", False, id="bold text is no prefix"),
    ],
)
def test_prefix_matches_text(query, text, expected):
    assert matches(query, text) is expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param("title:valve", True, id="a word of the title"),
        pytest.param("Title:Valves", True, id="in any case and form"),
        pytest.param("title:spring", False, id="not of the text"),
        pytest.param('title:"kettle valve"', True, id="a phrase"),
        pytest.param('title:"valve kettle"', False, id="in its order"),
        pytest.param('title:"valve stuck"', False, id="that does not go on in the text"),
        pytest.param("title:ket*", True, id="a prefix"),
        pytest.param("title:spr*", False, id="a prefix in the text alone"),
        pytest.param('title:"kettle va*"', True, id="a phrase that ends in a prefix"),
        pytest.param("+title:spring kettle", False, id="required"),
        pytest.param("kettle -title:spring", True, id="excluded, in the text alone"),
        pytest.param("spring -title:kettle", False, id="excluded"),
        pytest.param('spring -title:"kettle valve"', False, id="excluded phrase"),
        pytest.param("title:spring kettle stuck", True, id="it is one of the words"),
        pytest.param('title:"broken spring" kettle stuck', False, id="a phrase must be there"),
        pytest.param("title:spring or kettle", True, id="or"),
        pytest.param('"title:foo"', True, id="in quotes it is the text itself"),
        pytest.param('"title:valve"', False, id="which must then be there"),
        pytest.param("title:foo", False, id="without quotes it is not"),
        pytest.param("tags:foo", True, id="other names in front are text"),
        pytest.param("title::size", True, id="a name of C++"),
    ],
)
def test_title_is_asked_for_by_name(query, expected):
    text = "Stuck: title:foo, tags:foo and title::size. A broken spring of the kettle."
    assert matches(query, text, title="Kettle valve") is expected


@pytest.mark.parametrize("language", languages())
def test_no_stem_makes_a_prefix_of_one_letter(language):
    for word in ("as", "es", "aed", "das", "eine", "ata", "pt", "ах"):
        assert len(prefix_term(f"{word}*", language)) > 1


@pytest.mark.parametrize(
    ("query", "compiled"),
    [
        ("tea", "'tea'"),
        ("conn*", "'conn':*"),
        ("title:tea", "'tea':A"),
        ("title:conn*", "'conn':*A"),
        ('"event lo*"', "'event' <1> 'lo':*"),
        ('title:"event lo*"', "'event':A <1> 'lo':*A"),
        ("title:x':*|!y*", "'x':A"),
    ],
)
def test_patterns_are_compiled_with_their_terms_quoted(query, compiled):
    assert tsquery(parse_text(query).positive[0]) == compiled


def test_description_says_what_was_needed():
    assert parse_text("tea milk sugar").describe() == "at least 2 of the 3 words"
    assert parse_text('"green tea" or coffee -milk').describe() == "the phrase, or the word, and no excluded word"


def test_positive_patterns_are_what_a_match_may_show():
    assert Pattern(("milk",)) not in parse_text("tea -milk").positive
    assert parse_text("tea tea").positive == (Pattern(("tea",)),)
    assert parse_text("tea tea -milk").repeated == ((Pattern(("tea",)), 2),)


PROSE = "Why does the job stop? " + " ".join(f"step{n}" for n in range(40))


def test_long_text_is_read_without_operators():
    query = parse_text(f"{PROSE} -verbose +now or title:later conn*")
    assert (query.required, query.excluded, query.flags, len(query.groups)) == ((), (), (), 1)
    words = [pattern.terms for pattern in query.groups[0].words]
    assert {("-verbose",), ("now",), ("title:later",), ("conn",)} <= set(words)
    assert not any(pattern.prefix or pattern.field for pattern in query.positive)


def test_phrase_of_several_words_is_required_in_a_long_text_too():
    (group,) = parse_text(f'{PROSE} says "connection refused" and "timeout"').groups
    assert group.phrases == (Pattern(("connect", "refus"), (1,)),)
    assert Pattern(("timeout",)) in group.words


def test_the_most_repeated_and_then_the_longest_words_stand_for_a_very_long_text():
    query = parse_text(" ".join(f"w{n}" for n in range(100)) + " tea" * 3 + " connectivity" * 2)
    assert (len(query.groups[0].words), query.left_out) == (64, 38)
    assert query.repeated == ((Pattern(("tea",)), 3), (Pattern(("connect",)), 2))
    assert query.describe() == "at least 6 of the 64 words"


def test_long_text_in_a_script_without_spaces_is_searched_for_by_its_pairs():
    sentence = "記憶の断面を見せる道具です"
    query = parse_text(sentence * 4)
    assert Pattern(("断", "面"), (1,)) in query.groups[0].words
    assert query.matches(index_terms([(f"前書き{sentence}", "D")]))


@pytest.mark.parametrize(
    "query",
    [
        pytest.param("\uff9e", id="alone"),
        pytest.param("tea \uff9e*", id="a prefix"),
        pytest.param("-\uff9e", id="excluded"),
        pytest.param('"\uff9e"', id="a phrase"),
        pytest.param("tea \uff9e-\uff9e*", id="with a hyphen"),
    ],
)
def test_a_mark_that_folds_to_nothing_is_no_word(query):
    assert index_terms([("a \uff9e b", "D")]).keys() == {"a", "b"}
    assert all(term for pattern in parse_text(query).positive for term in pattern.terms)
