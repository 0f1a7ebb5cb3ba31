"""Letta: agent files (`.af`) of both versions, and passages of its archives as its interface lists them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from transfer.formats.base import NotReadableError, Options, Reading, RefusedRecord, SourceRecord
from transfer.formats.drafts import Draft, fields_of, listed, plain_text, sections
from transfer.formats.importer import Importer
from transfer.formats.sources import Document, Source, document_reading

SOURCE = "letta"
_AGENT = {"block_ids", "memory_blocks", "core_memory"}
_PASSAGE = {"archive_id", "source_id", "file_id", "agent_id"}
_BLOCK_LISTS = ("core_memory", "memory_blocks", "blocks")
_PASSAGE_LISTS = ("archival_memory", "passages", "archival_passages")
_SPEAKERS = {"user": "User", "assistant": "Assistant"}
# The fields stored of an agent besides its text. Its other fields configure models and tools, some with secrets.
_OF_AGENT = ("id", "name", "agent_type", "tags", "metadata", "metadata_", "timezone", "model", "version")
_VECTORS = ("embedding", "embedding_config")

Row = Mapping[str, Any]
Found = Iterator[SourceRecord | RefusedRecord]


def knows(source: Source) -> bool:
    return any(_kind_of(document) for document in source.documents)


def _kind_of(document: Document) -> str:
    agent = document.fields("agents")
    if agent & _AGENT and agent & {"agent_type", "llm_config", "system"}:
        return "agents"
    if {"agent_type", "core_memory"} <= document.keys:
        return "agent"
    for key in ("", *_PASSAGE_LISTS):
        fields = document.fields(key)
        if {"id", "text"} <= fields and fields & set(_VECTORS) and fields & _PASSAGE:
            return "passages"
    return ""


def read(path: Path, options: Options) -> Reading:
    kinds = {document.name: kind for document in Source(path).documents if (kind := _kind_of(document))}
    documents = [document for document in Source(path).documents if document.name in kinds]
    if not documents:
        raise NotReadableError(f"{path}: is no agent file of Letta, and holds no passages of its archives.")
    readers = {name: _File(kind) for name, kind in kinds.items()}

    def records(document: Document, key: str, location: str, value: Any) -> Found:
        yield from readers[document.name].records(key, location, value)

    def at_end() -> Found:
        for reader in readers.values():
            yield from reader.at_end()

    return document_reading(documents, options, records, at_end=at_end)


class _File:
    """The records of one file. Agents come before the blocks and files that they share."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.agents_of: dict[str, list[str]] = {}
        # The fields of a single agent, in a file of the first version, but for its messages.
        self.agent: dict[str, Any] = {}
        self.messages: list[Any] = []

    def records(self, key: str, location: str, value: Any) -> Found:
        if self.kind == "agent":
            if key == "messages":
                self.messages.append(value)
            elif location.endswith("]"):
                self.agent.setdefault(key, []).append(value)
            else:
                self.agent[key] = value
        elif self.kind == "passages":
            yield from _passage(location, value, "")
        elif key == "agents":
            yield from self._agent(location, value)
        elif key in ("blocks", "files"):
            yield from self._shared(key, location, value)
        elif key in _PASSAGE_LISTS:
            yield from _passage(location, value, self._agents_of(fields_of(value).get("agent_id"))[0])

    def at_end(self) -> Found:
        if self.kind == "agent":
            yield from _agent_records("agent", {**self.agent, "messages": self.messages})

    def _agent(self, location: str, value: Any) -> Found:
        if not isinstance(value, Mapping):
            yield RefusedRecord(location, "is no object; an agent is one")
            return
        name = _name_of(value)
        used = [
            *listed(value.get("block_ids")),
            *(fields_of(one).get("file_id") for one in _rows(value, "files_agents")),
        ]
        for used_id in (value.get("id"), *used):
            self.agents_of.setdefault(plain_text(used_id), []).append(name)
        yield from _agent_records(location, value)

    def _agents_of(self, shared_id: object) -> list[str]:
        return self.agents_of.get(plain_text(shared_id), [""])

    def _shared(self, key: str, location: str, value: Any) -> Found:
        if not isinstance(value, Mapping):
            yield RefusedRecord(location, "is no object")
            return
        agents = self._agents_of(value.get("id"))
        yield from (_block if key == "blocks" else _file)(location, value, agents)


def _name_of(agent: Row) -> str:
    return plain_text(agent.get("name")) or plain_text(agent.get("id")) or "agent"


def _rows(row: Row, *keys: str) -> list[Any]:
    return [one for key in keys for one in listed(row.get(key))]


def _agent_records(location: str, agent: Row) -> Found:
    """The agent itself with its instructions, its blocks, its conversation and its archive."""
    name = _name_of(agent)
    draft = Draft(location, {key: agent[key] for key in _OF_AGENT if agent.get(key)}, SOURCE)
    draft.text("id", f"letta:{name}")
    draft.data["type"] = "agent"
    draft.text("title", name)
    draft.text("agent", name)
    draft.text("summary", agent.get("description"))
    draft.names("tags", (fields_of(tag).get("tag", tag) for tag in listed(agent.get("tags"))))
    _moments(draft, agent)
    draft.text(
        "content", sections((("", plain_text(agent.get("description"))), ("Instructions", _text(agent, "system"))))
    )
    if draft.data.get("content"):
        yield draft.record()
    for number, block in enumerate(_rows(agent, *_BLOCK_LISTS)):
        yield from _block(f"{location}.blocks[{number}]", fields_of(block), [name])
    yield from _conversation(f"{location}.messages", name, _rows(agent, "messages"))
    for number, passage in enumerate(_rows(agent, *_PASSAGE_LISTS)):
        yield from _passage(f"{location}.passages[{number}]", passage, name)


def _text(row: Row, name: str) -> str:
    return plain_text(row.get(name))


def _moments(draft: Draft, row: Row) -> None:
    draft.moment("created_at", row.get("created_at"))
    draft.moment("updated_at", row.get("updated_at"), draft.data.get("created_at"))


def _block(location: str, row: Row, agents: list[str]) -> Found:
    """A block of an agent's core memory. An empty one says nothing."""
    label = _text(row, "label") or _text(row, "name") or _text(row, "id")
    if not (value := _text(row, "value") or _text(row, "content")):
        return
    draft = Draft(location, row, SOURCE)
    # The ids of blocks are numbers within the file.
    draft.text("id", f"letta:{agents[0]}:block:{label}")
    draft.data["type"] = "memory-block"
    draft.text("title", label)
    draft.text("content", value)
    draft.text("summary", row.get("description"))
    draft.text("agent", agents[0])
    draft.entities("agent", agents)
    draft.names("tags", listed(row.get("tags")))
    _moments(draft, row)
    yield draft.record()


def _file(location: str, row: Row, agents: list[str]) -> Found:
    name = _text(row, "original_file_name") or _text(row, "file_name") or _text(row, "id")
    if not (content := _text(row, "content")):
        yield RefusedRecord(location, f"is the file {name[:100]!r} without its text")
        return
    draft = Draft(location, row, SOURCE)
    draft.text("id", f"letta:{agents[0]}:file:{name}")
    draft.data["type"] = "document"
    draft.text("title", name)
    draft.text("content", content)
    draft.text("agent", agents[0])
    draft.entities("agent", agents)
    draft.text("source_url", row.get("file_path"))
    draft.moment("created_at", row.get("file_creation_date"), row.get("created_at"))
    draft.moment("updated_at", row.get("file_last_modified_date"), draft.data.get("created_at"))
    yield draft.record()


def _passage(location: str, value: Any, agent: str) -> Found:
    """A passage of archival memory."""
    row = {key: one for key, one in fields_of(value).items() if key not in _VECTORS}
    if not (text := _text(row, "text") or _text(row, "content")):
        yield RefusedRecord(location, "is a passage without a text")
        return
    draft = Draft(location, row, SOURCE)
    draft.text("id", row.get("id"))
    draft.data["type"] = "passage"
    draft.text("content", text)
    draft.text("agent", agent, row.get("agent_id"))
    draft.names("tags", listed(row.get("tags")))
    if row.get("is_deleted") is True:
        draft.data["state"] = "deleted"
    _moments(draft, row)
    yield draft.record()


def _conversation(location: str, name: str, messages: list[Any]) -> Found:
    """The texts of user and assistant, as one memory."""
    rows = [row for message in messages if (row := fields_of(message))]
    turns = [(speaker, text) for row in rows if (speaker := _SPEAKERS.get(_text(row, "role"))) and (text := _said(row))]
    if not turns:
        return
    draft = Draft(location, {"messages": len(rows)}, SOURCE)
    draft.text("id", f"letta:{name}:messages")
    draft.data["type"] = "conversation"
    draft.text("title", f"Conversation with {name}")
    draft.text("agent", name)
    draft.text("content", "\n\n".join(f"**{speaker}:**\n\n{text}" for speaker, text in turns))
    dates = [row["created_at"] for row in rows if row.get("created_at")]
    draft.moment("created_at", *dates[:1])
    draft.moment("updated_at", *dates[-1:])
    yield draft.record()


def _said(message: Row) -> str:
    """The text of a message; of an assistant who speaks through the tool `send_message`, the text that it sent."""
    sent = [
        plain_text(fields_of(function.get("arguments")).get("message"))
        for call in map(fields_of, listed(message.get("tool_calls")))
        if (function := fields_of(call.get("function"))).get("name") == "send_message"
    ]
    if any(sent):
        return "\n\n".join(text for text in sent if text)
    if message.get("role") == "assistant" and listed(message.get("tool_calls")):
        # Beside a call, the text is what the model thought.
        return ""
    content = message.get("content", message.get("text"))
    parts = [content] if isinstance(content, str) else [fields_of(part).get("text", part) for part in listed(content)]
    texts: list[str] = []
    for part in map(plain_text, parts):
        # Users' messages are packed with their time; logins and heartbeats are packed in the same way.
        packed = fields_of(part)
        if {"type", "message"} <= packed.keys() or packed.get("type") in ("login", "heartbeat", "user_message"):
            part = plain_text(packed.get("message")) if packed.get("type") == "user_message" else ""
        texts.append(part)
    return "\n\n".join(text for text in texts if text)


IMPORTER = Importer(SOURCE, "an agent file of Letta (.af), or passages of its archives in JSON", knows, read)
