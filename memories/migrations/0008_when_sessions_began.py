"""When sessions began, for their list: where they do not say it, the date of the earliest of their memories."""

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models.functions import Coalesce

_AT_ONCE = 1_000


def fill_in(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Read the dates first: an update joined with memories is refused where those are on several nodes."""
    session, memory = apps.get_model("memories", "Session"), apps.get_model("memories", "Memory")
    dates = memory.objects.filter(session__isnull=False).order_by().values_list("session_id")
    firsts = [session(pk=pk, first_at=at) for pk, at in dates.annotate(first=models.Min("created_at"))]
    session.objects.bulk_update(firsts, ["first_at"], batch_size=_AT_ONCE)


class Migration(migrations.Migration):
    dependencies = [("memories", "0007_readings_to_forget")]

    operations = [
        # A blocked statement gives up instead of blocking everything behind it.
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.AddField(
            model_name="session",
            name="first_at",
            field=models.DateTimeField(
                blank=True, help_text="The date of the earliest memory stored in it.", null=True
            ),
        ),
        migrations.RunPython(fill_in, migrations.RunPython.noop),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                Coalesce("started_at", "first_at").desc(nulls_last=True),
                models.F("id").desc(),
                name="session_begun_idx",
            ),
        ),
    ]
