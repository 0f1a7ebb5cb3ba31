"""The checks of the database name what is missing and what to do, and never a password."""

import pytest
from django.core.checks import run_checks
from django.db import connection
from django.db.backends.postgresql.base import DatabaseWrapper

from memories import checks
from memories.checks import cannot_connect, database_is_fit, what_is_missing


def ids(messages):
    return [message.id for message in messages]


@pytest.mark.django_db
def test_database_of_the_tests_passes():
    assert database_is_fit(None, ["default"]) == []
    assert run_checks(databases=["default"]) == []


def test_nothing_is_looked_at_unless_a_database_is_named():
    assert database_is_fit(None, None) == []


def unreachable(**changes):
    settings = {
        **connection.settings_dict,
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "notes",
        "USER": "ada",
        "PASSWORD": "secret",
        "HOST": "127.0.0.1",
        "PORT": "1",
        "OPTIONS": {},
    }
    return DatabaseWrapper({**settings, **changes}, alias="default")


def test_database_that_cannot_be_reached_is_named_without_its_password():
    error = cannot_connect(unreachable())
    assert error.id == "memories.E001"
    for part in ("'notes'", "127.0.0.1", "port 1"):
        assert part in error.msg
    assert "secret" not in error.msg + error.hint
    assert "DATABASE_URL" in error.hint


@pytest.mark.django_db
def test_server_that_is_too_old(monkeypatch):
    monkeypatch.setitem(connection.__dict__, "pg_version", 150004)
    (error,) = what_is_missing(connection)
    assert error.id == "memories.E003"
    assert "PostgreSQL 15" in error.msg


@pytest.mark.django_db
def test_extensions_that_are_not_available(monkeypatch):
    monkeypatch.setattr(checks, "EXTENSIONS", checks.EXTENSIONS + " AND false")
    errors = what_is_missing(connection)
    assert ids(errors) == ["memories.E005", "memories.E005"]
    assert [("vector" in e.msg, "pgvector" in e.hint) for e in errors] == [(True, True), (False, False)]


@pytest.mark.django_db
def test_extension_that_the_role_may_not_install():
    with connection.cursor() as cursor:
        cursor.execute("CREATE ROLE visitor_of_checks")
        cursor.execute("DROP EXTENSION vector CASCADE")
        cursor.execute("SET LOCAL ROLE visitor_of_checks")
        (error,) = what_is_missing(connection)
        cursor.execute("RESET ROLE")
    assert error.id == "memories.E006"
    assert "visitor_of_checks" in error.msg
    assert "CREATE EXTENSION vector" in error.hint


@pytest.mark.django_db
def test_intarray_is_named_as_what_hides_the_indexes():
    with connection.cursor() as cursor:
        cursor.execute("CREATE EXTENSION intarray")
    (error,) = what_is_missing(connection)
    assert error.id == "memories.E008"
    assert "DROP EXTENSION intarray" in error.hint
