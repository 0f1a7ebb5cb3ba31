"""Snapshots isolate all statements of a result, and leave the connection unchanged."""

import pytest
from django.db import InternalError, OperationalError, connection, transaction

from memories.models import Project
from search.engines import _jit_is_on, snapshot


def setting(name):
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW {name}")
        return cursor.fetchone()[0]


@pytest.mark.django_db(transaction=True)
def test_all_statements_read_one_moment_and_write_nothing():
    with snapshot():
        assert setting("transaction_isolation") == "repeatable read"
        assert setting("transaction_read_only") == "on"
        with pytest.raises(InternalError, match="read-only"), transaction.atomic():
            Project.objects.create(slug="mill")


@pytest.mark.django_db(transaction=True)
def test_what_comes_after_may_write_again():
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), snapshot():
            raise ZeroDivisionError
        with transaction.atomic():
            Project.objects.create(slug="mill")
            assert setting("transaction_isolation") == "read committed"
        Project.objects.all().delete()


@pytest.mark.django_db(transaction=True)
def test_a_server_that_compiles_statements_does_not_here():
    _jit_is_on.cache_clear()
    with connection.cursor() as cursor:
        cursor.execute("SET jit = on")
    try:
        with snapshot(timeout_ms=2_000):
            assert (setting("jit"), setting("statement_timeout")) == ("off", "2s")
        assert (setting("jit"), setting("statement_timeout")) == ("on", "0")
    finally:
        _jit_is_on.cache_clear()
        with connection.cursor() as cursor:
            cursor.execute("RESET jit")


@pytest.mark.django_db(transaction=True)
def test_a_statement_that_takes_too_long_is_cut_off():
    with (
        pytest.raises(OperationalError, match="statement timeout"),
        snapshot(timeout_ms=50),
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT pg_sleep(5)")
    Project.objects.create(slug="mill")


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_is_lost_meanwhile_is_replaced():
    with pytest.raises(OperationalError), snapshot(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    connection.close()
    Project.objects.create(slug="mill")


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_was_given_back_meanwhile_writes_for_the_next():
    for _ in range(3):
        with snapshot():
            connection.close()
        Project.objects.create(slug="mill")
        Project.objects.all().delete()


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_is_dead_before_is_told_as_djangos():
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 2000)", [pid])
    other.close()
    with pytest.raises(OperationalError), snapshot():
        setting("jit")
    connection.close()
    Project.objects.create(slug="mill")


@pytest.mark.django_db
def test_within_a_transaction_it_is_a_part_of_that():
    Project.objects.create(slug="mill")
    with snapshot():
        assert Project.objects.filter(slug="mill").exists()
        assert setting("transaction_isolation") == "read committed"
