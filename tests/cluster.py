"""A Citus cluster to run the tests on: the one in CLUSTER_DATABASE_URL, whose nodes get an empty database for tests.

    CLUSTER_DATABASE_URL=postgresql://postgres@127.0.0.1:5432/trial .venv/bin/python -m pytest -n 0 tests/search

The URL leads to a database on the coordinator that has Citus and knows its workers; the role may make databases. Tests
of what a cluster does not have are skipped: see `SKIPPED`.
"""

import os
from pathlib import Path

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

URL = os.environ.get("CLUSTER_DATABASE_URL", "")

needs_cluster = pytest.mark.skipif(not URL, reason="needs a Citus cluster in CLUSTER_DATABASE_URL")

_NO_INDEX = "a cluster has no derived index and no replica of the vectors"
_EMBEDDED = "is about the embedded Postgres or a scratch database of its own"
_TURNS = "writers of a cluster take turns, and the other writer of this test takes none"
# Modules, or the beginnings of tests' names in them, with the reason.
SKIPPED = {
    "search/test_fallback.py": _NO_INDEX,
    "search/test_follower.py": _NO_INDEX,
    "search/test_freshness.py": _NO_INDEX,
    "search/test_import_batches.py": _NO_INDEX,
    "search/test_index_command.py": _NO_INDEX,
    "search/test_index_readers.py": _NO_INDEX,
    "search/test_outbox.py": _NO_INDEX,
    "search/test_polling.py": _NO_INDEX,
    "search/test_segments.py": _NO_INDEX,
    "search/test_warmup.py": _NO_INDEX,
    "search/vectors/": _NO_INDEX,
    "categories/test_terms_and_vectors.py::test_row_that_is_deleted_while_it_is_embedded_gets_no_vector[after": _TURNS,
    "explorer/memory/test_bulk_api.py::test_a_bulk_write_that_loses_a_deadlock": _TURNS,
    "explorer/memory/test_bulk_api.py::test_a_bulk_write_is_done_beside_an_import": "an import keeps other writers out",
    "memories/test_import_command.py::test_an_import_that_loses_a_deadlock": _TURNS,
    "memories/test_recalls.py::test_recalls_wait_for_a_deletion": _TURNS,
    "curation/test_services.py::test_a_verb_is_seen_by_the_index": _NO_INDEX,
    "explorer/memory/test_memory_api.py::test_health_of_the_search_index": _NO_INDEX,
    "browser/": _EMBEDDED,
    "config/": _EMBEDDED,
    "lab/": _EMBEDDED,
}
RUN = ("config/test_cluster.py",)


def skip_what_a_cluster_lacks(items):
    """Mark the tests that cannot run on a cluster."""
    root = Path(__file__).parent
    for item in items:
        place = f"{item.path.relative_to(root).as_posix()}::{item.name}"
        reason = next((why for begin, why in SKIPPED.items() if place.startswith(begin)), "")
        engine = item.callspec.params.get("engine", "") if hasattr(item, "callspec") else ""
        if str(engine).startswith("tantivy") or "tantivy" in getattr(item, "fixturenames", ()):
            reason = _NO_INDEX
        if reason and not place.startswith(RUN):
            item.add_marker(pytest.mark.skip(reason=reason))


def create_databases(name):
    """An empty database of this name on every node, and the nodes known to the coordinator's."""
    parts = conninfo_to_dict(URL)
    with psycopg.connect(URL) as coordinator:
        nodes = coordinator.execute(
            "SELECT nodename, nodeport, groupid FROM pg_dist_node ORDER BY groupid DESC"
        ).fetchall()
    for host, port, _ in nodes:
        where = {**parts, "host": host, "port": port}
        with psycopg.connect(make_conninfo(**{**where, "dbname": "postgres"}), autocommit=True) as server:
            server.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
            server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        with psycopg.connect(make_conninfo(**{**where, "dbname": name}), autocommit=True) as database:
            for extension in ("citus", "vector", "pg_trgm"):
                database.execute(f"CREATE EXTENSION {extension}")
    with psycopg.connect(make_conninfo(**{**parts, "dbname": name}), autocommit=True) as database:
        for host, port, group in nodes[::-1]:
            call = "citus_set_coordinator_host" if group == 0 else "citus_add_node"
            database.execute(f"SELECT {call}(%s, %s)", [host, port])


def distribute_database():
    """Spread the migrated database over the nodes."""
    connection.close()
    connection.close_pool()
    call_command("distribute", "--yes", "--shards", "4", verbosity=0)
    connection.close()
    connection.close_pool()
