"""Run by an interpreter that has mcp-memory-service: its own code writes, exports and imports.

Arguments: `fill`, a database and the export to write; or `take`, a database, an export to import and one to write.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

from mcp_memory_service.models.memory import Memory  # type: ignore[import-not-found]
from mcp_memory_service.storage.sqlite_vec import SqliteVecMemoryStorage  # type: ignore[import-not-found]
from mcp_memory_service.sync.exporter import MemoryExporter  # type: ignore[import-not-found]
from mcp_memory_service.sync.importer import MemoryImporter  # type: ignore[import-not-found]
from mcp_memory_service.utils.hashing import generate_content_hash  # type: ignore[import-not-found]

MEMORIES: list[dict[str, Any]] = [
    {"content": "Fire the kiln at dawn.", "tags": ["kiln", "proj:pots"], "memory_type": "decision"},
    {"content": "Ash glaze runs.\n", "tags": [], "memory_type": "error/bug", "metadata": {"quality_score": 0.25}},
    {"content": "Öl & Ton: 'schön'", "tags": ["Ton"], "metadata": {"title": "Clay", "nested": {"list": [1, None]}}},
    {"content": "Forgotten.", "tags": ["old"]},
]


async def main(verb: str, database: str, *files: str) -> None:
    storage = SqliteVecMemoryStorage(database)
    await storage.initialize()
    if verb == "fill":
        for number, fields in enumerate(MEMORIES):
            made = 1_760_000_000.1234567 + number
            memory = Memory(content_hash=generate_content_hash(fields["content"]), created_at=made, **fields)
            stored, reason = await storage.store(memory, skip_semantic_dedup=True)
            assert stored, reason
        await storage.delete(generate_content_hash("Forgotten."))
    else:
        imported = await MemoryImporter(storage).import_from_json([Path(files[0])], add_source_tags=False)
        assert imported["errors"] == 0, imported
    await MemoryExporter(storage).export_to_json(Path(files[-1]))


asyncio.run(main(*sys.argv[1:]))
