"""Finds the changes of a memory in the journal: every change of links and tags names its memories, under an index."""

import django.contrib.postgres.indexes
from django.db import migrations

# Until now only links that moved or were made did. Rows of links and tags begin with the id of their memory.
_NAME_MEMORIES = """
UPDATE curation_curationchange change SET memory_ids = ARRAY(
  SELECT DISTINCT (row ->> 0)::bigint FROM jsonb_array_elements(change.before) row ORDER BY 1
) WHERE action IN ('unlink', 'weigh', 'tag') AND memory_ids IS NULL
"""


class Migration(migrations.Migration):

    dependencies = [
        ('curation', '0001_initial'),
    ]

    operations = [
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.RunSQL(_NAME_MEMORIES, migrations.RunSQL.noop),
        migrations.AddIndex(
            model_name='curationchange',
            index=django.contrib.postgres.indexes.GinIndex(fields=['memory_ids'], name='curationchange_memory_gin'),
        ),
    ]
