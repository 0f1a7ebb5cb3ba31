"""Filters typed into the text: what they stand for, what stays text, and the way back."""

from urllib.parse import parse_qsl

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from search.facets import FACET
from search.query import SearchQuery
from search.typed import as_text, understand


def query_of(querystring):
    query, problems = SearchQuery.read(parse_qsl(querystring, keep_blank_values=True))
    assert not problems
    return query


def read(text, **given):
    return understand(SearchQuery(text=text, **given))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("tag:clock sync", "q=sync&tag=clock"),
        ("tag:clock type:fix -sync before:2024", "q=-sync&type=fix&tag=clock&to=2023-12-31"),
        ('project:"Boat yard" -type:fix keel', "q=keel&project=Boat+yard&-type=fix"),
        ("tags:a tag:b types:fix", "type=fix&tag=a&tag=b"),
        ("after:2024-02", "from=2024-03-01"),
        ("before:2024-03-01", "to=2024-02-29"),
        ("on:2024-02", "from=2024-02-01&to=2024-02-29"),
        ("from:2024 to:2024-06", "from=2024-01-01&to=2024-06-30"),
        ("since:7d no:category has:tag is:archived", "state=archived&has=tag&no=category&since=7d"),
        ("sort:oldest mode:keyword tag.all:1 tag:a tag:b", "mode=keyword&tag=a&tag=b&tag.all=1&sort=oldest"),
        ('tag:"say \\"hi\\" \\\\"', "tag=say+%22hi%22+%5C"),
    ],
)
def test_typed_filters_are_parameters(text, meant):
    understood = read(text)
    assert understood.query.querystring() == query_of(meant).querystring()
    assert (understood.problems, understood.unread) == ((), ())
    assert len(understood.typed) >= 1


@pytest.mark.parametrize(
    "text",
    [
        "https://example.org std::vector 12:30 a: b title:clock foo:bar",
        '"tag:clock" "a tag:b c" title:"foo tag:x"',
        "q:tea page:3 limit:5 text:x",
        "x-tag:a +tag:a tag: :tag",
        " ".join(["word"] * 41) + " tag:clock",
    ],
)
def test_other_colons_quotes_and_prose_stay_text(text):
    understood = read(text)
    assert understood.query.text == text
    assert (understood.typed, understood.unread) == ((), ())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("from:bob", "is not a date"),
        ("before:soon", "write a year, a month or a day"),
        ("after:2024-03-01T14:00", "write a year, a month or a day"),
        ("since:ever", "is neither a time span nor a date"),
        ("has:color", "is not a facet"),
        ("-since:7d", "it cannot be excluded"),
        ("from:0000", "is not a date"),
        ("before:2024-13", "write a year, a month or a day"),
    ],
)
def test_value_that_is_not_allowed_stays_text_with_the_reason(text, reason):
    understood = read(f"tea {text}")
    assert understood.query.text == f"tea {text}"
    ((part, why),) = understood.unread
    assert part == text
    assert reason in why


def test_typed_filter_joins_the_others_and_takes_the_place_of_what_contradicts_it():
    given_ = query_of("tag=a&-tag=b&type=fix&since=7d&sort=oldest&page=3")
    changed = understand(given_.replace(text="tag:b -type:fix from:2024 sort:title")).query
    assert changed.querystring() == "-type=fix&tag=a&tag=b&from=2024-01-01&sort=title".replace(
        "-type=fix&tag=a&tag=b", "tag=a&tag=b&-type=fix"
    )


_WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=30)
_VALUES = _WORDS.filter(str.strip)
_PAIRS = st.one_of(
    st.tuples(st.sampled_from([*FACET, *(f"-{key}" for key in FACET)]), _VALUES),
    st.tuples(st.sampled_from(["has", "no"]), st.sampled_from(list(FACET))),
    st.sampled_from(
        [
            *(("from", "2024-01-01"), ("to", "2026-03-01T14:00+00:00"), ("updated_since", "7d"), ("tag.all", "1")),
            *(("recalled_since", "30d"), ("-recalled_since", "ever")),
            *(("subcategories", "0"), ("min_similarity", "0.4"), ("sort", "oldest"), ("tz", "Europe/Berlin")),
        ]
    ),
)
_TEXTS = st.lists(
    st.one_of(
        _WORDS, st.sampled_from(["tag:a", '-type:"b c"', '"tag:a b"', "from:bob", "word " * 45, '"', "\\", "-x"])
    ),
    max_size=5,
).map(" ".join)


@settings(max_examples=500)
@example('"', [("tag", "a b")])
@example("word " * 45, [("tag", "a b"), ("-tag", 'say "hi"')])
@given(_TEXTS, st.lists(_PAIRS, max_size=6))
def test_query_as_text_is_understood_as_the_same_query(text, pairs):
    query = understand(SearchQuery.read([("q", text), *pairs])[0]).query
    again = understand(SearchQuery.read([("q", as_text(query))])[0])
    assert again.query == query
    assert again.problems == ()


def test_what_was_refused_stays_so_until_it_is_typed_anew():
    asked, _ = SearchQuery.read([("since", "soon"), ("tagg", "x")])
    assert understand(asked.replace(text="tag:a")).query.refused == (("tagg", "x"), ("since", "soon"))
    assert understand(asked.replace(text="since:7d")).query.refused == (("tagg", "x"),)
