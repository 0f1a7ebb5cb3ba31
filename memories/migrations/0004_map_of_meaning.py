"""Maps of meaning: layouts, and the places of memories on them."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('memories', '0003_memory_updated_idx'),
    ]

    operations = [
        # A blocked statement gives up instead of blocking everything behind it.
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.CreateModel(
            name='MapLayout',
            fields=[
                ('id', models.IntegerField(primary_key=True, serialize=False)),
                ('model_id', models.SmallIntegerField(help_text='The embedding model whose vectors it arranges.')),
                ('memories', models.IntegerField(help_text='How many memories there were when it was drawn.')),
                ('revision', models.BigIntegerField(default=0)),
                ('drawn_at', models.DateTimeField(default=django.utils.timezone.now)),
            ],
        ),
        migrations.CreateModel(
            name='MapPlace',
            fields=[
                ('pk', models.CompositePrimaryKey('memory_id', 'layout_id', blank=True, editable=False, primary_key=True, serialize=False)),
                ('x', models.IntegerField()),
                ('y', models.IntegerField()),
                ('cell', models.IntegerField()),
                ('revision', models.BigIntegerField()),
                ('is_anchor', models.BooleanField(default=False)),
                ('content_hash', models.CharField(help_text='Of the text that was placed.', max_length=32)),
                ('layout', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='memories.maplayout')),
                ('memory', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='memories.memory')),
            ],
            options={
                'indexes': [models.Index(fields=['layout', 'cell'], name='mapplace_cell_idx'), models.Index(fields=['layout', 'revision'], name='mapplace_revision_idx'), models.Index(fields=['layout', 'memory'], include=('content_hash',), name='mapplace_hash_idx'), models.Index(condition=models.Q(('is_anchor', True)), fields=['layout'], name='mapplace_anchor_idx')],
            },
        ),
        # The database deletes places with their memory, as it does vectors.
        migrations.RunSQL(
            "ALTER TABLE memories_mapplace ADD CONSTRAINT mapplace_memory_fk"
            " FOREIGN KEY (memory_id) REFERENCES memories_memory (id) ON DELETE CASCADE",
            "ALTER TABLE memories_mapplace DROP CONSTRAINT mapplace_memory_fk",
        ),
    ]
