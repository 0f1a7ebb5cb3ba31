"""Hypothesis strategies for queries over the hand-written corpus, and comparable results."""

import os

from hypothesis import strategies as st

from search.facets import FACET, FACETS, STATES

# The generated queries of a test that compares each with the naive counter. `make test-all` draws more.
EXAMPLES = int(os.environ.get("EXAMPLES", "50"))
# More than the values of any facet.
EVERYTHING = 10_000

WORDS = [
    "tea",
    "kettle",
    "boat",
    "crane",
    "the",
    "guests",
    "C++",
    "rm -rf",
    "asyncio.run",
    "foo_bar",
    '"green tea"',
    "or",
]
WORDS += [
    "-tea",
    "+boat",
    "東京",
    "cafe",
    "state-of-the-art",
    "dock",
    "wet",
    "motor.ts",
    '-"the dock"',
    "wood",
    "Check",
    "3.8",
]
WORDS += [
    "te*",
    "gu*",
    "the*",
    "c*",
    "-cr*",
    "+bo*",
    '"the do*"',
    "kettle.va*",
    "title:tea",
    "title:te*",
    "title:guests",
    "+title:boat",
    "-title:dock",
    'title:"green tea"',
    '-title:"on the bo*"',
    "title:",
]

# Names and aliases of tags, categories, concepts and entities; some are not in any text.
NAMES = ["kettle", "Stove", "brewing", "yard", "maintenance", "HOSPITALITY", "mio", "slings", "Kitchen", " boat "]


def facet(result, key):
    return next(facet for facet in result.facets if facet.key == key)


def queries(documents):
    """Queries with values of the corpus, and occasionally unknown ones."""

    def some(options, most=2):
        return st.lists(st.sampled_from(options), max_size=most, unique=True)

    known = {spec.key: sorted({v for d in documents for v in d.values[spec.key]} or {""}) for spec in FACETS}
    known["state"] = list(STATES)
    # Corners in the middle between places, at places, and anywhere.
    number = st.sampled_from([0, 5_000, 10_000, 20_000, 25_000, 40_000, 65_535]) | st.integers(0, 65_535)
    corner = st.tuples(number, number).map(lambda xy: f"{xy[0]}.{xy[1]}")
    shape = {spec.key: some(known[spec.key]) for spec in FACETS}
    shape |= {f"-{spec.key}": some(known[spec.key], 1) for spec in FACETS}
    shape |= {
        "q": st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join) | st.sampled_from(NAMES),
        "has": some(list(FACET), 1),
        "no": some(list(FACET), 1),
        "tag.all": st.booleans(),
        "concept.all": st.booleans(),
        "entity.all": st.booleans(),
        "subcategories": st.booleans(),
        "updated_since": st.sampled_from(["24h", "600d", "700d", "20y", "2025-06-01", "2024-12-31T23:30Z"]),
        "recalled_since": st.sampled_from(["ever", "20y", "2025-04-01T12:00:01Z", "2025-08-01", "2025-08-02"]),
        "-recalled_since": st.sampled_from(["ever", "24h", "2025-04-01T12:00Z", "2025-08-01T12:00:01Z"]),
        "as_of": st.sampled_from(["1999-07-01", "2024-02-29", "2024-05-01", "2024-12-31", "2026-01-01"]),
        "area": st.lists(corner, min_size=3, max_size=8).map(lambda corners: "_".join(["1", *corners])),
        "facet_scope": st.sampled_from(["choices", "results"]),
        "from": st.sampled_from(["2024-01-05", "2024-02-29", "2025-03-01"]),
        "to": st.sampled_from(["2024-02-29", "2024-12-31", "2025-06-01"]),
    }
    keys = st.lists(st.sampled_from(sorted(shape)), max_size=4, unique=True)
    return keys.flatmap(lambda chosen: st.fixed_dictionaries({key: shape[key] for key in chosen}))
