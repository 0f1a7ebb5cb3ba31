"""One view of the data for all statements of an answer."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def snapshot(most_ms: int = 0) -> Iterator[None]:
    """A write in between cannot make numbers and rows differ. A statement that takes longer than said is cut off."""
    outermost = not connection.in_atomic_block
    with transaction.atomic():
        if outermost:
            with connection.cursor() as cursor:
                # Compiling a facet statement takes longer than running it.
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL jit = off")
                if most_ms:
                    cursor.execute(f"SET LOCAL statement_timeout = {most_ms:d}")
        yield
