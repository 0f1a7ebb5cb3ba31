"""Builders of hand-made results and of their contexts."""

from dataclasses import replace
from datetime import UTC, datetime

from explorer.explore.answer import PageAnswer
from explorer.explore.page import ExplorerContext
from explorer.page_query import PageQuery
from search.facets import FacetValue
from search.ranking import Ranked
from search.result import CategoryRef, CorpusCounts, Hit, SearchResult
from text.highlight import MarkedText

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
CORPUS = CorpusCounts(total=1_200, counts={("tag", "tea"): 340, ("type", "fix"): 60})


def query_of(querystring=""):
    pairs = [tuple(part.split("=", 1)) for part in querystring.split("&") if part]
    query, problems = PageQuery.read(pairs)
    assert not problems
    return query


def hit(**changes):
    return replace(
        Hit(
            id=7,
            project="tea",
            memory_type="bugfix",
            title=(MarkedText("The ", marked=False), MarkedText("kettle", marked=True)),
            snippet=(MarkedText("It leaks.", marked=False),),
            created_at=datetime(2026, 5, 3, 23, 30, tzinfo=UTC),
            updated_at=datetime(2026, 5, 4, tzinfo=UTC),
            state="active",
            tags=("tea", "hot"),
            categories=(CategoryRef("kitchen/oven", ("Kitchen", "Oven")),),
            authors=("Mio", "Ben", "Ada"),
            agent="codex",
            source="git",
            source_uri="",
            external_id="t7",
            pinned=False,
            importance=None,
            superseded_by=None,
            score=None,
            why=Ranked(7),
        ),
        **changes,
    )


def tag_values(*counts, **flags):
    return tuple(FacetValue(f"tag{n}", f"tag{n}", count, ref=f"tag{n}") for n, count in enumerate(counts))


def answer(query, **changes):
    return SearchResult(**{"query": query, "total": 12, "hits": (hit(),), "matched_by": "", "facets": (), **changes})


def context_of(querystring="", zone=UTC, corpus=CORPUS, opened=(), **changes):
    query = query_of(querystring)
    result = answer(query, corpus=corpus, **changes)
    return ExplorerContext(query, PageAnswer(result), reader_zone=zone, now=NOW, opened=opened)


def panel_of(facet, querystring="", corpus=CORPUS):
    return context_of(querystring, corpus=corpus, facets=(facet,)).panels[0]
