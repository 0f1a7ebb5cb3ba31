"""Vectors beside pgvector: a replica of them in files, for processes that read all of them in a few milliseconds.

The database has the vectors, and `memories.vectors` alone writes them. Beside the derived index stands a replica of
those of the model that serves: the same halves, packed close, mapped into every process, and compared by SIMD
instructions. It follows the changes that are written down with the vectors (`changes.py`), by the process that keeps
the index (`keeper.py`). What it has not taken in yet is read from pgvector; where there is none, everything is.
"""
