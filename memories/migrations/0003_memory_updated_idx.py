"""An index for filters and orders by the last change."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("memories", "0002_memory_important_idx")]

    operations = [
        # A blocked statement gives up instead of blocking everything behind it.
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.AddIndex(
            model_name="memory",
            index=models.Index(fields=["-updated_at", "-id"], name="memory_updated_idx"),
        ),
    ]
