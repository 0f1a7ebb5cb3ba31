"""An import is one entry of the outbox for all memories that it brings, instead of one for each."""

from django.db import migrations

# The other entries that an import causes, of memories that it changes, are written as ever.
BATCHES = """
CREATE OR REPLACE FUNCTION memories_outbox_add() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  IF TG_OP = 'INSERT' AND current_setting('mnemoscope.batch', true) = 'on' THEN
    RETURN NULL;
  END IF;
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
ROWS = """
CREATE OR REPLACE FUNCTION memories_outbox_add() RETURNS trigger LANGUAGE plpgsql
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


class Migration(migrations.Migration):

    dependencies = [
        ("memories", "0003_vectors"),
    ]

    operations = [migrations.RunSQL(BATCHES, ROWS)]
