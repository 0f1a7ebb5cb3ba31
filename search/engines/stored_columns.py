"""Numbers of memories that are stored next to them, in this process: for an engine that counts in memory. They are read
once, and then only what is new.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db import connection

Column = npt.NDArray[Any]


def read_columns(
    statement: str,
    parameters: Mapping[str, int],
    kinds: Sequence[tuple[str, npt.DTypeLike]],
    known: Sequence[Column],
) -> tuple[Column, ...]:
    """The known columns with the rows that a statement finds, ordered by the first column, which has ids.

    The statement aggregates each column to the bytes of its values. `kinds` are how these are sent and how they are
    held. A row takes the place of that with the same id.
    """
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        packed = cursor.fetchone()
    new = [np.frombuffer(column or b"", sent).astype(held) for column, (sent, held) in zip(packed, kinds, strict=True)]
    if known:
        kept = ~np.isin(known[0], new[0])
        new = [np.concatenate([before[kept], after]) for before, after in zip(known, new, strict=True)]
    order = np.argsort(new[0], kind="stable")
    return tuple(column[order] for column in new)
