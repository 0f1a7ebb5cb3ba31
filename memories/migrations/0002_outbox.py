"""The outbox: changes to memories that the derived index follows, written by the statements that make them."""

from django.db import migrations, models
import django.db.models.functions.datetime

# One look a statement at whether anybody follows, and one insert. The function says `changed` for the rows of all three
# triggers. An update that moves a row to another id is not one that anything here makes. Whoever may write memories need
# have no right to the outbox, and no search path that leads to it: a restore has none.
FUNCTION = """
CREATE FUNCTION memories_outbox_add() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  IF (SELECT indexed FROM memories_corpus WHERE id = 1) THEN
    IF TG_OP = 'TRUNCATE' THEN
      INSERT INTO memories_outbox (memory_id, at) VALUES (0, clock_timestamp());
    ELSE
      INSERT INTO memories_outbox (memory_id, at) SELECT id, clock_timestamp() FROM changed;
    END IF;
  END IF;
  RETURN NULL;
END $$
"""
# ALWAYS: also for what a session writes that leaves the checks of foreign keys out.
TRIGGERS = [
    ("memory_outbox_insert", "INSERT", "REFERENCING NEW TABLE AS changed"),
    ("memory_outbox_update", "UPDATE", "REFERENCING NEW TABLE AS changed"),
    ("memory_outbox_delete", "DELETE", "REFERENCING OLD TABLE AS changed"),
    ("memory_outbox_truncate", "TRUNCATE", ""),
]


class Migration(migrations.Migration):

    dependencies = [
        ("memories", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="OutboxEntry",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("memory_id", models.BigIntegerField()),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={"db_table": "memories_outbox", "verbose_name_plural": "outbox entries"},
        ),
        migrations.AddField(
            model_name="corpus",
            name="indexed",
            field=models.BooleanField(db_default=False, default=False, help_text="Whether changes are written to the outbox, for the derived index."),
        ),
        migrations.AddField(
            model_name="corpus",
            name="generation",
            field=models.CharField(blank=True, db_default="", default="", help_text="The derived index that the outbox is for.", max_length=60),
        ),
        migrations.RunSQL(FUNCTION, "DROP FUNCTION memories_outbox_add()"),
        *[
            migrations.RunSQL(
                [
                    f"CREATE TRIGGER {name} AFTER {event} ON memories_memory {rows}"
                    " FOR EACH STATEMENT EXECUTE FUNCTION memories_outbox_add()",
                    f"ALTER TABLE memories_memory ENABLE ALWAYS TRIGGER {name}",
                ],
                f"DROP TRIGGER {name} ON memories_memory",
            )
            for name, event, rows in TRIGGERS
        ],
    ]
