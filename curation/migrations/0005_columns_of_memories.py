from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("curation", "0004_decided_together")]

    operations = [
        # A blocked statement gives up instead of blocking everything behind it.
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.AlterField(
            model_name="curationchange",
            name="action",
            field=models.CharField(
                choices=[
                    ("insert", "Insert"),
                    ("update", "Update"),
                    ("delete", "Delete"),
                    ("relink", "Relink"),
                    ("link", "Link"),
                    ("unlink", "Unlink"),
                    ("weigh", "Weigh"),
                    ("tag", "Tag"),
                    ("state", "State"),
                    ("columns", "Columns"),
                ],
                max_length=10,
            ),
        ),
    ]
