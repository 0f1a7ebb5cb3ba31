"""The changes of vectors, written down for the replica that processes search by meaning in."""

import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("memories", "0005_index_of_vectors")]

    operations = [
        migrations.CreateModel(
            name="VectorChange",
            fields=[
                ("revision", models.BigIntegerField(primary_key=True, serialize=False)),
                ("model_id", models.SmallIntegerField()),
                ("memory_ids", django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), size=None)),
            ],
        ),
        migrations.AddField(
            model_name="corpus",
            name="replica",
            field=models.CharField(blank=True, db_default="", default="", help_text="The replica of the vectors that changes to them are written down for.", max_length=60),
        ),
    ]
