"""Whether the tables lie on the nodes of a Citus cluster; see `manage.py distribute`."""

from functools import cache

from django.db import connection


def is_distributed() -> bool:
    """Whether memories are spread over shards. It changes only while the site is stopped, so it is read once."""
    settings = connection.settings_dict
    return _is_distributed(settings["HOST"], settings["PORT"], settings["NAME"])


@cache
def _is_distributed(*database: object) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('pg_dist_partition') IS NOT NULL")
        if not cursor.fetchone()[0]:
            return False
        # There may be no such table yet: the system checks ask before the first migration.
        cursor.execute("SELECT count(*) FROM pg_dist_partition WHERE logicalrelid = to_regclass('memories_memory')")
        return bool(cursor.fetchone()[0])


def forget() -> None:
    """Read it again, after the tables were moved."""
    _is_distributed.cache_clear()
