from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("memories", "0009_words_in_every_script"),
    ]

    operations = [
        # A blocked statement gives up instead of blocking everything behind it.
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.AddField(
            model_name="followedsource",
            name="read_as",
            field=models.JSONField(
                default=dict,
                db_default={},
                help_text="Chosen for its records: values of all, types of notes, and the order of dates.",
            ),
        ),
    ]
