"""The tables of the test database: emptied after tests that commit, and filled with what tests share."""

import shutil
import tempfile
from functools import cache

from django.db import connection, transaction

from memories.models import Corpus
from tests import cluster

# Tables that the migrations fill and no test changes.
LASTING = ("django_content_type", "auth_permission")
# Among deleted rows their indexes find less, until a vacuum.
OF_VECTORS = (
    "memories_chunk",
    "categories_entityvector",
    "categories_conceptvector",
    "categories_categoryvector",
    "categories_relationshipvector",
)
# Tables of people, who may sign in before the memories are there.
OF_PEOPLE = ("auth_user", "django_session", "access_apikey")

_fillings = {}


@cache
def _tables():
    names = set(connection.introspection.django_table_names(only_existing=True, include_views=False))
    return sorted(names.difference(LASTING))


def filled_tables():
    """The names of the tables that have rows."""
    with connection.cursor() as cursor:
        cursor.execute(
            " UNION ALL ".join(f"SELECT '{table}' WHERE EXISTS (SELECT 1 FROM {table})" for table in _tables())
        )
        return [table for (table,) in cursor.fetchall()]


def empty(test_case):
    """Empty the tables after a test that commits, which Django would do by truncating all of them."""
    with transaction.atomic(), connection.cursor() as cursor:
        filled = filled_tables()
        # The triggers of the outbox fire all the same, unless the row that switches them on is gone.
        filled.sort(key=lambda table: table != "memories_corpus")
        # Skip foreign keys and the triggers that record changes.
        if cluster.URL:
            if filled:
                cursor.execute(f"TRUNCATE {', '.join(filled)} CASCADE")
            return
        cursor.execute("SET LOCAL session_replication_role = replica")
        for table in filled:
            cursor.execute(f"TRUNCATE {table}" if table in OF_VECTORS else f"DELETE FROM {table}")


def fill(name, build, folder=None):
    """Fill the empty database by `build`, whose first run in this process is copied by all later ones of this name:
    its rows, the files in `folder`, and what it returned.
    """
    before = set(filled_tables())
    # The changes of an index that is followed are recorded.
    is_empty = before <= {"memories_corpus", *OF_PEOPLE} and not Corpus.objects.filter(indexed=True).exists()
    if cluster.URL or not is_empty:
        return build()
    if name not in _fillings:
        result = build()
        _fillings[name] = _rows(before.difference({"memories_corpus"})), _copied(folder), result
        return result
    rows, files, result = _fillings[name]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica; DELETE FROM memories_corpus")
        for table, data in rows.items():
            with cursor.copy(f"COPY {table} FROM STDIN (FORMAT binary)") as copy:
                copy.write(data)
        cursor.execute("SET LOCAL session_replication_role = origin")
    if files:
        shutil.copytree(files.name, folder, dirs_exist_ok=True)
    return result


def _rows(but):
    rows = {}
    with connection.cursor() as cursor:
        for table in set(filled_tables()).difference(but):
            with cursor.copy(f"COPY {table} TO STDOUT (FORMAT binary)") as copy:
                rows[table] = b"".join(copy)
    return rows


def _copied(folder):
    if not folder or not folder.exists():
        return None
    files = tempfile.TemporaryDirectory(prefix="mnemoscope-index-")
    shutil.copytree(folder, files.name, dirs_exist_ok=True)
    return files
