"""Whether the vocabulary holds together in itself: the tree, what refers to what, other names. Thousands of rows, no
memories: `integrity` looks at those too.
"""

from collections.abc import Callable, Iterator

from django.db import connection

# Each gives a sentence about a row that is not as it should be.
_CHECKS = (
    # Paths and depths that the tree does not spell.
    "SELECT format('the category %%s (#%%s) hangs under %%s, which its path does not say',"
    " own.path, own.id, coalesce(above.path, 'the root'))"
    " FROM categories_category own LEFT JOIN categories_category above ON above.id = own.parent_id"
    " WHERE own.path <> concat_ws('/', above.path, regexp_replace(own.path, '^.*/', ''))",
    "SELECT format('the category %%s (#%%s) is said to be %%s levels deep', path, id, depth) FROM categories_category"
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
    return [problem for check in (*(_asked(statement) for statement in _CHECKS), _rings) for problem in check()]


def _asked(statement: str) -> Callable[[], Iterator[str]]:
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
