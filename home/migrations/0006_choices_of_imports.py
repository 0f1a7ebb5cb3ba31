from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("home", "0005_changed_since"),
    ]

    operations = [
        # A blocked statement gives up instead of blocking everything behind it.
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.AddField(
            model_name="importjob",
            name="read_as",
            field=models.JSONField(
                default=dict,
                db_default={},
                help_text="Chosen for its records: values of all, types of notes, and the order of dates.",
            ),
        ),
    ]
