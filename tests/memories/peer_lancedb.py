"""Run by an interpreter that has lancedb: writes a database of concept-rag. Arguments: its folder, and a file of rows.

The rows are JSON: a list of rows for each table by its name.
"""

import json
import sys
from pathlib import Path

import lancedb  # type: ignore[import-not-found]

folder, rows = sys.argv[1:]
database = lancedb.connect(folder)
for table, found in json.loads(Path(rows).read_text("utf-8")).items():
    database.create_table(table, [{**row, "vector": [0.5] * 384} for row in found])
