from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("memories", "0011_sources_written_to"),
    ]

    operations = [
        # A blocked statement gives up instead of blocking everything behind it.
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.AddField(
            model_name="project",
            name="secrets",
            field=models.CharField(
                blank=True,
                choices=[("mask", "mask them"), ("refuse", "refuse the memory"), ("off", "leave them")],
                db_default="",
                default="",
                help_text="What is done about secrets in its memories; if empty, as on the whole site.",
                max_length=10,
            ),
        ),
    ]
