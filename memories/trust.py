"""How far a memory is to be trusted: as far as the least trusted of those that its text comes from.

A person's own words count most, then what an agent wrote; text from outside, such as a fetched page or the output of a
tool, counts least. It is stored when a text is written, and falls when a less trusted writer changes the text. Who
wrote it is not proof that it is true, and nothing here keeps a person from copying a page.
"""

from collections.abc import Iterable
from typing import Protocol
from urllib.parse import urlsplit

from access.models import AuditEvent
from access.viewer import Viewer
from memories.models import Memory
from memories.records import MemoryRecord
from memories.snapshot import MemorySnapshot

Trust = Memory.Trust
TRUST_NOTE = "The origin of its words: the least trusted of all that the text comes from"
TRUST = f"{TRUST_NOTE}: `person`, `agent` or `outside`."

# Sources that agents name for what they have read and not written.
_OUTSIDE = frozenset({"web", "web page", "webpage", "website", "internet", "tool", "tool output", "fetched", "fetch"})
# Links to what a text was made from.
DERIVED = frozenset({"derived_from", "based_on", "summary_of", "summarises", "summarizes", "quotes", "excerpt_of"})


class Sourced(Protocol):
    """A stored memory, as far as it says where it comes from."""

    @property
    def trust(self) -> int | None: ...
    @property
    def agent(self) -> str: ...
    @property
    def source_uri(self) -> str: ...


def trust_of(memory: Sourced) -> Memory.Trust:
    """The trust of a stored memory. Memories of earlier versions have none: it follows from their sources."""
    if memory.trust is not None:
        return Trust(memory.trust)
    if _is_web(memory.source_uri):
        return Trust.OUTSIDE
    return Trust.AGENT if memory.agent else Trust.PERSON


def trust_of_record(record: MemoryRecord, viewer: Viewer, sources: Iterable[int] = ()) -> Memory.Trust:
    """The trust of the text of a record that the viewer writes. `sources` are the trusts of what it was made from."""
    found = [writer_trust(viewer), *map(Memory.Trust, sources)]
    if record.agent:
        found.append(Trust.AGENT)
    # On a page a person names where their own words are found; elsewhere the text is that of the address.
    typed = viewer.door in (AuditEvent.Door.PAGE, AuditEvent.Door.ADMIN) and viewer.user_id is not None
    if record.source.casefold() in _OUTSIDE or (_is_web(record.source_url) and not typed):
        found.append(Trust.OUTSIDE)
    if record.trust:
        found.append(Memory.Trust[record.trust.upper()])
    return min(found)


def trust_after(before: MemorySnapshot, after: MemorySnapshot, record: MemoryRecord, viewer: Viewer) -> int | None:
    """The trust of a memory after a change: of a text that was changed, no more than that of whoever changed it.

    A curator, who is a person, may say otherwise.
    """
    if record.trust and writer_trust(viewer) is Trust.PERSON and viewer.may_curate(after.project_id):
        return Memory.Trust[record.trust.upper()]
    if is_same_text(before, after):
        return min(trust_of(before), Memory.Trust[record.trust.upper()]) if record.trust else before.trust
    return min(trust_of(before), trust_of_record(record, viewer))


def is_same_text(one: MemorySnapshot, other: MemorySnapshot) -> bool:
    return (one.title, one.summary, one.content) == (other.title, other.summary, other.content)


def writer_trust(viewer: Viewer) -> Memory.Trust:
    """The trust of what a viewer writes: whoever holds a key or speaks MCP is a program."""
    is_program = viewer.api_key_id is not None or viewer.door == AuditEvent.Door.MCP
    return Trust.AGENT if is_program else Trust.PERSON


def _is_web(address: str) -> bool:
    return urlsplit(address).scheme.lower() in ("http", "https") if address[:4].lower() == "http" else False
