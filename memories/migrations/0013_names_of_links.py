"""Find links by names and in texts, and properties of records by their words; also those that are there."""

import json
from typing import Any

from django.apps.registry import Apps
from django.contrib.postgres.indexes import GinIndex
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import MD5, Cast, Lower

from access.viewer import command_viewer
from memories.link_targets import dangling_links, set_targets
from memories.properties import FIELD_NAMES, OWN_PROPERTIES, own_properties, words_of
from memories.resolve import with_text_links
from memories.snapshot import NamedLink
from memories.terms import MemoryText, memories_terms

_AT_ONCE = 1_000
# Those whose texts have links that are not stored yet, and notes with properties of their own.
_TEXTS = """
SELECT memory.id, memory.title, memory.tags, memory.summary, memory.external_id, memory.content, project.language,
       CASE WHEN jsonb_typeof(memory.raw) = 'object' AND memory.raw ? 'note_file' THEN memory.raw END,
       ARRAY(SELECT rel FROM memories_memorylink link WHERE link.memory_id = memory.id ORDER BY ordinal),
       ARRAY(SELECT target FROM memories_memorylink link WHERE link.memory_id = memory.id ORDER BY ordinal)
FROM memories_memory memory JOIN memories_project project ON project.id = memory.project_id
WHERE memory.id > %(last)s AND (
  strpos(memory.content, '[[') > 0 OR CASE WHEN jsonb_typeof(memory.raw) = 'object'
    THEN memory.raw ? 'note_file' AND memory.raw - %(fields)s::text[] <> '{}' END
) ORDER BY memory.id LIMIT %(most)s"""
_UPDATE = """
UPDATE memories_memory memory SET terms = made.terms::tsvector,
       raw = CASE WHEN made.own = '' THEN raw ELSE jsonb_set(raw, ARRAY[%s]::text[], made.own::jsonb) END
FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS made (id, terms, own) WHERE memory.id = made.id"""
_LINK = "INSERT INTO memories_memorylink (memory_id, ordinal, rel, target, url) VALUES (%s, %s, %s, %s, '')"


def find_what_is_there(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    with schema_editor.connection.cursor() as cursor:
        asked = {"fields": sorted(FIELD_NAMES), "most": _AT_ONCE}
        last = 0
        while True:
            cursor.execute(_TEXTS, asked | {"last": last})
            rows = cursor.fetchall()
            if not rows:
                break
            _find_in(cursor, rows)
            last = rows[-1][0]
        cursor.execute("SELECT DISTINCT memory_id FROM memories_memorylink WHERE target_memory_id IS NULL AND url = ''")
        ids = [row[0] for row in cursor.fetchall()]
    for start in range(0, len(ids), 10 * _AT_ONCE):
        set_targets(dangling_links(ids[start : start + 10 * _AT_ONCE]), command_viewer())


def _find_in(cursor: Any, rows: list[Any]) -> None:
    texts, owns, links = [], [], []
    for memory_id, title, tags, summary, external_id, content, language, raw, rels, targets in rows:
        stored = tuple(NamedLink(*pair) for pair in zip(rels, targets, strict=True))
        # The importer of notes has found their links.
        found = stored if raw else with_text_links(stored, content)
        links += [
            (memory_id, at, link.rel, link.target) for at, link in enumerate(found) if at >= len(stored)
        ]
        own = own_properties(json.loads(raw)) if raw else {}
        owns.append(json.dumps(own, ensure_ascii=False) if own else "")
        names = tuple(link.target for link in found)
        texts.append(
            MemoryText(title, tuple(tags), summary, external_id, names, content, language, words_of(own))
        )
    cursor.execute(_UPDATE, [OWN_PROPERTIES, [row[0] for row in rows], memories_terms(texts), owns])
    cursor.executemany(_LINK, links)


class Migration(migrations.Migration):
    dependencies = [("memories", "0015_reads")]

    operations = [
        # A blocked statement gives up instead of blocking everything behind it.
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.AddIndex(
            model_name="memory",
            index=models.Index(MD5(Lower("title")), name="memory_title_idx"),
        ),
        migrations.AddIndex(
            model_name="memory",
            index=models.Index(
                MD5(Lower(models.Func("source_uri", models.Value("[^/]*$"), function="substring"))),
                condition=models.Q(
                    models.Q(("source_uri", ""), _negated=True),
                    models.Q(("source_uri__contains", "://"), _negated=True),
                ),
                name="memory_file_idx",
            ),
        ),
        migrations.AddIndex(
            model_name="memory",
            index=GinIndex(
                Cast(Lower(Cast(KeyTransform("aliases", "raw"), models.TextField())), models.JSONField()),
                condition=models.Q(("raw__has_key", "aliases")),
                name="memory_alias_gin",
            ),
        ),
        migrations.RemoveIndex(model_name="memorylink", name="memorylink_dangling_idx"),
        migrations.AddIndex(
            model_name="memorylink",
            index=models.Index(
                Lower("target"), condition=models.Q(("target_memory__isnull", True)), name="memorylink_name_idx"
            ),
        ),
        migrations.RunPython(find_what_is_there, migrations.RunPython.noop),
    ]
