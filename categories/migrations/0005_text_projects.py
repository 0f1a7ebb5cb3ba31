"""Texts of a term, written by curators of all projects, hold in the projects that use the term when they are written."""

import django.contrib.postgres.fields
from django.db import migrations, models

# The aliases that are public or hold in one of the projects; all of them if there are no projects to look for.
READABLE = """
CREATE FUNCTION categories_readable(aliases text[], alias_projects jsonb, projects bigint[]) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT CASE WHEN projects IS NULL OR alias_projects IS NULL THEN aliases ELSE coalesce((
  SELECT array_agg(one.alias ORDER BY one.place) FROM unnest(aliases) WITH ORDINALITY AS one (alias, place)
  WHERE NOT alias_projects ? one.alias OR alias_projects -> one.alias ?| projects::text[]), '{}') END $$"""
HELD = "The projects in which it holds; all if there are none."


class Migration(migrations.Migration):
    dependencies = [("categories", "0004_local_texts")]

    operations = [
        # A blocked statement gives up instead of blocking everything behind it.
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.RunSQL(READABLE, "DROP FUNCTION categories_readable(text[], jsonb, bigint[])"),
        *[
            migrations.AddField(
                model_name=model,
                name="alias_projects",
                field=models.JSONField(
                    editable=False, help_text="The projects of each alias that is not public.", null=True
                ),
            )
            for model in ("category", "concept", "entity")
        ],
        *[
            migrations.AddField(
                model_name=model,
                name=name,
                field=django.contrib.postgres.fields.ArrayField(
                    base_field=models.BigIntegerField(), editable=False, help_text=HELD, null=True, size=None
                ),
            )
            for model, name in (
                ("category", "description_projects"),
                ("concept", "description_projects"),
                ("entity", "description_projects"),
                ("formerpath", "project_ids"),
                ("tagalias", "project_ids"),
            )
        ],
    ]
