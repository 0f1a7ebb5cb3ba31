"""The results of a page for elsewhere: as files, and as the same search through the API and MCP."""

import json
from dataclasses import dataclass

from explorer.links import Link, path_of
from explorer.page_query import PageQuery
from search.query import SearchQuery
from search.result import SearchResult
from text.formatting import number

# Labels of the formats of `transfer.formats.export_registry`.
FILES = {"jsonl": "JSON lines", "csv": "CSV", "markdown": "Markdown notes"}
FILES_FOR_SYSTEMS = {
    "claude-mem": "claude-mem",
    "mcp-memory-service": "mcp-memory-service",
    "mcp-memory": "MCP memory server",
}


@dataclass(frozen=True, slots=True)
class Call:
    """A search as it is called elsewhere."""

    label: str
    text: str


@dataclass(frozen=True, slots=True)
class TakeOut:
    """The menu to take results elsewhere. There are no files of a total that is a lower bound."""

    label: str
    files: tuple[Link, ...]
    calls: tuple[Call, ...]
    for_systems: tuple[Link, ...] = ()
    """The files that other memory systems import."""


def build_take_out(query: PageQuery, result: SearchResult, site: str) -> TakeOut:
    """The menu of a page. `site` is the address of the server."""
    plain = query.search.with_(sort=None, page_size=25)
    # An export without any filter has every state; the page has these.
    matching = plain if plain.state or plain.not_state else plain.with_(state=plain.default_states)
    matching = matching.with_(facet_scope=SearchQuery().facet_scope, bucket=SearchQuery().bucket)
    exact = not (query.is_unified or result.at_least) and result.total
    address = f"{path_of('api:export')}?{matching.querystring()}"

    def links(labels: dict[str, str]) -> tuple[Link, ...]:
        return tuple(Link(label, f"{address}&format={name}") for name, label in labels.items() if exact)

    parameters = plain.querystring()
    search = f"{site}{path_of('api:api-root')}search{f'?{parameters}' if parameters else ''}"
    return TakeOut(
        label=f"Export {number(result.total)}…" if exact else "Use elsewhere…",
        files=links(FILES),
        calls=(
            Call("With the API", f'curl -H "Authorization: Bearer $KEY" "{search}"'),
            Call("With an agent (MCP)", f"search {json.dumps(search_arguments(plain), ensure_ascii=False)}"),
        ),
        for_systems=links(FILES_FOR_SYSTEMS),
    )


def search_arguments(query: SearchQuery) -> dict[str, object]:
    """The arguments of the tool `search`."""
    applied = query.applied()
    return {"query": applied.pop("q"), **applied} if "q" in applied else applied
