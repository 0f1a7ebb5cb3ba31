"""Fixtures of every test. The database is set up in tests/settings.py, the sockets in pyproject.toml."""

import json

import hypothesis
import pytest
from django.db import connection
from django.test import TransactionTestCase

from access.limits import attempts, buckets, wrong_keys
from config.home import folder_mode
from memories import recalls
from memories.embedding import query
from tests import cluster, database
from web import outages
from web.cache import clear_caches

# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def _nothing_kept():
    """Rolling back the transaction of a test takes the revision back that caches are keyed by."""
    clear_caches()
    query.forget()
    recalls.log.forget()
    buckets.forget()
    attempts.forget()
    wrong_keys.forget()
    yield
    # The database is dropped after the last test.
    outages.close_probe()


def pytest_generate_tests(metafunc):
    if "engine" in metafunc.fixturenames and (mark := metafunc.definition.get_closest_marker("engines")):
        metafunc.parametrize("engine", mark.args, indirect=True)


def pytest_collection_modifyitems(items):
    if cluster.URL:
        cluster.skip_what_a_cluster_lacks(items)


@pytest.fixture(scope="session")
def django_db_keepdb(django_db_keepdb):
    """The databases of a cluster are made by `tests.cluster`: Django knows one server only."""
    return django_db_keepdb or bool(cluster.URL)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings):
    if cluster.URL:
        cluster.create_databases(f"test_{connection.settings_dict['NAME']}")


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup, django_db_blocker):
    with django_db_blocker.unblock():
        if cluster.URL:
            cluster.distribute_database()
        # Some tests choose the ids of their memories, all of them smaller. A rolled back test gives no id back.
        with connection.cursor() as cursor:
            cursor.execute("SELECT setval('memory_id_seq', 100000)")


@pytest.fixture
def tmp_path(tmp_path):
    """The folder of a test. As root, Postgres runs as another account, which must pass through the folders above."""
    for path in (tmp_path, *tmp_path.parents[:3]):
        if folder_mode() & 0o011 & ~path.stat().st_mode:
            path.chmod(path.stat().st_mode | 0o011)
    return tmp_path


@pytest.fixture
def jsonl(tmp_path):
    def write_lines(*lines, name="memories.jsonl"):
        path = tmp_path / name
        text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
        path.write_text(text + "\n", encoding="utf-8")
        return path

    return write_lines


@pytest.fixture(scope="session", autouse=True)
def _quickly_emptied():
    """The tables after a test that commits. Django truncates all of them, most of which are empty, and makes new files
    for several hundred tables and indexes; then it creates all permissions again.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", database.empty)
        yield
