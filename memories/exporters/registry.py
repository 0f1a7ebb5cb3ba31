"""The forms of exports by name; those of other systems have the names of their importers."""

from memories.exporters import claude_mem, memory_graph, memory_service
from memories.exporters.base import Format
from memories.exporters.formats import json_lines, table, vault
from memories.importers.claude_mem import SOURCE as CLAUDE_MEM
from memories.importers.memory_graph import SOURCE as MEMORY_GRAPH
from memories.importers.memory_service import SOURCE as MEMORY_SERVICE

FORMATS: dict[str, Format] = {
    "jsonl": Format("JSON lines", "application/x-ndjson", "jsonl", json_lines, has_rows=True),
    "csv": Format("CSV", "text/csv; charset=utf-8", "csv", table),
    "markdown": Format("Markdown notes", "application/zip", "zip", vault, is_text=False),
    CLAUDE_MEM: Format("claude-mem", "application/json", "json", claude_mem.written, has_states=False),
    MEMORY_SERVICE: Format("mcp-memory-service", "application/json", "json", memory_service.written, has_states=False),
    MEMORY_GRAPH: Format("MCP memory server", "application/x-ndjson", "jsonl", memory_graph.written, has_states=False),
}
