"""The log of reads as JSON: all that the viewer may see, and by whom a memory was read."""

from datetime import datetime

from ninja import Router
from pydantic import BaseModel, ConfigDict, Field

from access.keys import ApiRequest, allowed
from explorer.memory.api import storable_id
from explorer.operations import read_operation
from explorer.reads.listing import DOORS, ListedRead, ReadsRequest, list_reads
from memories.models import MemoryRead
from memories.queries import visible_to
from memories.reads import readers_of, visible_reads
from memories.refusals import MemoryNotFoundError
from web.params import Params, pairs_of

router = Router()


class ReadReply(BaseModel):
    """Memories that a reader was given at once."""

    id: int
    at: datetime
    reader: str = Field(description="The name of the key or the person.")
    is_agent: bool
    door: str = Field(description=f"One of {', '.join(DOORS)}.")
    operation: str = Field(description="The tool, or the pattern of the address.")
    session: str = Field(description="The session of the agent, as its client named it; empty if it named none.")
    kind: str = Field(description=f"How much of them was given: {', '.join(MemoryRead.Kind)}.")
    query: str = Field(description="The query string of the question, secrets masked; empty if there was none.")
    memory_ids: list[int] = Field(description="Those that you can see, up to a thousand, in the order of the answer.")
    number: int = Field(description="How many memories were given.")


class ReadsReply(BaseModel):
    """Reads that you may see, the latest first."""

    reads: list[ReadReply]
    next: int | None = Field(description="`cursor` of the request for earlier ones; null if there are none.")


class ReaderReply(BaseModel):
    """An agent or a person who has read a memory."""

    model_config = ConfigDict(from_attributes=True)

    name: str
    is_agent: bool
    times: int = Field(description="How often an agent was given it, or a person opened or took it.")
    listed: int = Field(description="How often it was in a list of results that a person looked through.")
    last_at: datetime


class ReadersReply(BaseModel):
    """Whoever has read a memory, as far as you may know, the last one first."""

    readers: list[ReaderReply]


@read_operation(router, "/reads", "reads", ReadsReply, parameters=ReadsRequest.openapi_parameters())
def reads(request: ApiRequest) -> ReadsReply:
    """The log of reads: with all rights everybody's, else your own and those with the keys that you manage."""
    viewer = allowed(request, "read")
    found = list_reads(ReadsRequest.from_pairs(pairs_of(request.GET)), viewer)
    return ReadsReply(reads=[_read_reply(one) for one in found.reads], next=found.next)


@read_operation(router, "/memories/{int:memory_id}/reads", "memory_reads", ReadersReply, 404)
def memory_reads(request: ApiRequest, memory_id: int) -> ReadersReply:
    """By whom a memory was read: by everybody for who has all rights, else by yourself and the keys that you manage."""
    viewer = allowed(request, "read")
    Params.from_pairs(pairs_of(request.GET))
    if not visible_to(viewer).filter(pk=storable_id(memory_id)).exists():
        raise MemoryNotFoundError(memory_id)
    found = readers_of(visible_reads(viewer).filter(memory_ids__contains=[memory_id]))
    return ReadersReply(readers=[ReaderReply.model_validate(one) for one in found])


def _read_reply(one: ListedRead) -> ReadReply:
    names = ("id", "at", "door", "operation", "session", "kind", "query", "number")
    return ReadReply(
        **{name: getattr(one.read, name) for name in names},
        reader=one.reader,
        is_agent=one.is_agent,
        memory_ids=list(one.memory_ids),
    )
