"""Entities and relationships by words and by meaning: their terms in columns, their vectors in tables of their own."""

import django.contrib.postgres.indexes
import django.contrib.postgres.search
import django.db.models.deletion
import pgvector.django.halfvec
from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from categories.searched_terms import terms_catch_up

# As with the chunks of a memory: what is derived goes with what it is derived from, by whatever door that goes.
OWNERS = [("entity", "Entity"), ("relationship", "Relationship")]
HASH = {"blank": True, "db_default": "", "default": "", "editable": False, "help_text": "Of the text they are of.", "max_length": 32}


def with_terms(name: str) -> list[migrations.operations.base.Operation]:
    return [
        migrations.AddField(name, "terms", django.contrib.postgres.search.SearchVectorField(editable=False, null=True)),
        migrations.AddField(name, "terms_hash", models.CharField(**HASH)),
        migrations.AddIndex(name, django.contrib.postgres.indexes.GinIndex(fields=["terms"], name=f"{name}_terms_gin")),
    ]


def with_vectors(name: str, model: str) -> list[migrations.operations.base.Operation]:
    table = f"categories_{name}vector"
    return [
        migrations.CreateModel(
            name=f"{model}Vector",
            fields=[
                ("pk", models.CompositePrimaryKey(f"{name}_id", "model_id", blank=True, editable=False, primary_key=True, serialize=False)),
                (name, models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name="+", to=f"categories.{name}")),
                ("model", models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name="+", to="memories.embeddingmodel")),
                ("text_hash", models.CharField(max_length=32)),
                ("embedding", pgvector.django.halfvec.HalfVectorField(dimensions=384, help_text="As wide as `manage.py embedding_dimensions` has made it.")),
            ],
            options={"abstract": False},
        ),
        migrations.RunSQL(
            f"ALTER TABLE {table} ALTER COLUMN embedding SET STORAGE PLAIN,"
            f" ADD CONSTRAINT {name}vector_{name}_fk FOREIGN KEY ({name}_id) REFERENCES categories_{name} (id)"
            " ON DELETE CASCADE",
            f"ALTER TABLE {table} DROP CONSTRAINT {name}vector_{name}_fk, ALTER COLUMN embedding SET STORAGE EXTERNAL",
        ),
    ]


# The column of the chunks may have been made wider or narrower by then: vectors are alike wherever they stand.
SAME_WIDTH = """
DO $$
DECLARE width integer;
BEGIN
  SELECT atttypmod INTO width FROM pg_attribute
  WHERE attrelid = 'memories_chunk'::regclass AND attname = 'embedding';
  IF width <> 384 THEN
    EXECUTE format('ALTER TABLE categories_entityvector ALTER COLUMN embedding TYPE halfvec(%s)', width);
    EXECUTE format('ALTER TABLE categories_relationshipvector ALTER COLUMN embedding TYPE halfvec(%s)', width);
  END IF;
END $$"""


def fill_terms(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """The terms of what is there already; a new database has none."""
    if apps.get_model("categories", "Entity").objects.exists():
        terms_catch_up()


class Migration(migrations.Migration):

    dependencies = [
        ("categories", "0001_initial"),
        ("memories", "0003_vectors"),
    ]

    operations = [
        *[operation for name, _ in OWNERS for operation in with_terms(name)],
        *[operation for name, model in OWNERS for operation in with_vectors(name, model)],
        migrations.RunSQL(SAME_WIDTH, migrations.RunSQL.noop),
        migrations.RunPython(fill_terms, migrations.RunPython.noop),
    ]
