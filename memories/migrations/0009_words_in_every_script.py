"""Analyse memories again: words in every script, and the parts of names."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from memories.terms import MemoryText, memories_terms

_AT_ONCE = 1_000
# Read apart from the update, which where memories are on several nodes may name no other table of them.
_TEXTS = """
SELECT memory.id, memory.title, memory.tags, memory.summary, memory.external_id,
       ARRAY(SELECT target FROM memories_memorylink link WHERE link.memory_id = memory.id ORDER BY ordinal),
       memory.content, project.language
FROM memories_memory memory JOIN memories_project project ON project.id = memory.project_id
WHERE memory.id > %s ORDER BY memory.id LIMIT %s"""
_UPDATE = """
UPDATE memories_memory memory SET terms = made.terms::tsvector
FROM unnest(%s::bigint[], %s::text[]) AS made (id, terms) WHERE memory.id = made.id"""


def analyse_again(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    with schema_editor.connection.cursor() as cursor:
        last = 0
        while True:
            cursor.execute(_TEXTS, [last, _AT_ONCE])
            rows = cursor.fetchall()
            if not rows:
                return
            ids = [row[0] for row in rows]
            texts = [MemoryText(row[1], tuple(row[2]), row[3], row[4], tuple(row[5]), *row[6:]) for row in rows]
            cursor.execute(_UPDATE, [ids, memories_terms(texts)])
            last = ids[-1]


class Migration(migrations.Migration):
    dependencies = [("memories", "0008_when_sessions_began")]

    operations = [
        # A blocked statement gives up instead of blocking everything behind it.
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.RunPython(analyse_again, migrations.RunPython.noop),
    ]
