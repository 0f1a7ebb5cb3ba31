"""What curators do to the vocabulary, and how to undo it; the names that things had before."""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('access', '0002_requests_per_minute'),
        ('categories', '0002_search'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Curation',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('verb', models.CharField(max_length=20)),
                ('kind', models.CharField(max_length=20)),
                ('title', models.TextField(help_text='What was done, in a sentence.')),
                ('arguments', models.JSONField(default=dict)),
                ('terms', django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), default=list, help_text='What it changed, as kind:id.', size=None)),
                ('merged', models.JSONField(default=dict, help_text='Of the kind: the id that went, and the one that took its place.')),
                ('project_ids', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), default=list, help_text='Of the memories that it changed.', size=None)),
                ('memories', models.IntegerField(default=0, help_text='How many it changed.')),
                ('door', models.CharField(max_length=10)),
                ('at', models.DateTimeField(default=django.utils.timezone.now)),
                ('undone_at', models.DateTimeField(blank=True, null=True)),
                ('api_key', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to='access.apikey')),
                ('undone_by', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('user', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.CreateModel(
            name='CurationChange',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('table', models.CharField(max_length=30)),
                ('action', models.CharField(choices=[('insert', 'Insert'), ('update', 'Update'), ('delete', 'Delete'), ('relink', 'Relink'), ('link', 'Link'), ('unlink', 'Unlink'), ('weigh', 'Weigh'), ('tag', 'Tag')], max_length=10)),
                ('source_id', models.BigIntegerField(null=True)),
                ('target_id', models.BigIntegerField(null=True)),
                ('memory_ids', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), null=True, size=None)),
                ('before', models.JSONField(default=list)),
                ('after', models.JSONField(default=list)),
                ('curation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='changes', to='curation')),
            ],
            options={
                'ordering': ['id'],
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
        migrations.CreateModel(
            name='FormerPath',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('path', models.CharField(max_length=1500)),
                ('category', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='former_paths', to='categories.category')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('path',), name='formerpath_path_unique')],
            },
        ),
        # A path that somebody had once is no reason to keep a category, by whatever door that goes.
        migrations.RunSQL(
            "ALTER TABLE categories_formerpath ADD CONSTRAINT formerpath_category_fk FOREIGN KEY (category_id)"
            " REFERENCES categories_category (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED",
            "ALTER TABLE categories_formerpath DROP CONSTRAINT formerpath_category_fk",
        ),
    ]
