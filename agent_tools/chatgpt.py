"""The pair of tools that ChatGPT expects of a server: `search` and `fetch`, each with one text, answered as JSON."""

from contextvars import ContextVar
from urllib.parse import urljoin

from access.viewer import Viewer
from agent_tools.calls import Arguments, pairs_of_arguments
from agent_tools.rendering import encode, hidden_line, warning_lines
from explorer.explore.timeline_api import index_row
from explorer.links import memory_url
from memories.queries import memory_details
from memories.recalls import record_list, record_opening
from memories.records import MemoryId
from memories.refusals import MemoryNotFoundError
from search.query import SearchQuery
from search.result import HitDetail
from search.run import run
from web.params import Params
from web.serving import running_site

# The address by which a client reaches the site; empty for a client that is connected by a pipe.
site_address: ContextVar[str] = ContextVar("site_address", default="")

_RESULTS = 10


class Fetch(Params):
    """The memory to fetch."""

    id: MemoryId | None = None


def search(arguments: Arguments, viewer: Viewer) -> str:
    query = SearchQuery.from_pairs([("page_size", str(_RESULTS)), *pairs_of_arguments(arguments)])
    result = run(query, viewer, include_facets=False, detail=HitDetail.INDEX)
    record_list(viewer, [hit.id for hit in result.hits], query.querystring())
    rows = [{"id": str(hit.id), "title": index_row(hit).title, "url": _url(hit.id)} for hit in result.hits]
    # The pair has no place for them; a model reads whatever the reply has.
    return encode({"results": rows, **hidden_line(result), **warning_lines(result.warnings)}, "json")


def fetch(arguments: Arguments, viewer: Viewer) -> str:
    wanted = Fetch.from_pairs(pairs_of_arguments(arguments)).id or 0
    detail = memory_details(viewer, [wanted]).get(wanted)
    if detail is None:
        raise MemoryNotFoundError(wanted)
    record_opening(viewer, [wanted])
    memory = detail.memory
    metadata = {
        "project": memory.project.slug,
        "type": memory.memory_type,
        "state": memory.state,
        "created_at": memory.created_at.isoformat(),
        "tags": ", ".join(memory.tags),
        "categories": ", ".join(node.path for node in detail.categories),
        "source": memory.source_uri or memory.source,
    }
    document = {
        "id": str(memory.pk),
        "title": memory.title,
        "text": "\n\n".join(filter(None, (memory.summary, memory.content))),
        "url": _url(memory.pk),
        "metadata": {key: value for key, value in metadata.items() if value},
    }
    return encode(document, "json")


def _url(memory_id: int) -> str:
    """The page of a memory; its URI as a resource if no server is known."""
    site = site_address.get() or running_site()
    return urljoin(site, memory_url(memory_id)) if site else f"memory://{memory_id}"
