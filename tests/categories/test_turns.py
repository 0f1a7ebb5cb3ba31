"""Writers of a cluster take turns in the order in which they came. One machine has the same locks."""

import threading
import time

import psycopg
import pytest
from django.db import connection, transaction

from categories.services import VOCABULARY_LOCK, VocabularyBusyError, vocabulary_lock_shared
from cluster import _TICKETS, take_turn

LOCK = 0x7465737473
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def other():
    """Another writer's connection, whose locks end with it."""
    with psycopg.connect(**connection.get_connection_params()) as held:
        yield held
        held.rollback()


def lock(held, key):
    assert held.execute("SELECT pg_try_advisory_xact_lock(%s)", [key]).fetchone() == (True,)


def tickets():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND (classid::bigint << 32) >= %s", [_TICKETS]
        )
        return cursor.fetchone()[0]


def wait_for_tickets(count):
    until = time.monotonic() + 30
    while tickets() != count:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_turn_of_another_writer_ends_the_patience_and_ones_own_does_not(other):
    with transaction.atomic():
        assert take_turn(LOCK, 0)
        assert take_turn(LOCK, 0)
    lock(other, LOCK)
    with transaction.atomic():
        assert not take_turn(LOCK, 0)


def test_whoever_comes_while_others_wait_stands_behind_them_though_the_lock_is_free(other):
    lock(other, _TICKETS + 1)
    with transaction.atomic():
        assert not take_turn(LOCK, 0)
    other.rollback()
    with transaction.atomic():
        assert take_turn(LOCK, 0)


def test_a_writer_of_a_cluster_who_waits_too_long_is_told_to_come_back(other, monkeypatch):
    monkeypatch.setattr("categories.services.is_distributed", lambda: True)
    lock(other, VOCABULARY_LOCK)
    with pytest.raises(VocabularyBusyError) as refused, transaction.atomic():
        vocabulary_lock_shared(seconds=0)
    response = refused.value.response()
    assert (response.status_code, response["Retry-After"]) == (503, "5")


def test_the_first_to_come_is_the_first_to_have_a_turn(other):
    lock(other, LOCK)
    order = []

    def writer(name):
        try:
            with transaction.atomic():
                if take_turn(LOCK, 30):
                    order.append(name)
        finally:
            connection.close()

    writers = [threading.Thread(target=writer, args=[number]) for number in range(3)]
    for number, one in enumerate(writers, 1):
        one.start()
        wait_for_tickets(number)
    other.rollback()
    for one in writers:
        one.join(30)
    assert order == [0, 1, 2]
