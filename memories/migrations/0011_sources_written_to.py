from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("memories", "0010_choices_of_followed_sources"),
    ]

    operations = [
        # A blocked statement gives up instead of blocking everything behind it.
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.AddField(
            model_name="followedsource",
            name="written_revision",
            field=models.BigIntegerField(
                help_text="The revision up to which edits made here are written to it; null if none are.", null=True
            ),
        ),
    ]
