"""The forms of exports by name; those of other systems have the names of their importers."""

from transfer.formats import claude_mem_export as claude_mem
from transfer.formats import memory_graph_export as memory_graph
from transfer.formats import memory_service_export as memory_service
from transfer.formats.claude_mem import SOURCE as CLAUDE_MEM
from transfer.formats.export import Format
from transfer.formats.files import json_lines, table, vault
from transfer.formats.memory_graph import SOURCE as MEMORY_GRAPH
from transfer.formats.memory_service import SOURCE as MEMORY_SERVICE

FORMATS: dict[str, Format] = {
    "jsonl": Format("JSON lines", "application/x-ndjson", "jsonl", json_lines, has_rows=True),
    "csv": Format("CSV", "text/csv; charset=utf-8", "csv", table),
    "markdown": Format("Markdown notes", "application/zip", "zip", vault, is_text=False),
    CLAUDE_MEM: Format("claude-mem", "application/json", "json", claude_mem.written, has_states=False),
    MEMORY_SERVICE: Format("mcp-memory-service", "application/json", "json", memory_service.written, has_states=False),
    MEMORY_GRAPH: Format("MCP memory server", "application/x-ndjson", "jsonl", memory_graph.written, has_states=False),
}
