import django.contrib.postgres.indexes
from django.db import migrations, models

# Immutable, unlike the functions that turn an array into text, so that an index can use it.
LOWER_ALL = """
CREATE FUNCTION categories_lower_all(names text[]) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
AS $$ SELECT coalesce(array_agg(lower(name)), '{}') FROM unnest(names) AS name $$"""


class Migration(migrations.Migration):
    dependencies = [("categories", "0001_initial")]

    operations = [
        # A blocked statement gives up instead of blocking everything behind it.
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.RunSQL(LOWER_ALL, "DROP FUNCTION categories_lower_all(text[])"),
        *[
            migrations.AddIndex(
                model_name=model,
                index=django.contrib.postgres.indexes.GinIndex(
                    models.Func("aliases", function="categories_lower_all"),
                    condition=models.Q(("aliases", []), _negated=True),
                    name=f"{model}_aliases_lower_gin",
                ),
            )
            for model in ("category", "concept", "entity")
        ],
    ]
