"""The API's export: everything that a search finds, or all that the viewer may see, as a stream."""

from collections.abc import Iterable, Iterator
from threading import BoundedSemaphore
from typing import Any, Literal
from urllib.parse import urlencode
from weakref import finalize

from django.http import StreamingHttpResponse
from django.utils import timezone
from ninja import Router
from pydantic import Field

from access.keys import ApiRequest, allowed
from search.listings import found_ids
from search.query import ExtraParams, SearchQuery
from transfer.export import Selection, export_lines, one_state, record_export
from transfer.formats.export import Format
from transfer.formats.export_registry import FORMATS
from web.admission import BusyError
from web.errors import GUARDED, errors
from web.params import pairs_of
from web.validation import Problem

router = Router()

# Exports under way in a process: each has a connection for as long as its client takes to read it.
_AT_ONCE = 2
_free = BoundedSemaphore(_AT_ONCE)


class ExportRequest(ExtraParams):
    """The form of an export."""

    ineffective = frozenset({"sort", "page", "page_size", "offset", "include_facets", "facet_scope", "bucket"})
    ineffective_message = "has no effect, since an export holds everything that matches, in the order of the numbers"
    ineffective_suggestion = "leave it out"

    format: Literal["jsonl", "csv", "markdown", "claude-mem", "mcp-memory-service", "mcp-memory"] = Field(
        "jsonl",
        description=(
            "jsonl: everything, for `import_memories`; csv: a table; markdown: a ZIP of notes; claude-mem, "
            "mcp-memory-service: their exports in JSON; mcp-memory: the memory file of the MCP reference server."
        ),
    )

    def conflicts_with(self, query: SearchQuery) -> Iterator[Problem]:
        if query.is_unified:
            yield Problem(
                "mode", "unified finds more than memories, and an export holds memories alone", "leave it out"
            )


class _Place:
    """One of the places of exports, taken until it is left or forgotten. Raises BusyError if there is none."""

    def __init__(self) -> None:
        if not _free.acquire(blocking=False):
            raise BusyError
        # Once, whoever comes first: the end of the export, the close of its response, or the collector.
        self._release = finalize(self, _free.release)

    def leave(self) -> None:
        self._release()


class ExportResponse(StreamingHttpResponse):
    """An export as a file to save, which leaves its place when it is closed, begun or not."""

    def __init__(self, pieces: Iterable[bytes], chosen: Format, place: _Place) -> None:
        name = f"mnemoscope-{timezone.localdate():%Y-%m-%d}.{chosen.suffix}"
        super().__init__(
            pieces, content_type=chosen.media_type, headers={"Content-Disposition": f'attachment; filename="{name}"'}
        )
        self._place = place

    def close(self) -> None:
        super().close()
        self._place.leave()


_EXPORT: dict[str, Any] = {
    "response": {200: None, **errors(*GUARDED, 422, 503)},
    "openapi_extra": {
        "parameters": ExportRequest.openapi_with_query(),
        "responses": {200: {"content": {form.media_type.partition(";")[0]: {} for form in FORMATS.values()}}},
    },
}


@router.get("/export", operation_id="export", **_EXPORT)
def export(request: ApiRequest) -> ExportResponse:
    """All memories that a search finds, or without any parameter of a search all that you may see.

    The latter are in every state, except in the forms of other systems, which know no states: these hold what a search
    finds. The order is that of their numbers.
    """
    viewer = allowed(request, "read")
    chosen, query = ExportRequest.with_query(pairs_of(request.GET))
    ids = None if query == SearchQuery() else found_ids(query, viewer)
    form = FORMATS[chosen.format]
    selection = Selection(
        viewer,
        memory_ids=ids,
        states=() if form.has_states or ids is not None else query.default_states,
        with_rows=form.has_rows,
        with_files=form.has_files,
    )
    place = _Place()

    def pieces() -> Iterator[bytes]:
        try:
            with one_state():
                record_export(selection, urlencode(pairs_of(request.GET)))
                yield from form.write(lambda: export_lines(selection))
        finally:
            place.leave()

    return ExportResponse(pieces(), form, place)
