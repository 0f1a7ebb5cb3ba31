"""The tables of curations with the changes for their undo, of suggestions, and of the policies for accepting them.

References to projects have no database constraint: in a Citus cluster that is a reference table and these are local
ones. Django removes these rows with their project.
"""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('access', '0001_initial'),
        ('memories', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        # A blocked statement gives up instead of blocking everything behind it.
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
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
                ('curation', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='changes', to='curation.curation')),
            ],
            options={
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='Suggestion',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('category', 'Categories'), ('concept', 'Concepts'), ('entity_duplicate', 'Same entity'), ('concept_duplicate', 'Same concept'), ('tag_duplicate', 'Same tag'), ('memory_duplicate', 'Near-duplicates'), ('superseded', 'Possibly outdated')], max_length=20)),
                ('fingerprint', models.CharField(max_length=32)),
                ('subject_id', models.BigIntegerField(blank=True, null=True)),
                ('target_id', models.BigIntegerField(blank=True, null=True)),
                ('proposal', models.JSONField(default=dict)),
                ('confidence', models.FloatField()),
                ('reason', models.TextField(blank=True)),
                ('evidence', models.JSONField(blank=True, default=dict)),
                ('state', models.CharField(choices=[('open', 'Open'), ('accepted', 'Accepted'), ('rejected', 'Rejected')], default='open', max_length=10)),
                ('made_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('decided_at', models.DateTimeField(blank=True, null=True)),
                ('is_automatic', models.BooleanField(default=False, help_text='Accepted automatically by the policy of its project.')),
                ('applied', models.JSONField(blank=True, help_text='The changes made when it was accepted, for undo.', null=True)),
                ('decided_by', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='memories.project')),
            ],
            options={
                'ordering': ['-confidence', 'id'],
                'indexes': [models.Index(fields=['kind', 'state', '-confidence', 'id'], name='suggestion_queue_idx'), models.Index(fields=['subject_id', 'kind'], name='suggestion_subject_idx')],
                'constraints': [models.UniqueConstraint(fields=('fingerprint',), name='suggestion_unique'), models.CheckConstraint(condition=models.Q(('state__in', ['open', 'accepted', 'rejected'])), name='suggestion_state_known'), models.CheckConstraint(condition=models.Q(('confidence__range', (0, 1))), name='suggestion_confidence_range')],
            },
        ),
        migrations.CreateModel(
            name='SuggestionPolicy',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('category_from', models.FloatField(blank=True, help_text='Categories with at least this confidence are accepted automatically. Empty: never.', null=True)),
                ('concept_from', models.FloatField(blank=True, help_text='Concepts with at least this confidence are accepted automatically. Empty: never.', null=True)),
                ('project', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='suggestion_policy', to='memories.project')),
            ],
            options={
                'verbose_name_plural': 'suggestion policies',
                'constraints': [models.CheckConstraint(condition=models.Q(('category_from__isnull', True), ('category_from__range', (0.5, 1)), _connector='OR'), name='suggestionpolicy_category_range'), models.CheckConstraint(condition=models.Q(('concept_from__isnull', True), ('concept_from__range', (0.5, 1)), _connector='OR'), name='suggestionpolicy_concept_range')],
            },
        ),
    ]
