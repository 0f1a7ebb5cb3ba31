"""How often memories were recalled, in all and by day."""

import django.db.models.deletion
from django.db import migrations, models


def _removed_with_its_memory(table: str, constraint: str) -> migrations.RunSQL:
    """The database deletes the rows with their memory, as it does vectors."""
    return migrations.RunSQL(
        f"ALTER TABLE {table} ADD CONSTRAINT {constraint}"
        " FOREIGN KEY (memory_id) REFERENCES memories_memory (id) ON DELETE CASCADE",
        f"ALTER TABLE {table} DROP CONSTRAINT {constraint}",
    )


class Migration(migrations.Migration):
    dependencies = [("memories", "0004_map_of_meaning")]

    operations = [
        # A blocked statement gives up instead of blocking everything behind it.
        migrations.RunSQL("SET LOCAL lock_timeout = '10s'", migrations.RunSQL.noop),
        migrations.CreateModel(
            name="Recall",
            fields=[
                (
                    "memory",
                    models.OneToOneField(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="memories.memory",
                    ),
                ),
                ("total", models.IntegerField()),
                ("by_agents", models.IntegerField()),
                ("first_at", models.DateTimeField()),
                ("last_at", models.DateTimeField()),
                ("revision", models.BigIntegerField()),
            ],
            options={
                "indexes": [
                    models.Index(fields=["revision"], name="recall_revision_idx"),
                    models.Index(fields=["last_at"], name="recall_last_idx"),
                ],
            },
        ),
        migrations.CreateModel(
            name="RecallDay",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "memory_id", "day", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "memory",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="memories.memory",
                    ),
                ),
                ("day", models.DateField()),
                ("total", models.IntegerField()),
                ("by_agents", models.IntegerField()),
            ],
            options={"indexes": [models.Index(fields=["day"], name="recallday_day_idx")]},
        ),
        _removed_with_its_memory("memories_recall", "recall_memory_fk"),
        _removed_with_its_memory("memories_recallday", "recallday_memory_fk"),
        migrations.RunSQL("CREATE SEQUENCE recall_revision_seq", "DROP SEQUENCE recall_revision_seq"),
    ]
