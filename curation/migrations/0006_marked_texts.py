"""Suggestions about texts that may steer a model."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('curation', '0005_columns_of_memories'),
    ]

    operations = [
        # A blocked statement gives up instead of blocking everything behind it.
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.AlterField(
            model_name='suggestion',
            name='kind',
            field=models.CharField(choices=[('marked', 'Marked texts'), ('category', 'Categories'), ('concept', 'Concepts'), ('entity_duplicate', 'Same entity'), ('concept_duplicate', 'Same concept'), ('tag_duplicate', 'Same tag'), ('memory_duplicate', 'Near-duplicates'), ('superseded', 'Possibly outdated')], max_length=20),
        ),
    ]
