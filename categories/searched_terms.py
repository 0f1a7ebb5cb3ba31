"""The text of entities, concepts, categories and relationships, and their search terms.

The text is defined here once, in SQL: its hash shows whether terms or a vector are up to date.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from text.analysis import VERSION, index_terms, to_tsvector
from web.sql import execute, fetch

# Rows per statement.
_BLOCK = 2_000
# Characters of a text that are analysed: Postgres holds at most 1 MiB of terms in a row.
_READ = 60_000


@dataclass(frozen=True, slots=True)
class SearchableTable:
    """A table of the vocabulary with search terms and vectors.

    `rows` is the FROM clause of the expressions; `text` is embedded, and `fields` are analysed, each with the weight of
    its terms. The text includes all fields.
    """

    kind: str
    table: str
    rows: str
    text: str
    fields: tuple[tuple[str, str], ...]

    @property
    def vectors(self) -> str:
        return f"categories_{self.kind}vector"

    @property
    def owner(self) -> str:
        """The column of the vector table that references the row."""
        return f"{self.kind}_id"


ENTITIES = SearchableTable(
    kind="entity",
    table="categories_entity",
    rows="categories_entity own",
    text=(
        "own.name || ' (' || replace(own.entity_type, '_', ' ') || ')'"
        " || CASE WHEN own.aliases = '{}' THEN '' ELSE ', ' || array_to_string(own.aliases, ', ') END"
        " || CASE WHEN own.description = '' THEN '' ELSE E'\\n' || own.description END"
    ),
    fields=(
        ("own.name", "A"),
        ("array_to_string(own.aliases, ' | ')", "B"),
        ("replace(own.entity_type, '_', ' ')", "C"),
        ("own.description", "D"),
    ),
)
_ALIASES = "array_to_string(own.aliases, ' | ')"
_NAMED_TEXT = (
    "own.name || CASE WHEN own.aliases = '{}' THEN '' ELSE ', ' || array_to_string(own.aliases, ', ') END"
    " || CASE WHEN own.description = '' THEN '' ELSE E'\\n' || own.description END"
)
_NAMED_FIELDS = (("own.name", "A"), (_ALIASES, "B"), ("own.description", "D"))
CONCEPTS = SearchableTable(
    kind="concept",
    table="categories_concept",
    rows="categories_concept own",
    text=_NAMED_TEXT,
    fields=_NAMED_FIELDS,
)
# Without the path: the name of a category would find all of its descendants too.
CATEGORIES = SearchableTable(
    kind="category",
    table="categories_category",
    rows="categories_category own",
    text=_NAMED_TEXT,
    fields=_NAMED_FIELDS,
)
_SENTENCE = "source.name || ' ' || replace(own.relationship_type, '_', ' ') || ' ' || target.name"
RELATIONSHIPS = SearchableTable(
    kind="relationship",
    table="categories_relationship",
    rows=(
        "categories_relationship own JOIN categories_entity source ON source.id = own.source_id"
        " JOIN categories_entity target ON target.id = own.target_id"
    ),
    text=f"{_SENTENCE} || CASE WHEN own.fact = '' THEN '' ELSE E'\\n' || own.fact END",
    fields=((_SENTENCE, "A"), ("own.fact", "D")),
)
SEARCHED = (ENTITIES, CONCEPTS, CATEGORIES, RELATIONSHIPS)
SEARCHED_KINDS = {searched.kind: searched for searched in SEARCHED}

_LANGUAGES = "(SELECT string_agg(DISTINCT language, ' ' ORDER BY language) FROM memories_project)"
# Terms depend on the analysis and on the languages of all projects: a new one changes the hash.
_HASH = f"md5(concat({VERSION}, ' ', {_LANGUAGES}, ' ', {{text}}))"


def terms_refresh(searched: SearchableTable, ids: Collection[int]) -> int:
    """Update outdated terms of some rows. Returns how many were outdated."""
    return _refresh(searched, "own.id = ANY(%(ids)s)", ids) if ids else 0


def terms_refresh_all() -> int:
    """Update outdated terms of all rows, whoever wrote them. Returns how many were outdated."""
    return sum(_refresh_all(searched) for searched in SEARCHED)


def _refresh_all(searched: SearchableTable) -> int:
    done = 0
    while refreshed := _refresh(searched, "true", ()):
        done += refreshed
    return done


def _refresh(searched: SearchableTable, condition: str, ids: Collection[int]) -> int:
    fields = ", ".join(expression for expression, _ in searched.fields)
    hashed = _HASH.format(text=searched.text)
    rows = fetch(
        f"SELECT own.id, {hashed}, {_LANGUAGES}, {fields} FROM {searched.rows}"
        f" WHERE {condition} AND (own.terms IS NULL OR own.terms_hash <> {hashed}) ORDER BY own.id LIMIT {_BLOCK}",
        {"ids": list(ids)},
    )
    if not rows:
        return 0
    weights = [weight for _, weight in searched.fields]
    languages = (rows[0][2] or "english").split()
    terms = [
        _terms([(text[:_READ], weight) for text, weight in zip(texts, weights, strict=True)], languages)
        for _, _, _, *texts in rows
    ]
    execute(
        f"UPDATE {searched.table} own SET terms = made.terms::tsvector, terms_hash = made.hash"
        " FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS made (id, hash, terms) WHERE own.id = made.id",
        [[row[0] for row in rows], [row[1] for row in rows], terms],
    )
    # Those that were read: a row may be removed meanwhile, and others may wait behind it.
    return len(rows)


def _terms(fields: list[tuple[str, str]], languages: Sequence[str]) -> str:
    """The terms in all languages. Tokens have the same positions in each; only their stems differ."""
    merged: dict[str, dict[tuple[int, str], None]] = {}
    for language in languages:
        for term, places in index_terms(fields, language).items():
            merged.setdefault(term, {}).update(dict.fromkeys(places))
    return to_tsvector({term: sorted(places) for term, places in merged.items()})
