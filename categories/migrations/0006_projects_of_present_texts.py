"""Texts that were written before hold in the projects that use their term now; those of unused terms stay public."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

# Terms in one statement: their memories are read.
BLOCK = 500
COLUMNS = {"category": "category_path_ids", "concept": "concept_ids", "entity": "entity_ids"}
USED = """
WITH used AS (
  SELECT term.ref, array_agg(DISTINCT memory.project_id) AS projects
  FROM unnest(%(refs)s::{element}[]) AS term (ref)
  JOIN memories_memory memory ON memory.{column} @> ARRAY[term.ref] GROUP BY term.ref
)"""
TERMS = (
    USED
    + """
UPDATE categories_{kind} own SET
  description_projects = CASE WHEN own.description <> '' THEN used.projects END,
  alias_projects = (SELECT jsonb_object_agg(alias, to_jsonb(used.projects::text[])) FROM unnest(own.aliases) alias)
FROM used WHERE used.ref = own.id"""
)
PATHS = USED + " UPDATE categories_formerpath own SET project_ids = used.projects FROM used WHERE used.ref = own.category_id"
TAGS = USED + " UPDATE categories_tagalias own SET project_ids = used.projects FROM used WHERE used.ref = own.tag"


def record_present_use(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    with editor.connection.cursor() as cursor:

        def in_blocks(listed: str, update: str, **names: str) -> None:
            cursor.execute(listed.format(**names))
            refs = [ref for (ref,) in cursor.fetchall()]
            for start in range(0, len(refs), BLOCK):
                cursor.execute(update.format(**names), {"refs": refs[start : start + BLOCK]})

        for kind, column in COLUMNS.items():
            described = "SELECT id FROM categories_{kind} WHERE aliases <> '{{}}' OR description <> '' ORDER BY id"
            in_blocks(described, TERMS, kind=kind, column=column, element="integer")
        paths = "SELECT DISTINCT category_id FROM categories_formerpath ORDER BY 1"
        in_blocks(paths, PATHS, column=COLUMNS["category"], element="integer")
        in_blocks("SELECT DISTINCT tag FROM categories_tagalias ORDER BY 1", TAGS, column="tags", element="text")


class Migration(migrations.Migration):
    dependencies = [("categories", "0005_text_projects"), ("memories", "0001_initial")]

    operations = [
        # A blocked statement gives up instead of blocking everything behind it.
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.RunPython(record_present_use, migrations.RunPython.noop),
    ]
