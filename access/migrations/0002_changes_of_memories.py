"""The feed of changes, begun with the changes that the audit trail and the imports remember."""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

# In the order of their times, as if all were one revision before those to come.
_BEGIN = """
INSERT INTO access_memorychange (revision, at, project_id, kind, memory_ids, event_id)
SELECT 0, at, project_id, kind, memory_ids, event_id FROM (
  SELECT event.at, memory.project_id, CASE
    WHEN event.before IS NULL THEN 'created'
    WHEN event.before ? 'state' AND event.after ->> 'state' IN ('superseded', 'archived', 'deleted')
      THEN event.after ->> 'state'
    WHEN event.verb = 'restore' THEN 'restored'
    WHEN event.verb = 'classify' THEN 'retagged'
    ELSE 'edited' END AS kind, ARRAY[memory.id] AS memory_ids, event.id AS event_id
  FROM access_auditevent event JOIN memories_memory memory ON memory.id = event.subject_id
  WHERE event.subject_type = 'memory'
  UNION ALL
  SELECT event.at, memory.project_id, 'created', array_agg(memory.id ORDER BY memory.id), event.id
  FROM access_auditevent event JOIN (
    SELECT id, project_id, batch_id, (row_number() OVER (PARTITION BY batch_id, project_id ORDER BY id) - 1) / 1000 AS block
    FROM memories_memory WHERE batch_id IS NOT NULL
  ) memory ON memory.batch_id = event.subject_id
  WHERE event.subject_type = 'importbatch' AND event.verb = 'import'
  GROUP BY event.id, memory.project_id, memory.block
) known ORDER BY at, event_id
"""


class Migration(migrations.Migration):

    dependencies = [
        ('access', '0001_initial'),
        ('memories', '0001_initial'),
    ]

    operations = [
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.CreateModel(
            name='MemoryChange',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('revision', models.BigIntegerField(null=True)),
                ('at', models.DateTimeField(null=True)),
                ('project_id', models.BigIntegerField()),
                ('kind', models.CharField(choices=[('created', 'Created'), ('edited', 'Edited'), ('superseded', 'Superseded'), ('archived', 'Archived'), ('deleted', 'Deleted'), ('restored', 'Restored'), ('retagged', 'Retagged'), ('merged', 'Merged')], max_length=20)),
                ('memory_ids', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), size=None)),
                ('event', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='changes', to='access.auditevent')),
            ],
            options={
                'ordering': ['revision', 'id'],
                'indexes': [models.Index(fields=['revision', 'id'], include=('kind',), name='memorychange_feed_idx'), models.Index(fields=['project_id', 'revision', 'id'], include=('kind',), name='memorychange_project_idx'), models.Index(fields=['at', 'revision', 'id'], name='memorychange_at_idx'), models.Index(condition=models.Q(('revision__isnull', True)), fields=['id'], name='memorychange_open_idx')],
            },
        ),
        migrations.RunSQL(_BEGIN, migrations.RunSQL.noop),
    ]
