"""Checks that the vocabulary and the memories agree, and repairs what needs no decision. See `check_vocabulary`."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from django.db import transaction

from access.models import AuditEvent
from access.viewer import Viewer
from categories.kinds import VOCABULARIES
from categories.models import Concept, Relationship, TagAlias
from categories.services import vocabulary_lock
from categories.texts import projects_using
from curation.facet_columns import refresh_columns, stale_columns, write_tags
from memories.models import Memory
from memories.storage import corpus_bump, outbox_stamp
from web.sql import execute, fetch, fetch_column

_RELATIONS = [
    (vocabulary, column, inverse)
    for vocabulary in VOCABULARIES.values()
    for column, inverse in vocabulary.relations.items()
]
# Memories with a repeated tag or one of these names.
_TAGS = """
SELECT memory.id, memory.project_id, memory.tags FROM memories_memory memory WHERE memory.tags && %s::text[]
OR cardinality(memory.tags) <> (SELECT count(DISTINCT tag) FROM unnest(memory.tags) AS tag) ORDER BY memory.id"""
# Endings of the sentences about cycles, which need a person's decision.
_CYCLES = ("is below itself", "is broader than itself")
_EVIDENCE = """
SELECT DISTINCT named.id FROM (SELECT fact.id, unnest(fact.evidence_ids) AS one FROM categories_relationship fact) named
LEFT JOIN memories_memory memory ON memory.id = named.one WHERE memory.id IS NULL ORDER BY 1"""


@dataclass(frozen=True, slots=True)
class Finding:
    """A disagreement, in a sentence, and whether its repair needs a person."""

    text: str
    by_hand: bool = False


def findings() -> list[Finding]:
    """All disagreements."""
    found = [Finding(f"{problem}.", problem.endswith(_CYCLES)) for problem in structure_problems()]
    for vocabulary in VOCABULARIES.values():
        found += [
            Finding(f"the memory #{memory_id} is counted under other {vocabulary.plural} than it is linked to.")
            for memory_id in stale_columns(vocabulary.name)
        ]
    found += [Finding(f"the memory #{pk} has a tag twice or under another name.") for pk, _ in _wrong_tags()]
    found += [
        Finding(f"the relationship #{pk} refers to memories that do not exist.") for pk in fetch_column(_EVIDENCE)
    ]
    return found


def _evidence_mend() -> None:
    """Remove memories that do not exist from the evidence of relationships."""
    facts = Relationship.objects.filter(pk__in=fetch_column(_EVIDENCE))
    ids = {one for fact in facts for one in fact.evidence_ids}
    there = set(Memory.objects.filter(pk__in=ids).values_list("pk", flat=True))
    for fact in facts:
        fact.evidence_ids = sorted(there.intersection(fact.evidence_ids))
    Relationship.objects.bulk_update(facts, ["evidence_ids"])


def _wrong_tags() -> list[tuple[int, list[str]]]:
    """Memories with a repeated tag or the alias of a tag, and the tags that they should have.

    A public alias leads to no tag that the project of the memory does not have, and holds in that project.
    """
    named = TagAlias.objects.values_list("alias", "tag", "project_ids")
    aliases = {alias: (tag, projects) for alias, tag, projects in named}
    using = projects_using("tag", {tag for tag, _ in aliases.values()})

    def name_of(tag: str, project_id: int) -> str:
        target, projects = aliases.get(tag, (tag, None))
        holds = projects is None or project_id in projects
        return target if holds and project_id in using.get(target, ()) else tag

    wanted = (
        (memory_id, tags, list(dict.fromkeys(name_of(tag, project_id) for tag in tags)))
        for memory_id, project_id, tags in fetch(_TAGS, [list(aliases)])
    )
    return [(memory_id, right) for memory_id, tags, right in wanted if right != tags]


@transaction.atomic
def vocabulary_mend(*, viewer: Viewer) -> list[Finding]:
    """Repair what needs no decision, and return what remains."""
    vocabulary_lock()
    before = findings()
    if not before:
        return []
    for statement in _REPAIRS:
        execute(statement)
    _evidence_mend()
    for kind in VOCABULARIES:
        refresh_columns(kind, stale_columns(kind))
    write_tags(_wrong_tags())
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
        f"UPDATE {table} own SET {column} = ARRAY(SELECT DISTINCT one FROM unnest(own.{column}) one"
        f" WHERE one <> own.id AND EXISTS (SELECT 1 FROM {table} other WHERE other.id = one) ORDER BY one)"
        f" WHERE EXISTS (SELECT 1 FROM unnest(own.{column}) one"
        f" WHERE one = own.id OR NOT EXISTS (SELECT 1 FROM {table} other WHERE other.id = one))"
    )


def _both_ways(table: str, column: str, inverse: str) -> str:
    return (
        f"UPDATE {table} own SET {inverse} = ARRAY(SELECT DISTINCT one"
        f" FROM unnest(own.{inverse} || stated.ids) one ORDER BY one)"
        f" FROM (SELECT one AS id, array_agg(other.id)::integer[] AS ids FROM {table} other,"
        f" unnest(other.{column}) one GROUP BY one) stated WHERE stated.id = own.id AND NOT stated.ids <@ own.{inverse}"
    )


_LOST_TEXTS = (
    "own.kind <> 'tag' AND NOT EXISTS (SELECT 1 FROM ("
    + " UNION ALL ".join(f"SELECT '{kind}' AS kind, id FROM {one.table}" for kind, one in VOCABULARIES.items())
    + ") term WHERE term.kind = own.kind AND term.id = own.term_id)"
)
_REPAIRS = (
    f"DELETE FROM categories_localtext own WHERE {_LOST_TEXTS}",
    *(_without_dangling(vocabulary.table, column) for vocabulary, column, _ in _RELATIONS),
    *(_both_ways(vocabulary.table, column, inverse) for vocabulary, column, inverse in _RELATIONS),
    # An alias of an alias refers to the tag at the end of the chain.
    "UPDATE categories_tagalias own SET tag = other.tag FROM categories_tagalias other"
    " WHERE other.alias = own.tag AND other.tag <> own.alias",
    # Paths and depths from the tree. Equal paths are left for a person to merge.
    "WITH RECURSIVE spelled (id, path, depth) AS ("
    "SELECT id, regexp_replace(path, '^.*/', ''), 1 FROM categories_category WHERE parent_id IS NULL"
    " UNION ALL SELECT own.id, spelled.path || '/' || regexp_replace(own.path, '^.*/', ''), spelled.depth + 1"
    " FROM categories_category own JOIN spelled ON own.parent_id = spelled.id)"
    " UPDATE categories_category own SET path = spelled.path, depth = spelled.depth FROM spelled"
    " WHERE spelled.id = own.id AND (own.path, own.depth) IS DISTINCT FROM (spelled.path, spelled.depth)"
    " AND NOT EXISTS (SELECT 1 FROM spelled twin WHERE twin.path = spelled.path AND twin.id <> own.id)"
    " AND NOT EXISTS (SELECT 1 FROM categories_category there WHERE there.path = spelled.path"
    " AND there.id <> own.id)",
)


# Each gives a sentence for every wrong row.
_CHECKS = (
    # Paths and depths that differ from the tree.
    "SELECT format('the category %%s (#%%s) hangs under %%s, which its path does not say',"
    " own.path, own.id, coalesce(above.path, 'the root'))"
    " FROM categories_category own LEFT JOIN categories_category above ON above.id = own.parent_id"
    " WHERE own.path <> concat_ws('/', above.path, regexp_replace(own.path, '^.*/', ''))",
    "SELECT format('the category %%s (#%%s) has the wrong depth %%s', path, id, depth) FROM categories_category"
    " WHERE depth <> 1 + length(path) - length(replace(path, '/', ''))",
    # A category that cannot be reached from a root is below itself.
    "WITH RECURSIVE reached (id) AS (SELECT id FROM categories_category WHERE parent_id IS NULL"
    " UNION SELECT own.id FROM categories_category own JOIN reached ON own.parent_id = reached.id)"
    " SELECT format('the category %%s (#%%s) is below itself', path, id) FROM categories_category"
    " WHERE id NOT IN (SELECT id FROM reached)",
    "SELECT format('the local text %%s belongs to the %%s #%%s, which does not exist', left(own.text, 80), own.kind,"
    f" own.term_id) FROM categories_localtext own WHERE {_LOST_TEXTS}",
    # Self-references and dangling references.
    *(
        f"SELECT format('the {vocabulary.name} %%s (#%%s) names %%s as {column.removesuffix('_ids')}, which is %%s',"
        f" own.{vocabulary.label_column}, own.id, one, CASE WHEN one = own.id THEN 'itself' ELSE 'not there' END)"
        f" FROM {vocabulary.table} own, unnest(own.{column}) one"
        f" WHERE one = own.id OR NOT EXISTS (SELECT 1 FROM {vocabulary.table} other WHERE other.id = one)"
        for vocabulary, column, _ in _RELATIONS
    ),
    # Relations without their inverse.
    *(
        f"SELECT format('the {vocabulary.name} %%s (#%%s) names #%%s as {column.removesuffix('_ids')}, which does not"
        f" say so', own.{vocabulary.label_column}, own.id, other.id)"
        f" FROM {vocabulary.table} own, unnest(own.{column}) one JOIN {vocabulary.table} other ON other.id = one"
        f" WHERE own.id <> ALL (other.{inverse}) AND own.id <> one"
        for vocabulary, column, inverse in _RELATIONS
    ),
    "SELECT format('the tag alias %%s stands for %%s, which is another name itself', own.alias, own.tag)"
    " FROM categories_tagalias own JOIN categories_tagalias other ON other.alias = own.tag",
)


def structure_problems() -> list[str]:
    """A sentence for every inconsistency within the vocabulary."""
    return [*(problem for statement in _CHECKS for problem in fetch_column(statement)), *_concept_cycles()]


def _concept_cycles() -> Iterator[str]:
    """A sentence for every concept that is, directly or indirectly, broader than itself."""
    rows = list(Concept.objects.exclude(broader_ids=[]).order_by("id").values_list("id", "name", "broader_ids"))
    above = {concept_id: [up for up in broader if up != concept_id] for concept_id, _, broader in rows}
    names = {concept_id: name for concept_id, name, _ in rows}
    # Concepts with nothing above them are removed repeatedly: the rest are in a cycle, or below one.
    left = dict(above)
    while free := [concept_id for concept_id, ups in left.items() if not any(up in left for up in ups)]:
        for concept_id in free:
            del left[concept_id]
    cyclic = {concept_id: [up for up in ups if up in left] for concept_id, ups in left.items()}
    for concept_id in cyclic:
        if concept_id in _reachable(concept_id, cyclic):
            yield f"the concept {names[concept_id]} (#{concept_id}) is broader than itself"


def _reachable(start: int, above: Mapping[int, Collection[int]]) -> set[int]:
    """The nodes reached from a node in one or more steps."""
    visited, pending = set[int](), list(above[start])
    while pending:
        if (current := pending.pop()) not in visited:
            visited.add(current)
            pending += above[current]
    return visited
