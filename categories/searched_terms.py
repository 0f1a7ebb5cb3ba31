"""The text of entities and relationships, and the terms that they are found by.

What a row's text is stands here once, in SQL: its hash tells whether the terms, or a vector, are of what it says now.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from django.db import connection

from text.analysis import index_terms, to_tsvector
from text.bulk_terms import placed_terms

# So many rows are worked on at once.
_BLOCK = 2_000
# Of one text, in characters: Postgres holds no more than 1 MiB of terms for a row.
_READ = 60_000


@dataclass(frozen=True, slots=True)
class SearchableTable:
    """A table of the vocabulary that is searched by words and by meaning.

    `rows` gives the row to the expressions; `text` is what a model reads of it, and `fields` what is looked for words
    in, each with the weight of its terms. All that the fields hold is in the text.
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
        """The column of the table of vectors that names the own."""
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
SEARCHED = (ENTITIES, RELATIONSHIPS)

_LANGUAGES = "(SELECT string_agg(DISTINCT language, ' ' ORDER BY language) FROM memories_project)"
# The terms are of a text in certain languages: where there is a project in another one, they are made anew.
_HASH = f"md5(concat({_LANGUAGES}, ' ', {{text}}))"


def terms_refresh(searched: SearchableTable, ids: Collection[int]) -> int:
    """Bring the terms of some rows up to what these say now; tells how many were not."""
    return _refresh(searched, "own.id = ANY(%(ids)s)", ids) if ids else 0


def terms_refresh_all() -> int:
    """Bring the terms of all rows up to date, whoever wrote them; tells how many were not."""
    return sum(_refresh_all(searched) for searched in SEARCHED)


def _refresh_all(searched: SearchableTable) -> int:
    done = 0
    while refreshed := _refresh(searched, "true", ()):
        done += refreshed
    return done


def _refresh(searched: SearchableTable, condition: str, ids: Collection[int]) -> int:
    fields = ", ".join(expression for expression, _ in searched.fields)
    hashed = _HASH.format(text=searched.text)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT own.id, {hashed}, {_LANGUAGES}, {fields} FROM {searched.rows}"
            f" WHERE {condition} AND (own.terms IS NULL OR own.terms_hash <> {hashed}) ORDER BY own.id LIMIT {_BLOCK}",
            {"ids": list(ids)},
        )
        rows = cursor.fetchall()
        if not rows:
            return 0
        weights = [weight for _, weight in searched.fields]
        languages = (rows[0][2] or "english").split()
        terms = [
            _terms([(text[:_READ], weight) for text, weight in zip(texts, weights, strict=True)], languages)
            for _, _, _, *texts in rows
        ]
        cursor.execute(
            f"UPDATE {searched.table} own SET terms = made.terms::tsvector, terms_hash = made.hash"
            " FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS made (id, hash, terms) WHERE own.id = made.id",
            [[row[0] for row in rows], [row[1] for row in rows], terms],
        )
    return len(rows)


def _terms(fields: list[tuple[str, str]], languages: Sequence[str]) -> str:
    """The terms in all languages at once. Tokens stand at the same positions in each; only their stems differ."""
    if len(languages) == 1:
        return placed_terms(fields, languages[0]).vector
    merged: dict[str, dict[tuple[int, str], None]] = {}
    for language in languages:
        for term, places in index_terms(fields, language).items():
            merged.setdefault(term, {}).update(dict.fromkeys(places))
    return to_tsvector({term: sorted(places) for term, places in merged.items()})
