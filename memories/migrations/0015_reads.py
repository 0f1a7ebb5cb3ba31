"""The log of reads: which memories were given to whom."""

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('memories', '0014_marks_of_memories'),
    ]

    operations = [
        # A blocked statement gives up instead of blocking everything behind it.
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.CreateModel(
            name='MemoryRead',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('at', models.DateTimeField()),
                ('user_id', models.IntegerField(null=True)),
                ('api_key_id', models.BigIntegerField(null=True)),
                ('door', models.CharField(choices=[('page', 'Page'), ('api', 'Api'), ('mcp', 'Mcp'), ('claude-mem', 'Claude Mem'), ('feed', 'Feed'), ('admin', 'Admin'), ('command', 'Command')], max_length=10)),
                ('operation', models.CharField(max_length=200)),
                ('session', models.CharField(max_length=200)),
                ('kind', models.CharField(choices=[('list', 'List'), ('whole', 'Whole'), ('context', 'Context'), ('export', 'Export')], max_length=10)),
                ('query', models.TextField()),
                ('memory_ids', django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), size=None)),
                ('number', models.IntegerField()),
            ],
            options={
                'ordering': ['-id'],
                'indexes': [models.Index(fields=['at'], name='memoryread_at_idx'), models.Index(condition=models.Q(('user_id__isnull', False)), fields=['user_id', 'id'], name='memoryread_user_idx'), models.Index(condition=models.Q(('api_key_id__isnull', False)), fields=['api_key_id', 'id'], name='memoryread_key_idx'), models.Index(condition=models.Q(('session', ''), _negated=True), fields=['session', 'id'], name='memoryread_session_idx'), models.Index(condition=models.Q(('number__gt', 1000)), fields=['id'], name='memoryread_large_idx'), django.contrib.postgres.indexes.GinIndex(fastupdate=False, fields=['memory_ids'], name='memoryread_memories_gin')],
            },
        ),
    ]
