"""The forms of exports by name; those of other systems have the names of their importers."""

from transfer.formats import claude_mem_export, memory_graph, memory_service
from transfer.formats.export import Format
from transfer.formats.files import json_lines, table
from transfer.formats.vault import vault

FORMATS: dict[str, Format] = {
    "jsonl": Format("application/x-ndjson", "jsonl", json_lines, has_rows=True),
    "csv": Format("text/csv; charset=utf-8", "csv", table),
    "markdown": Format("application/zip", "zip", vault, is_text=False, has_files=True),
    "claude-mem": Format("application/json", "json", claude_mem_export.write, has_states=False),
    "mcp-memory-service": Format("application/json", "json", memory_service.write, has_states=False),
    "mcp-memory": Format("application/x-ndjson", "jsonl", memory_graph.write, has_states=False),
}
