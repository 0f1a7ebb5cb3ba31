"""Statements that Django's queries do not express: sent as they are, with their parameters. A percent sign is `%%`."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection

Parameters = Sequence[Any] | Mapping[str, Any]


def fetch(statement: str, parameters: Parameters = ()) -> list[Any]:
    """All rows of a statement."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall())


def fetch_column(statement: str, parameters: Parameters = ()) -> list[Any]:
    """The first column of all rows of a statement."""
    return [row[0] for row in fetch(statement, parameters)]


def execute(statement: str, parameters: Parameters = ()) -> int:
    """Send a statement. Returns the number of its rows."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return int(cursor.rowcount)
