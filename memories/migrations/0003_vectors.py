"""Vectors: chunks in narrow rows, the models that they are of, and what each model has embedded."""

import django.db.models.deletion
import django.utils.timezone
import pgvector.django.halfvec
import pgvector.django.indexes
from django.db import migrations, models

# What is derived from a memory goes with it, by whatever door it goes. Checked at once, and not at the end of the
# transaction: a writer locks memories first, and the row of the corpus last.
WITH_THE_MEMORY = [
    ("memories_chunk", "chunk_memory_fk"),
    ("memories_embeddedmemory", "embeddedmemory_memory_fk"),
]


class Migration(migrations.Migration):

    dependencies = [
        ("memories", "0002_outbox"),
    ]

    operations = [
        migrations.CreateModel(
            name="EmbeddingModel",
            fields=[
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=200)),
                ("source", models.TextField(help_text="Where it is loaded from: a path, or a name that sentence-transformers knows.")),
                ("dimensions", models.SmallIntegerField()),
                ("min_similarity", models.FloatField(help_text="What is less similar to a query does not match it by meaning.")),
                ("state", models.CharField(choices=[("building", "Building"), ("serving", "Serving"), ("retired", "Retired")], default="building", max_length=10)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("name",), name="embeddingmodel_name_unique"),
                    models.UniqueConstraint(condition=models.Q(("state", "serving")), fields=("state",), name="embeddingmodel_one_serving"),
                    models.CheckConstraint(condition=models.Q(("state__in", ["building", "serving", "retired"])), name="embeddingmodel_state_known"),
                ],
            },
        ),
        # Nothing has ever been written to it.
        migrations.DeleteModel(name="Chunk"),
        migrations.CreateModel(
            name="Chunk",
            fields=[
                ("pk", models.CompositePrimaryKey("memory_id", "model_id", "ordinal", blank=True, editable=False, primary_key=True, serialize=False)),
                ("memory", models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name="chunks", to="memories.memory")),
                ("model", models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name="+", to="memories.embeddingmodel")),
                ("ordinal", models.IntegerField()),
                ("start", models.IntegerField(help_text="Where it begins in the content, in characters.")),
                ("end", models.IntegerField(help_text="Where it ends.")),
                ("embedding", pgvector.django.halfvec.HalfVectorField(dimensions=384, help_text="As wide as `manage.py embedding_dimensions` has made it.")),
            ],
            options={
                "indexes": [pgvector.django.indexes.HnswIndex(fields=["embedding"], name="chunk_embedding_hnsw", opclasses=["halfvec_cosine_ops"])],
            },
        ),
        migrations.CreateModel(
            name="EmbeddedMemory",
            fields=[
                ("pk", models.CompositePrimaryKey("memory_id", "model_id", blank=True, editable=False, primary_key=True, serialize=False)),
                ("memory", models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name="+", to="memories.memory")),
                ("model", models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name="+", to="memories.embeddingmodel")),
                ("content_hash", models.CharField(max_length=32)),
                ("chunks", models.IntegerField()),
            ],
            options={
                "indexes": [models.Index(fields=["model", "memory"], include=("content_hash",), name="embeddedmemory_hash_idx")],
            },
        ),
        # A scan compares every vector: it must not have to fetch each from elsewhere.
        migrations.RunSQL(
            "ALTER TABLE memories_chunk ALTER COLUMN embedding SET STORAGE PLAIN",
            "ALTER TABLE memories_chunk ALTER COLUMN embedding SET STORAGE EXTERNAL",
        ),
        *[
            migrations.RunSQL(
                f"ALTER TABLE {table} ADD CONSTRAINT {name}"
                " FOREIGN KEY (memory_id) REFERENCES memories_memory (id) ON DELETE CASCADE",
                f"ALTER TABLE {table} DROP CONSTRAINT {name}",
            )
            for table, name in WITH_THE_MEMORY
        ],
        migrations.AlterField(
            model_name="memory",
            name="content_hash",
            field=models.CharField(help_text="Of title and content, to know a repeat by, and a text that is yet to be embedded.", max_length=32),
        ),
        migrations.AddIndex(
            model_name="memory",
            index=models.Index(fields=["id"], include=("content_hash",), name="memory_text_idx"),
        ),
        migrations.AddField(
            model_name="corpus",
            name="vectors",
            field=models.BigIntegerField(db_default=0, default=0, help_text="Rises with every change to the vectors, so that what they give can be kept."),
        ),
    ]
