"""A replica of the vectors in files, for reading all of them in a few milliseconds.

The database holds the vectors, and only `memories.embedding.vectors` writes them. The replica stores those of the
serving model next to the derived index: the same half-precision numbers, densely packed, mapped into every process, and
compared with SIMD instructions. The process that writes the index keeps it up to date (`writer.py`) from a log of
changes (`pgvector.py`). Changes not yet applied are read from pgvector; without a replica, everything is.
"""
