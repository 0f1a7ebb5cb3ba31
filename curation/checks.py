"""Whether the vocabulary and the memories agree, and how what does not is mended. See `manage.py check_vocabulary`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from django.db import connection, transaction

from access.models import AuditEvent
from access.viewer import Viewer
from categories.services import VOCABULARY_LOCK
from curation.facet_columns import columns_differing, columns_refresh, tags_write
from curation.tables import LINKS
from memories.storage import corpus_bump, outbox_stamp

# A memory with tags twice, or with other names of tags: what it has, and what it should have.
_TAGS = """
WITH now AS (
  SELECT memory.id, tag.at, coalesce(alias.tag::text, tag.tag) AS tag FROM memories_memory memory
  CROSS JOIN LATERAL unnest(memory.tags) WITH ORDINALITY AS tag (tag, at)
  LEFT JOIN categories_tagalias alias ON alias.alias = tag.tag
), wanted AS (
  SELECT id, array_agg(tag ORDER BY at) AS tags
  FROM (SELECT id, tag, min(at) AS at FROM now GROUP BY id, tag) once GROUP BY id
)
SELECT memory.id, wanted.tags FROM memories_memory memory JOIN wanted USING (id)
WHERE memory.tags IS DISTINCT FROM wanted.tags ORDER BY id"""
# What a person has to break up.
_RINGS = ("is below itself", "is broader than itself")
_EVIDENCE = """
SELECT fact.id FROM categories_relationship fact WHERE EXISTS (SELECT 1 FROM unnest(fact.evidence_ids) one
WHERE NOT EXISTS (SELECT 1 FROM memories_memory memory WHERE memory.id = one)) ORDER BY id"""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that does not agree, in a sentence, and whether mending it takes a person."""

    text: str
    by_hand: bool = False


def findings() -> list[Finding]:
    """Everything that does not agree."""
    found = [Finding(f"{problem}.", problem.endswith(_RINGS)) for problem in structure_problems()]
    for kind in LINKS:
        found += [
            Finding(f"the memory #{memory_id} is counted under other {_plural(kind)} than it is linked to.")
            for memory_id in columns_differing(kind)
        ]
    found += [Finding(f"the memory #{row[0]} has a tag twice or under another name.") for row in _asked(_TAGS)]
    found += [Finding(f"the relationship #{row[0]} refers to memories that do not exist.") for row in _asked(_EVIDENCE)]
    return found


@transaction.atomic
def vocabulary_mend(*, viewer: Viewer) -> list[Finding]:
    """Mend what can be mended without deciding anything; gives back what remains."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [VOCABULARY_LOCK])
    before = findings()
    if not before:
        return []
    for statement in _MENDING:
        with connection.cursor() as cursor:
            cursor.execute(statement)
    for mend in (_paths_mend, _columns_mend, _tags_mend):
        mend()
    after = findings()
    AuditEvent.objects.create(
        user_id=viewer.user_id,
        api_key_id=viewer.api_key_id,
        door=viewer.door,
        verb="vocabulary_mend",
        subject_type="vocabulary",
        subject_id=0,
        after={"found": len(before), "left": len(after), "examples": [finding.text for finding in before[:20]]},
    )
    outbox_stamp()
    corpus_bump()
    return after


def _without_dangling(table: str, column: str) -> str:
    return (
        f"UPDATE categories_{table} own SET {column} = ARRAY(SELECT DISTINCT one FROM unnest(own.{column}) one"
        f" WHERE one <> own.id AND EXISTS (SELECT 1 FROM categories_{table} other WHERE other.id = one) ORDER BY one)"
        f" WHERE EXISTS (SELECT 1 FROM unnest(own.{column}) one"
        f" WHERE one = own.id OR NOT EXISTS (SELECT 1 FROM categories_{table} other WHERE other.id = one))"
    )


def _both_ways(table: str, column: str, back: str) -> str:
    return (
        f"UPDATE categories_{table} own SET {back} = ARRAY(SELECT DISTINCT one FROM unnest(own.{back} || said.ids) one"
        f" ORDER BY one) FROM (SELECT one AS id, array_agg(other.id)::integer[] AS ids FROM categories_{table} other,"
        f" unnest(other.{column}) one GROUP BY one) said WHERE said.id = own.id AND NOT said.ids <@ own.{back}"
    )


_MENDING = (
    "DELETE FROM categories_formerpath former USING categories_category own WHERE own.path = former.path",
    *(
        _without_dangling(table, column)
        for table, column in (
            ("category", "related_ids"),
            ("concept", "related_ids"),
            ("concept", "broader_ids"),
            ("concept", "narrower_ids"),
        )
    ),
    _both_ways("category", "related_ids", "related_ids"),
    _both_ways("concept", "related_ids", "related_ids"),
    _both_ways("concept", "broader_ids", "narrower_ids"),
    _both_ways("concept", "narrower_ids", "broader_ids"),
    "UPDATE categories_relationship fact SET evidence_ids = ARRAY(SELECT one FROM unnest(fact.evidence_ids) one"
    " WHERE EXISTS (SELECT 1 FROM memories_memory memory WHERE memory.id = one) ORDER BY one)"
    f" WHERE id IN ({_EVIDENCE})",
    # A chain of other names leads to its end; a database that was kept by hand may hold one.
    "UPDATE categories_tagalias own SET tag = other.tag FROM categories_tagalias other"
    " WHERE other.alias = own.tag AND other.tag <> own.alias",
)


def _paths_mend() -> None:
    """Paths that the tree spells, unless two would be the same: those are for a person to merge."""
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH RECURSIVE spelled (id, path, depth) AS ("
            "SELECT id, regexp_replace(path, '^.*/', ''), 1 FROM categories_category WHERE parent_id IS NULL"
            " UNION ALL SELECT own.id, spelled.path || '/' || regexp_replace(own.path, '^.*/', ''), spelled.depth + 1"
            " FROM categories_category own JOIN spelled ON own.parent_id = spelled.id)"
            " UPDATE categories_category own SET path = spelled.path, depth = spelled.depth FROM spelled"
            " WHERE spelled.id = own.id AND (own.path, own.depth) IS DISTINCT FROM (spelled.path, spelled.depth)"
            " AND NOT EXISTS (SELECT 1 FROM spelled twin WHERE twin.path = spelled.path AND twin.id <> own.id)"
            " AND NOT EXISTS (SELECT 1 FROM categories_category there WHERE there.path = spelled.path"
            " AND there.id <> own.id)"
        )


def _columns_mend() -> None:
    for kind in LINKS:
        columns_refresh(kind, columns_differing(kind))


def _tags_mend() -> None:
    tags_write(_asked(_TAGS))


def _asked(statement: str) -> list[tuple[int, list[str]]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def _plural(kind: str) -> str:
    return {"category": "categories", "entity": "entities"}.get(kind, f"{kind}s")


# Each gives a sentence about a row that is not as it should be.
_CHECKS = (
    # Paths and depths that the tree does not spell.
    "SELECT format('the category %%s (#%%s) hangs under %%s, which its path does not say',"
    " own.path, own.id, coalesce(above.path, 'the root'))"
    " FROM categories_category own LEFT JOIN categories_category above ON above.id = own.parent_id"
    " WHERE own.path <> concat_ws('/', above.path, regexp_replace(own.path, '^.*/', ''))",
    "SELECT format('the category %%s (#%%s) has the wrong depth %%s', path, id, depth) FROM categories_category"
    " WHERE depth <> 1 + length(path) - length(replace(path, '/', ''))",
    # Whatever cannot be reached from a root is below itself.
    "WITH RECURSIVE reached (id) AS (SELECT id FROM categories_category WHERE parent_id IS NULL"
    " UNION SELECT own.id FROM categories_category own JOIN reached ON own.parent_id = reached.id)"
    " SELECT format('the category %%s (#%%s) is below itself', path, id) FROM categories_category"
    " WHERE id NOT IN (SELECT id FROM reached)",
    "SELECT format('%%s is the former path of a category, and the path of another', former.path)"
    " FROM categories_formerpath former JOIN categories_category own ON own.path = former.path",
    # Self-references and dangling ones.
    *(
        f"SELECT format('the {table} %%s (#%%s) names %%s as {column.removesuffix('_ids')}, which is %%s', own.{name},"
        " own.id, one, CASE WHEN one = own.id THEN 'itself' ELSE 'not there' END)"
        f" FROM categories_{table} own, unnest(own.{column}) one"
        f" WHERE one = own.id OR NOT EXISTS (SELECT 1 FROM categories_{table} other WHERE other.id = one)"
        for table, name, column in (
            ("category", "path", "related_ids"),
            ("concept", "name", "related_ids"),
            ("concept", "name", "broader_ids"),
            ("concept", "name", "narrower_ids"),
        )
    ),
    # What one says of the other, the other says too.
    *(
        f"SELECT format('the {table} %%s (#%%s) names #%%s as {column.removesuffix('_ids')}, which does not say so',"
        f" own.{name}, own.id, other.id) FROM categories_{table} own, unnest(own.{column}) one"
        f" JOIN categories_{table} other ON other.id = one WHERE own.id <> ALL (other.{back}) AND own.id <> one"
        for table, name, column, back in (
            ("category", "path", "related_ids", "related_ids"),
            ("concept", "name", "related_ids", "related_ids"),
            ("concept", "name", "broader_ids", "narrower_ids"),
            ("concept", "name", "narrower_ids", "broader_ids"),
        )
    ),
    "SELECT format('the tag alias %%s stands for %%s, which is another name itself', own.alias, own.tag)"
    " FROM categories_tagalias own JOIN categories_tagalias other ON other.alias = own.tag",
)


def structure_problems() -> list[str]:
    """A sentence for everything that does not hold."""
    return [problem for check in (*(_rows_check(statement) for statement in _CHECKS), _rings) for problem in check()]


def _rows_check(statement: str) -> Callable[[], Iterator[str]]:
    def check() -> Iterator[str]:
        with connection.cursor() as cursor:
            cursor.execute(statement, [])
            yield from (row[0] for row in cursor.fetchall())

    return check


def _rings() -> Iterator[str]:
    """Concepts that are broader than themselves, by whatever way."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT id, name, broader_ids FROM categories_concept WHERE broader_ids <> '{}' ORDER BY id")
        rows = cursor.fetchall()
    above = {concept_id: [one for one in broader if one != concept_id] for concept_id, _, broader in rows}
    names = {concept_id: name for concept_id, name, _ in rows}
    # Those without anything above them go, again and again: what remains stands in a ring, or below one.
    left = dict(above)
    while free := [one for one, ups in left.items() if not any(up in left for up in ups)]:
        for one in free:
            del left[one]
    for concept_id in left:
        seen, waiting = set[int](), [up for up in above[concept_id] if up in left]
        while waiting:
            one = waiting.pop()
            if one == concept_id:
                yield f"the concept {names[concept_id]} (#{concept_id}) is broader than itself"
                break
            if one not in seen:
                seen.add(one)
                waiting += [up for up in above.get(one, []) if up in left]
