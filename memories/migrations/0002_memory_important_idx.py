"""An index for the pinned and important memories of a project."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("memories", "0001_initial")]

    operations = [
        # A blocked statement gives up instead of blocking everything behind it.
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.AddIndex(
            model_name="memory",
            index=models.Index(
                fields=["project", "-pinned", "-created_at", "-id"],
                name="memory_important_idx",
                condition=models.Q(models.Q(pinned=True) | models.Q(importance__gte=0.8), state="active"),
            ),
        ),
    ]
