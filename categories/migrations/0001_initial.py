"""The tables of categories, concepts, entities, relationships and tag aliases, and their links to memories.

Besides what the models declare: the storage of vectors, and the deletion of vectors and former paths with their owner.
"""

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.contrib.postgres.search
import django.db.models.deletion
import django.db.models.functions.text
import django.utils.timezone
import pgvector.django.halfvec
from django.db import migrations, models

# The database deletes vectors with their owner, whatever deletes the owner.
VECTOR_OWNERS = ("entity", "relationship")


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('memories', '0001_initial'),
    ]

    operations = [
        # A blocked statement gives up instead of blocking everything behind it.
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.CreateModel(
            name='Category',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=300)),
                ('path', models.CharField(max_length=1500)),
                ('depth', models.SmallIntegerField(default=1)),
                ('aliases', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), blank=True, default=list, size=None)),
                ('description', models.TextField(blank=True)),
                ('related_ids', django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), blank=True, default=list, size=None)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('batch', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='memories.importbatch')),
                ('parent', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='children', to='categories.category')),
            ],
            options={
                'verbose_name_plural': 'categories',
                'ordering': ['path'],
            },
        ),
        migrations.CreateModel(
            name='CategoryLink',
            fields=[
                ('made_by', models.CharField(choices=[('human', 'Human'), ('import', 'Import'), ('model', 'Model')], default='human', max_length=10)),
                ('weight', models.FloatField(default=1.0)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('pk', models.CompositePrimaryKey('memory_id', 'category_id', blank=True, editable=False, primary_key=True, serialize=False)),
                ('category', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='links', to='categories.category')),
                ('memory', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='category_links', to='memories.memory')),
            ],
            options={
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='Concept',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=300)),
                ('concept_type', models.CharField(blank=True, max_length=100)),
                ('aliases', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), blank=True, default=list, size=None)),
                ('description', models.TextField(blank=True)),
                ('broader_ids', django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), blank=True, default=list, size=None)),
                ('narrower_ids', django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), blank=True, default=list, size=None)),
                ('related_ids', django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), blank=True, default=list, size=None)),
                ('weight', models.FloatField(blank=True, null=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('batch', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='memories.importbatch')),
            ],
            options={
                'ordering': ['name'],
            },
        ),
        migrations.CreateModel(
            name='ConceptLink',
            fields=[
                ('made_by', models.CharField(choices=[('human', 'Human'), ('import', 'Import'), ('model', 'Model')], default='human', max_length=10)),
                ('weight', models.FloatField(default=1.0)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('pk', models.CompositePrimaryKey('memory_id', 'concept_id', blank=True, editable=False, primary_key=True, serialize=False)),
                ('concept', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='links', to='categories.concept')),
                ('memory', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='concept_links', to='memories.memory')),
            ],
            options={
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='Entity',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=500)),
                ('entity_type', models.CharField(max_length=100)),
                ('aliases', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), blank=True, default=list, size=None)),
                ('description', models.TextField(blank=True)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('batch', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='memories.importbatch')),
                ('terms', django.contrib.postgres.search.SearchVectorField(editable=False, null=True)),
                ('terms_hash', models.CharField(blank=True, db_default='', default='', editable=False, help_text='Of the text they are of.', max_length=32)),
            ],
            options={
                'verbose_name_plural': 'entities',
                'ordering': ['name', 'entity_type'],
            },
        ),
        migrations.CreateModel(
            name='EntityLink',
            fields=[
                ('made_by', models.CharField(choices=[('human', 'Human'), ('import', 'Import'), ('model', 'Model')], default='human', max_length=10)),
                ('weight', models.FloatField(default=1.0)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('pk', models.CompositePrimaryKey('memory_id', 'entity_id', blank=True, editable=False, primary_key=True, serialize=False)),
                ('entity', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='links', to='categories.entity')),
                ('memory', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='entity_links', to='memories.memory')),
            ],
            options={
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='EntityVector',
            fields=[
                ('pk', models.CompositePrimaryKey('entity_id', 'model_id', blank=True, editable=False, primary_key=True, serialize=False)),
                ('entity', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='categories.entity')),
                ('model', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='memories.embeddingmodel')),
                ('text_hash', models.CharField(max_length=32)),
                ('embedding', pgvector.django.halfvec.HalfVectorField(dimensions=384, help_text='The number of dimensions is set by `manage.py embedding_dimensions`.')),
            ],
            options={
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='FormerPath',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('path', models.CharField(max_length=1500)),
                ('category', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='former_paths', to='categories.category')),
            ],
        ),
        migrations.CreateModel(
            name='Relationship',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('relationship_type', models.CharField(max_length=100)),
                ('fact', models.TextField(blank=True)),
                ('confidence', models.FloatField(blank=True, null=True)),
                ('valid_from', models.DateTimeField(blank=True, null=True)),
                ('valid_to', models.DateTimeField(blank=True, null=True)),
                ('evidence_ids', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), blank=True, default=list, size=None)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('batch', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='memories.importbatch')),
                ('source', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='relationships_out', to='categories.entity')),
                ('target', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='relationships_in', to='categories.entity')),
                ('terms', django.contrib.postgres.search.SearchVectorField(editable=False, null=True)),
                ('terms_hash', models.CharField(blank=True, db_default='', default='', editable=False, help_text='Of the text they are of.', max_length=32)),
            ],
        ),
        migrations.CreateModel(
            name='RelationshipVector',
            fields=[
                ('pk', models.CompositePrimaryKey('relationship_id', 'model_id', blank=True, editable=False, primary_key=True, serialize=False)),
                ('relationship', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='categories.relationship')),
                ('model', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='memories.embeddingmodel')),
                ('text_hash', models.CharField(max_length=32)),
                ('embedding', pgvector.django.halfvec.HalfVectorField(dimensions=384, help_text='The number of dimensions is set by `manage.py embedding_dimensions`.')),
            ],
            options={
                'abstract': False,
            },
        ),
        migrations.CreateModel(
            name='TagAlias',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('alias', models.CharField(max_length=200)),
                ('tag', models.CharField(max_length=200)),
            ],
            options={
                'verbose_name_plural': 'tag aliases',
                'ordering': ['alias'],
                'indexes': [models.Index(fields=['tag'], name='tagalias_tag_idx')],
                'constraints': [models.UniqueConstraint(fields=('alias',), name='tagalias_alias_unique'), models.CheckConstraint(condition=models.Q(('alias', models.F('tag')), _negated=True), name='tagalias_not_itself')],
            },
        ),
        migrations.AddIndex(
            model_name='category',
            index=models.Index(django.db.models.functions.text.Lower('name'), name='category_name_lower_idx'),
        ),
        migrations.AddIndex(
            model_name='category',
            index=django.contrib.postgres.indexes.GinIndex(fields=['name'], name='category_name_trgm', opclasses=['gin_trgm_ops']),
        ),
        migrations.AddConstraint(
            model_name='category',
            constraint=models.UniqueConstraint(fields=('path',), name='category_path_unique'),
        ),
        migrations.AddIndex(
            model_name='concept',
            index=django.contrib.postgres.indexes.GinIndex(fields=['name'], name='concept_name_trgm', opclasses=['gin_trgm_ops']),
        ),
        migrations.AddConstraint(
            model_name='concept',
            constraint=models.UniqueConstraint(django.db.models.functions.text.Lower('name'), name='concept_name_unique'),
        ),
        migrations.AddIndex(
            model_name='entity',
            index=django.contrib.postgres.indexes.GinIndex(fields=['name'], name='entity_name_trgm', opclasses=['gin_trgm_ops']),
        ),
        migrations.AddIndex(
            model_name='entity',
            index=django.contrib.postgres.indexes.GinIndex(fields=['terms'], name='entity_terms_gin'),
        ),
        migrations.AddConstraint(
            model_name='entity',
            constraint=models.UniqueConstraint(django.db.models.functions.text.Lower('name'), models.F('entity_type'), name='entity_name_type_unique'),
        ),
        migrations.AddConstraint(
            model_name='formerpath',
            constraint=models.UniqueConstraint(fields=('path',), name='formerpath_path_unique'),
        ),
        migrations.AddIndex(
            model_name='relationship',
            index=django.contrib.postgres.indexes.GinIndex(fields=['evidence_ids'], name='relationship_evidence_gin'),
        ),
        migrations.AddIndex(
            model_name='relationship',
            index=django.contrib.postgres.indexes.GinIndex(fields=['terms'], name='relationship_terms_gin'),
        ),
        migrations.AddConstraint(
            model_name='relationship',
            constraint=models.UniqueConstraint(fields=('source', 'relationship_type', 'target'), name='relationship_unique'),
        ),
        *[
            migrations.RunSQL(
                f"ALTER TABLE categories_{owner}vector ALTER COLUMN embedding SET STORAGE PLAIN,"
                f" ADD CONSTRAINT {owner}vector_{owner}_fk FOREIGN KEY ({owner}_id) REFERENCES categories_{owner} (id)"
                " ON DELETE CASCADE",
                f"ALTER TABLE categories_{owner}vector DROP CONSTRAINT {owner}vector_{owner}_fk",
            )
            for owner in VECTOR_OWNERS
        ],
        # A former path does not keep its category from being deleted.
        migrations.RunSQL(
            "ALTER TABLE categories_formerpath ADD CONSTRAINT formerpath_category_fk FOREIGN KEY (category_id)"
            " REFERENCES categories_category (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED",
            "ALTER TABLE categories_formerpath DROP CONSTRAINT formerpath_category_fk",
        ),
    ]
