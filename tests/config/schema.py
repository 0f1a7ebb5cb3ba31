"""Schemas of databases as text: a catalogue to compare, and a dump of what the migrations make.

    python -m tests.config.schema tests/config/schema_0_2.sql

writes the dump of this checkout's schema, which `test_migrations.py` needs of each release.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import django
from django.core.management import call_command
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.conninfo import make_conninfo

from config.embedded.server import programs

SCRATCH = "scratch"

# The order of columns is left out: a column that a later migration adds comes last. Casts and parentheses of
# constraints are left out: Postgres casts each element where it has loaded a dump, and the array where a migration ran.
_CATALOGUE = r"""
WITH relation AS (
  SELECT c.* FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND NOT EXISTS (
    SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
  )
), routine AS (
  SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND NOT EXISTS (
    SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
  )
)
SELECT concat_ws(' ', 'extension', extname, extversion) FROM pg_extension
UNION ALL
SELECT concat_ws(' ', 'relation', relname, relkind, relpersistence, reloptions) FROM relation
UNION ALL
SELECT concat_ws(
  ' ', 'column', relname, attname, format_type(atttypid, atttypmod), 'identity', attidentity, 'generated', attgenerated,
  'not null', attnotnull, 'storage', attstorage, 'compression', attcompression, pg_get_expr(adbin, adrelid)
) FROM relation JOIN pg_attribute a ON attrelid = relation.oid LEFT JOIN pg_attrdef ON adrelid = attrelid
  AND adnum = attnum WHERE relkind = 'r' AND attnum > 0 AND NOT attisdropped
UNION ALL
SELECT concat_ws(' ', 'sequence', relname, seqtypid::regtype, seqstart, seqincrement, seqmin, seqmax, seqcache)
FROM relation JOIN pg_sequence ON seqrelid = relation.oid
UNION ALL
SELECT concat_ws(' ', 'index', pg_get_indexdef(oid)) FROM relation WHERE relkind = 'i'
UNION ALL
SELECT concat_ws(' ', 'constraint', relname, conname, regexp_replace(
  pg_get_constraintdef(c.oid), '[()]|::(text|character varying)(\[\])?', '', 'g'
)) FROM relation JOIN pg_constraint c ON conrelid = relation.oid WHERE contype <> 'n'
UNION ALL
SELECT concat_ws(' ', 'trigger', tgenabled, pg_get_triggerdef(t.oid))
FROM relation JOIN pg_trigger t ON tgrelid = relation.oid WHERE NOT tgisinternal
UNION ALL
SELECT concat_ws(' ', 'function', pg_get_functiondef(oid)) FROM routine
UNION ALL
SELECT concat_ws(' ', 'comment', relname, attname, description) FROM relation
JOIN pg_description ON objoid = relation.oid AND classoid = 'pg_class'::regclass
LEFT JOIN pg_attribute ON attrelid = relation.oid AND attnum = objsubid AND objsubid > 0
"""


def catalogue(database: BaseDatabaseWrapper) -> set[str]:
    """Describe every object of a database's schema in a line."""
    with database.cursor() as cursor:
        cursor.execute(_CATALOGUE)
        return {line for (line,) in cursor.fetchall()}


@contextmanager
def scratch_database() -> Iterator[BaseDatabaseWrapper]:
    """Create an empty database beside the default one, and drop it afterwards."""
    name = f"{connection.settings_dict['NAME']}_{SCRATCH}"
    quoted = connection.ops.quote_name(name)
    with connection._nodb_cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {quoted}")
        cursor.execute(f"CREATE DATABASE {quoted}")
    scratch = connection.copy(SCRATCH)
    scratch.settings_dict["NAME"] = name
    scratch.settings_dict["OPTIONS"].pop("pool", None)
    connections[SCRATCH] = scratch
    try:
        # Django lets a test use a database that is not its own only if the connection is open before it has settings.
        scratch.connect()
        connections.settings[SCRATCH] = scratch.settings_dict
        yield scratch
    finally:
        scratch.close()
        del connections[SCRATCH]
        connections.settings.pop(SCRATCH, None)
        with connection._nodb_cursor() as cursor:
            cursor.execute(f"DROP DATABASE {quoted}")


def dump_schema() -> str:
    """Dump the schema that the migrations make, with the rows that they insert, as SQL for any session."""
    with scratch_database() as scratch:
        call_command("migrate", database=SCRATCH, verbosity=0)
        with scratch.cursor() as cursor:
            cursor.execute("UPDATE django_migrations SET applied = 'epoch'")
        given = scratch.get_connection_params()
        address = {key: given[key] for key in ("dbname", "host", "port", "user", "password") if given.get(key)}
        # Django makes the rows of these two tables after every `migrate`.
        derived = ["--exclude-table-data=auth_permission", "--exclude-table-data=django_content_type"]
        command = [programs() / "pg_dump", "--no-owner", "--no-privileges", "--inserts", *derived]
        dumped = subprocess.run([*command, make_conninfo(**address)], check=True, capture_output=True, text=True).stdout
    # Comments, commands of psql, and settings of the session.
    return re.sub(r"^(--.*|\\.*|SET .*|SELECT pg_catalog.set_config.*|)\n", "", dumped, flags=re.MULTILINE)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    Path(sys.argv[1]).write_text(dump_schema())
