"""The tables of memories, their vectors, the outbox and the revision of the corpus.

Besides what the models declare: the extensions, the sequence of memory ids, the storage of wide columns, the deletion
of vectors with their memory, the triggers that fill the outbox, and the row of the corpus.
"""

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.contrib.postgres.search
import django.db.models.deletion
import django.db.models.functions.datetime
import django.utils.timezone
import pgvector.django.halfvec
import pgvector.django.indexes
from django.contrib.postgres.operations import TrigramExtension
from django.db import migrations, models
from pgvector.django import VectorExtension

# A facet scan reads these arrays, so they stay in the row; other wide values of a row over 512 bytes move out of it.
FACET_ARRAYS = ("tags", "authors", "category_ids", "category_path_ids", "concept_ids", "entity_ids")
# Compressing these saves a tenth of the space and costs time at every read.
UNCOMPRESSED = ("terms", "raw")

# The database deletes vectors with their memory, whatever deletes the memory. The constraints are not deferred: a
# writer locks the memories first and the row of the corpus last.
VECTOR_TABLES = [
    ("memories_chunk", "chunk_memory_fk"),
    ("memories_embeddedmemory", "embeddedmemory_memory_fk"),
]

# Each statement reads once whether an index follows the outbox, and inserts once. All three row triggers name their
# rows `changed`. An update never changes an id. An import with `mnemoscope.batch` on writes one entry for its batch
# itself, instead of one for each new memory. A role that may write memories needs no right to the outbox, nor a search
# path that includes it, as when a dump is restored.
OUTBOX_FUNCTION = """
CREATE FUNCTION memories_outbox_add() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  IF TG_OP = 'INSERT' AND current_setting('mnemoscope.batch', true) = 'on' THEN
    RETURN NULL;
  END IF;
  IF (SELECT indexed FROM memories_corpus WHERE id = 1) THEN
    IF TG_OP = 'TRUNCATE' THEN
      INSERT INTO memories_outbox (memory_id, at) VALUES (0, clock_timestamp());
    ELSE
      INSERT INTO memories_outbox (memory_id, at) SELECT id, clock_timestamp() FROM changed;
    END IF;
  END IF;
  RETURN NULL;
END $$
"""
OUTBOX_TRIGGERS = [
    ("memory_outbox_insert", "INSERT", "REFERENCING NEW TABLE AS changed"),
    ("memory_outbox_update", "UPDATE", "REFERENCING NEW TABLE AS changed"),
    ("memory_outbox_delete", "DELETE", "REFERENCING OLD TABLE AS changed"),
    ("memory_outbox_truncate", "TRUNCATE", ""),
]


class Migration(migrations.Migration):

    initial = True

    dependencies = []

    operations = [
        # A blocked statement gives up instead of blocking everything behind it.
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        VectorExtension(),
        TrigramExtension(),
        # The application draws memory ids before the insert, in blocks, so that a distributed database works alike.
        migrations.RunSQL("CREATE SEQUENCE memory_id_seq AS bigint", "DROP SEQUENCE memory_id_seq"),
        migrations.CreateModel(
            name='Corpus',
            fields=[
                ('id', models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ('revision', models.BigIntegerField(default=0)),
                ('vectors', models.BigIntegerField(db_default=0, default=0, help_text='Rises with every change to the vectors, so that what they give can be kept.')),
                ('indexed', models.BooleanField(db_default=False, default=False, help_text='Whether changes are written to the outbox, for the derived index.')),
                ('generation', models.CharField(blank=True, db_default='', default='', help_text='The derived index that the outbox is for.', max_length=60)),
                ('replica', models.CharField(blank=True, db_default='', default='', help_text='The replica of the vectors that changes to them are written down for.', max_length=60)),
            ],
            options={
                'verbose_name_plural': 'corpus',
            },
        ),
        migrations.CreateModel(
            name='ImportBatch',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('origin', models.TextField(help_text='The path it was read from.')),
                ('format', models.CharField(max_length=40)),
                ('state', models.CharField(choices=[('running', 'Running'), ('done', 'Done'), ('failed', 'Failed'), ('undone', 'Undone')], default='running', max_length=10)),
                ('started_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('read', models.IntegerField(default=0)),
                ('created', models.IntegerField(default=0)),
                ('updated', models.IntegerField(default=0)),
                ('unchanged', models.IntegerField(default=0)),
                ('refused', models.IntegerField(default=0)),
                ('report', models.JSONField(blank=True, default=dict)),
            ],
            options={
                'verbose_name_plural': 'import batches',
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='OutboxEntry',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('memory_id', models.BigIntegerField()),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'verbose_name_plural': 'outbox entries',
                'db_table': 'memories_outbox',
            },
        ),
        migrations.CreateModel(
            name='VectorChange',
            fields=[
                ('revision', models.BigIntegerField(primary_key=True, serialize=False)),
                ('model_id', models.SmallIntegerField()),
                ('memory_ids', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), size=None)),
            ],
        ),
        migrations.CreateModel(
            name='EmbeddingModel',
            fields=[
                ('id', models.SmallIntegerField(primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=200)),
                ('source', models.TextField(help_text='Where it is loaded from: a path, or a name that sentence-transformers knows.')),
                ('dimensions', models.SmallIntegerField()),
                ('min_similarity', models.FloatField(help_text='What is less similar to a query does not match it by meaning.')),
                ('state', models.CharField(choices=[('building', 'Building'), ('serving', 'Serving'), ('retired', 'Retired')], default='building', max_length=10)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('name',), name='embeddingmodel_name_unique'), models.UniqueConstraint(condition=models.Q(('state', 'serving')), fields=('state',), name='embeddingmodel_one_serving'), models.CheckConstraint(condition=models.Q(('state__in', ['building', 'serving', 'retired'])), name='embeddingmodel_state_known')],
            },
        ),
        migrations.CreateModel(
            name='Project',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('slug', models.CharField(max_length=100)),
                ('name', models.CharField(max_length=200)),
                ('description', models.TextField(blank=True)),
                ('language', models.CharField(default='english', help_text='The Snowball stemmer for its texts.', max_length=20)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('batch', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='memories.importbatch')),
            ],
            options={
                'ordering': ['slug'],
            },
        ),
        migrations.CreateModel(
            name='Session',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('external_id', models.CharField(max_length=200)),
                ('agent', models.CharField(blank=True, max_length=200)),
                ('title', models.CharField(blank=True, max_length=500)),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
                ('batch', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='memories.importbatch')),
                ('project', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='sessions', to='memories.project')),
            ],
        ),
        migrations.CreateModel(
            name='Memory',
            fields=[
                ('id', models.BigIntegerField(primary_key=True, serialize=False)),
                ('memory_type', models.CharField(default='note', max_length=100)),
                ('title', models.TextField(blank=True)),
                ('summary', models.TextField(blank=True)),
                ('content', models.TextField()),
                ('tags', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), blank=True, default=list, size=None)),
                ('state', models.CharField(choices=[('active', 'Active'), ('proposed', 'Proposed'), ('archived', 'Archived'), ('superseded', 'Superseded'), ('deleted', 'Deleted')], default='active', max_length=10)),
                ('state_reason', models.TextField(blank=True)),
                ('importance', models.FloatField(blank=True, help_text='0 to 1; empty if unknown.', null=True)),
                ('confidence', models.FloatField(blank=True, help_text='0 to 1; empty if unknown.', null=True)),
                ('pinned', models.BooleanField(default=False)),
                ('authors', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), blank=True, default=list, size=None)),
                ('agent', models.CharField(blank=True, max_length=200)),
                ('source', models.CharField(blank=True, help_text='The system it came from.', max_length=200)),
                ('external_id', models.CharField(blank=True, help_text='Its id there.', max_length=500)),
                ('source_uri', models.TextField(blank=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('happened_at', models.DateTimeField(blank=True, null=True)),
                ('updated_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('valid_from', models.DateTimeField(blank=True, null=True)),
                ('valid_to', models.DateTimeField(blank=True, null=True)),
                ('content_hash', models.CharField(help_text='Of title and content, to know a repeat by, and a text that is yet to be embedded.', max_length=32)),
                ('record_hash', models.CharField(blank=True, help_text='Of the record as it was imported.', max_length=32)),
                ('raw', models.JSONField(blank=True, help_text='The record as it was imported.', null=True)),
                ('terms', django.contrib.postgres.search.SearchVectorField(editable=False, null=True)),
                ('category_ids', django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), blank=True, default=list, editable=False, size=None)),
                ('category_path_ids', django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), blank=True, default=list, editable=False, size=None)),
                ('concept_ids', django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), blank=True, default=list, editable=False, size=None)),
                ('entity_ids', django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), blank=True, default=list, editable=False, size=None)),
                ('batch', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='memories', to='memories.importbatch')),
                ('superseded_by', models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='supersedes', to='memories.memory')),
                ('project', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='memories', to='memories.project')),
                ('session', models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='memories', to='memories.session')),
            ],
            options={
                'verbose_name_plural': 'memories',
            },
        ),
        migrations.CreateModel(
            name='EmbeddedMemory',
            fields=[
                ('pk', models.CompositePrimaryKey('memory_id', 'model_id', blank=True, editable=False, primary_key=True, serialize=False)),
                ('memory', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='memories.memory')),
                ('model', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='memories.embeddingmodel')),
                ('content_hash', models.CharField(max_length=32)),
                ('chunks', models.IntegerField()),
            ],
            options={
                'indexes': [models.Index(fields=['model', 'memory'], include=('content_hash',), name='embeddedmemory_hash_idx')],
            },
        ),
        migrations.CreateModel(
            name='Chunk',
            fields=[
                ('pk', models.CompositePrimaryKey('memory_id', 'model_id', 'ordinal', blank=True, editable=False, primary_key=True, serialize=False)),
                ('memory', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='chunks', to='memories.memory')),
                ('model', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='memories.embeddingmodel')),
                ('ordinal', models.IntegerField()),
                ('start', models.IntegerField(help_text='Where it begins in the content, in characters.')),
                ('end', models.IntegerField(help_text='Where it ends.')),
                ('embedding', pgvector.django.halfvec.HalfVectorField(dimensions=384, help_text='The number of dimensions is set by `manage.py embedding_dimensions`.')),
            ],
            options={
                'indexes': [pgvector.django.indexes.HnswIndex(ef_construction=128, fields=['embedding'], m=24, name='chunk_embedding_hnsw', opclasses=['halfvec_cosine_ops'])],
            },
        ),
        migrations.CreateModel(
            name='MemoryLink',
            fields=[
                ('pk', models.CompositePrimaryKey('memory_id', 'ordinal', blank=True, editable=False, primary_key=True, serialize=False)),
                ('ordinal', models.SmallIntegerField()),
                ('rel', models.CharField(max_length=100)),
                ('target', models.CharField(help_text='The name it was linked by.', max_length=500)),
                ('url', models.TextField(blank=True)),
                ('memory', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='links', to='memories.memory')),
                ('target_memory', models.ForeignKey(blank=True, db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='backlinks', to='memories.memory')),
            ],
            options={
                'indexes': [models.Index(fields=['target_memory'], name='memorylink_target_idx'), models.Index(condition=models.Q(('target_memory__isnull', True)), fields=['target'], name='memorylink_dangling_idx')],
            },
        ),
        migrations.AddConstraint(
            model_name='project',
            constraint=models.UniqueConstraint(fields=('slug',), name='project_slug_unique'),
        ),
        migrations.AddConstraint(
            model_name='session',
            constraint=models.UniqueConstraint(fields=('project', 'external_id'), name='session_external_unique'),
        ),
        migrations.AddIndex(
            model_name='memory',
            index=django.contrib.postgres.indexes.GinIndex(fields=['terms'], name='memory_terms_gin'),
        ),
        migrations.AddIndex(
            model_name='memory',
            index=django.contrib.postgres.indexes.GinIndex(fields=['tags'], name='memory_tags_gin'),
        ),
        migrations.AddIndex(
            model_name='memory',
            index=django.contrib.postgres.indexes.GinIndex(fields=['authors'], name='memory_authors_gin'),
        ),
        migrations.AddIndex(
            model_name='memory',
            index=django.contrib.postgres.indexes.GinIndex(fields=['category_ids'], name='memory_category_gin'),
        ),
        migrations.AddIndex(
            model_name='memory',
            index=django.contrib.postgres.indexes.GinIndex(fields=['category_path_ids'], name='memory_category_path_gin'),
        ),
        migrations.AddIndex(
            model_name='memory',
            index=django.contrib.postgres.indexes.GinIndex(fields=['concept_ids'], name='memory_concept_gin'),
        ),
        migrations.AddIndex(
            model_name='memory',
            index=django.contrib.postgres.indexes.GinIndex(fields=['entity_ids'], name='memory_entity_gin'),
        ),
        migrations.AddIndex(
            model_name='memory',
            index=models.Index(fields=['-created_at', '-id'], name='memory_created_idx'),
        ),
        migrations.AddIndex(
            model_name='memory',
            index=models.Index(fields=['state', '-created_at', '-id'], name='memory_state_created_idx'),
        ),
        migrations.AddIndex(
            model_name='memory',
            index=models.Index(fields=['project', '-created_at', '-id'], name='memory_project_created_idx'),
        ),
        migrations.AddIndex(
            model_name='memory',
            index=models.Index(fields=['memory_type'], name='memory_type_idx'),
        ),
        migrations.AddIndex(
            model_name='memory',
            index=models.Index(fields=['project', 'external_id'], name='memory_external_idx'),
        ),
        migrations.AddIndex(
            model_name='memory',
            index=models.Index(fields=['project', 'content_hash'], name='memory_content_hash_idx'),
        ),
        migrations.AddIndex(
            model_name='memory',
            index=models.Index(fields=['id'], include=('content_hash',), name='memory_text_idx'),
        ),
        migrations.AddIndex(
            model_name='memory',
            index=models.Index(condition=models.Q(('batch__isnull', False)), fields=['batch'], name='memory_batch_idx'),
        ),
        migrations.AddIndex(
            model_name='memory',
            index=models.Index(condition=models.Q(('session__isnull', False)), fields=['session'], name='memory_session_idx'),
        ),
        migrations.AddIndex(
            model_name='memory',
            index=models.Index(condition=models.Q(('superseded_by__isnull', False)), fields=['superseded_by'], name='memory_superseded_idx'),
        ),
        migrations.AddConstraint(
            model_name='memory',
            constraint=models.CheckConstraint(condition=models.Q(('state__in', ['active', 'proposed', 'archived', 'superseded', 'deleted'])), name='memory_state_known'),
        ),
        migrations.AddConstraint(
            model_name='memory',
            constraint=models.CheckConstraint(condition=models.Q(('importance__isnull', True), ('importance__range', (0, 1)), _connector='OR'), name='memory_importance_range'),
        ),
        migrations.AddConstraint(
            model_name='memory',
            constraint=models.CheckConstraint(condition=models.Q(('confidence__isnull', True), ('confidence__range', (0, 1)), _connector='OR'), name='memory_confidence_range'),
        ),
        migrations.RunSQL(
            [
                *[f"ALTER TABLE memories_memory ALTER COLUMN {column} SET STORAGE MAIN" for column in FACET_ARRAYS],
                *[f"ALTER TABLE memories_memory ALTER COLUMN {column} SET STORAGE EXTERNAL" for column in UNCOMPRESSED],
                "ALTER TABLE memories_memory SET (toast_tuple_target = 512)",
                # A scan compares every vector, so vectors stay in their rows.
                "ALTER TABLE memories_chunk ALTER COLUMN embedding SET STORAGE PLAIN",
            ],
            migrations.RunSQL.noop,
        ),
        *[
            migrations.RunSQL(
                f"ALTER TABLE {table} ADD CONSTRAINT {name}"
                " FOREIGN KEY (memory_id) REFERENCES memories_memory (id) ON DELETE CASCADE",
                f"ALTER TABLE {table} DROP CONSTRAINT {name}",
            )
            for table, name in VECTOR_TABLES
        ],
        migrations.RunSQL(OUTBOX_FUNCTION, "DROP FUNCTION memories_outbox_add()"),
        # ALWAYS: a session that skips the checks of foreign keys still fills the outbox.
        *[
            migrations.RunSQL(
                [
                    f"CREATE TRIGGER {name} AFTER {event} ON memories_memory {rows}"
                    " FOR EACH STATEMENT EXECUTE FUNCTION memories_outbox_add()",
                    f"ALTER TABLE memories_memory ENABLE ALWAYS TRIGGER {name}",
                ],
                f"DROP TRIGGER {name} ON memories_memory",
            )
            for name, event, rows in OUTBOX_TRIGGERS
        ],
        migrations.RunSQL("INSERT INTO memories_corpus (id, revision) VALUES (1, 0)", migrations.RunSQL.noop),
    ]
