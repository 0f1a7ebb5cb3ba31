"""Which memories may steer a model that reads them, and who judged otherwise."""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('memories', '0012_secrets_of_projects'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        # A blocked statement gives up instead of blocking everything behind it.
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.AddField(
            model_name='corpus',
            name='marked_below',
            field=models.BigIntegerField(db_default=0, default=0, help_text='Memories with smaller ids are yet to be looked at by these rules.'),
        ),
        migrations.AddField(
            model_name='corpus',
            name='marked_by',
            field=models.SmallIntegerField(db_default=0, default=0, help_text='The rules by which memories have been looked at for marks.'),
        ),
        migrations.AddField(
            model_name="memory",
            name="trust",
            field=models.SmallIntegerField(
                blank=True,
                choices=[(0, "from outside"), (1, "by an agent"), (2, "by a person")],
                help_text="The origin of its words; empty if earlier versions stored it.",
                null=True,
            ),
        ),
        migrations.CreateModel(
            name='MemoryMark',
            fields=[
                ('memory', models.OneToOneField(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, primary_key=True, related_name='+', serialize=False, to='memories.memory')),
                ('marks', django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=20), size=None)),
                ('text_hash', models.CharField(help_text='Of the texts that were looked at.', max_length=32)),
                ('harmless_at', models.DateTimeField(blank=True, help_text='When somebody judged the text harmless.', null=True)),
                ('harmless_by', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        # The database deletes marks with their memory, as it does vectors.
        migrations.RunSQL(
            "ALTER TABLE memories_memorymark ADD CONSTRAINT memorymark_memory_fk"
            " FOREIGN KEY (memory_id) REFERENCES memories_memory (id) ON DELETE CASCADE",
            "ALTER TABLE memories_memorymark DROP CONSTRAINT memorymark_memory_fk",
        ),
    ]
