"""Search terms and vectors of concepts and categories, as entities and relationships have them."""

import django.contrib.postgres.indexes
import django.contrib.postgres.search
import django.db.models.deletion
import pgvector.django.halfvec
from django.db import migrations, models

OWNERS = ("concept", "category")

# The columns get the dimensions of the present ones, which `manage.py embedding_dimensions` may have changed.
SAME_DIMENSIONS = """
DO $$ BEGIN
  EXECUTE format('ALTER TABLE categories_{owner}vector ALTER COLUMN embedding TYPE halfvec(%s)',
    (SELECT atttypmod FROM pg_attribute WHERE attrelid = 'categories_entityvector'::regclass
     AND attname = 'embedding' AND NOT attisdropped));
END $$"""


class Migration(migrations.Migration):
    dependencies = [
        ("categories", "0002_aliases_are_found_by_an_index"),
        ("memories", "0001_initial"),
    ]

    operations = [
        # A blocked statement gives up instead of blocking everything behind it.
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        *[
            operation
            for owner in OWNERS
            for operation in (
                migrations.AddField(
                    model_name=owner,
                    name="terms",
                    field=django.contrib.postgres.search.SearchVectorField(editable=False, null=True),
                ),
                migrations.AddField(
                    model_name=owner,
                    name="terms_hash",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        editable=False,
                        help_text="Of the text they are of.",
                        max_length=32,
                    ),
                ),
                migrations.AddIndex(
                    model_name=owner,
                    index=django.contrib.postgres.indexes.GinIndex(fields=["terms"], name=f"{owner}_terms_gin"),
                ),
                migrations.CreateModel(
                    name=f"{owner.capitalize()}Vector",
                    fields=[
                        ("text_hash", models.CharField(max_length=32)),
                        (
                            "embedding",
                            pgvector.django.halfvec.HalfVectorField(
                                dimensions=384,
                                help_text="The number of dimensions is set by `manage.py embedding_dimensions`.",
                            ),
                        ),
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                f"{owner}_id",
                                "model_id",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        (
                            owner,
                            models.ForeignKey(
                                db_constraint=False,
                                db_index=False,
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                related_name="+",
                                to=f"categories.{owner}",
                            ),
                        ),
                        (
                            "model",
                            models.ForeignKey(
                                db_constraint=False,
                                db_index=False,
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                related_name="+",
                                to="memories.embeddingmodel",
                            ),
                        ),
                    ],
                    options={"abstract": False},
                ),
                migrations.RunSQL(SAME_DIMENSIONS.format(owner=owner), migrations.RunSQL.noop),
                # The database deletes vectors with their owner, whatever deletes the owner.
                migrations.RunSQL(
                    f"ALTER TABLE categories_{owner}vector ALTER COLUMN embedding SET STORAGE PLAIN,"
                    f" ADD CONSTRAINT {owner}vector_{owner}_fk FOREIGN KEY ({owner}_id)"
                    f" REFERENCES categories_{owner} (id) ON DELETE CASCADE",
                    f"ALTER TABLE categories_{owner}vector DROP CONSTRAINT {owner}vector_{owner}_fk",
                ),
            )
        ],
    ]
