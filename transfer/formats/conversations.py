"""Conversations with ChatGPT and Claude, as their accounts export them: a memory for each conversation.

The export of Claude also has projects, whose documents become memories, and what it remembers.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from memories.records import derived_title
from memories.timestamps import parse_moment
from transfer.formats.base import NotReadableError, Options, Reading, RefusedRecord, SourceRecord
from transfer.formats.drafts import Draft, fields_of, listed, plain_text
from transfer.formats.importer import Importer
from transfer.formats.sources import Document, Source, document_reading

# One of these besides the messages; older and later exports lack some.
_CHATGPT = {"title", "current_node", "conversation_id", "create_time"}
_CLAUDE = {"uuid", "chat_messages"}
_CLAUDE_PROJECT = {"uuid", "name", "docs"}
_CLAUDE_MEMORY = {"conversations_memory", "account_uuid"}
_SPEAKERS = {"user": "User", "human": "User", "assistant": "Assistant"}
# The longest path through the messages of a conversation.
_MAX_TURNS = 100_000
# Longer texts begin with a summary, of parts of this length.
_LONG_TEXT, _OPENING = 2_000, 300

Row = Mapping[str, Any]


def knows(source: Source) -> bool:
    return any(_kind_of(document) for document in source.documents)


def _kind_of(document: Document) -> str:
    fields = document.fields()
    if "mapping" in fields and fields & _CHATGPT:
        return "chatgpt"
    for name, needed in (("claude", _CLAUDE), ("project", _CLAUDE_PROJECT), ("memory", _CLAUDE_MEMORY)):
        if fields >= needed:
            return name
    return ""


def read(path: Path, options: Options) -> Reading:
    kinds = {document.name: kind for document in Source(path).documents if (kind := _kind_of(document))}
    documents = [document for document in Source(path).documents if document.name in kinds]
    if not documents:
        raise NotReadableError(f"{path}: holds no conversations of ChatGPT or Claude.")

    def records(document: Document, key: str, location: str, value: Any) -> Iterator[SourceRecord | RefusedRecord]:
        if not isinstance(value, Mapping):
            yield RefusedRecord(location, "is no object; a conversation is one")
            return
        match kinds[document.name]:
            case "chatgpt":
                yield _chatgpt(location, value)
            case "claude":
                yield _claude(location, value)
            case "project":
                yield from _claude_project(location, value)
            case "memory":
                yield from _claude_memory(location, value)

    return document_reading(documents, options, records)


def _conversation(draft: Draft, title: str, turns: list[tuple[str, str]]) -> SourceRecord | RefusedRecord:
    if not turns:
        return RefusedRecord(draft.location, "is a conversation without messages")
    draft.data["type"] = "conversation"
    draft.text("title", title, asked_title(turns))
    draft.text("content", conversation_text(turns))
    draft.data.setdefault("updated_at", draft.data.get("created_at"))
    return draft.record()


def asked_title(turns: Sequence[tuple[str, str]]) -> str:
    """A title for a conversation without one: the first words of the user, else of anybody."""
    texts = [text for speaker, text in turns if speaker == "User"] or [text for _, text in turns]
    return derived_title(texts[0]) if texts else ""


def conversation_text(turns: Sequence[tuple[str, str]], done: str = "") -> str:
    """A conversation as text. A long one begins with what was asked first, and what was answered last."""
    text = "\n\n".join(f"**{speaker}:**\n\n{said}" for speaker, said in turns)
    if len(text) < _LONG_TEXT:
        return text
    asked = next((said for speaker, said in turns if speaker == "User"), "")
    answered = next((said for speaker, said in reversed(turns) if speaker == "Assistant"), "")
    parts = (("Asked", asked), ("Answered last", answered), ("Done", done))
    opening = "\n\n".join(f"{name}: {_short(said)}" for name, said in parts if said)
    return f"{opening}\n\n{text}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _OPENING else line[:_OPENING].rsplit(" ", 1)[0] + "…"


def _chatgpt(location: str, row: Row) -> SourceRecord | RefusedRecord:
    conversation_id = plain_text(row.get("conversation_id")) or plain_text(row.get("id"))
    draft = Draft(location, row, "chatgpt")
    messages = _chatgpt_messages(row)
    dates = [message["create_time"] for message in messages if message.get("create_time")]
    draft.text("id", f"chatgpt:{conversation_id}" if conversation_id else "")
    draft.moment("created_at", row.get("create_time"), *dates[:1])
    draft.moment("updated_at", row.get("update_time"), *dates[-1:])
    draft.text("agent", row.get("default_model_slug"), "chatgpt")
    if row.get("is_archived") is True:
        draft.data["state"] = "archived"
    if conversation_id:
        draft.text("source_url", f"https://chatgpt.com/c/{conversation_id}")
    turns = [(speaker, text) for message in messages if (speaker := _speaker(message)) and (text := _said(message))]
    return _conversation(draft, plain_text(row.get("title")), turns)


def _chatgpt_messages(row: Row) -> list[dict[str, Any]]:
    """The messages on the branch that the conversation shows, from the first to the last."""
    mapping = fields_of(row.get("mapping"))
    at = plain_text(row.get("current_node"))
    if at not in mapping:
        at = max(mapping, key=lambda one: _moment_of(fields_of(mapping[one]).get("message")), default="")
    path: list[dict[str, Any]] = []
    seen: set[str] = set()
    while at in mapping and at not in seen and len(seen) < _MAX_TURNS:
        seen.add(at)
        node = fields_of(mapping[at])
        if message := fields_of(node.get("message")):
            path.append(message)
        at = plain_text(node.get("parent"))
    return path[::-1]


def _moment_of(message: Any) -> float:
    """When a message was written, in seconds; 0 if it does not say."""
    try:
        moment = parse_moment(fields_of(message).get("create_time") or fields_of(message).get("created_at"))
    except ValueError:
        return 0.0
    return moment.timestamp() if moment else 0.0


def _speaker(message: Row) -> str:
    if fields_of(message.get("metadata")).get("is_visually_hidden_from_conversation"):
        return ""
    return _SPEAKERS.get(plain_text(fields_of(message.get("author")).get("role")), "")


def _said(message: Row) -> str:
    content = fields_of(message.get("content"))
    if content.get("content_type") in (
        "thoughts",
        "reasoning_recap",
        "user_editable_context",
        "model_editable_context",
    ):
        return ""
    parts: list[str] = []
    for part in listed(content.get("parts")):
        if isinstance(part, Mapping):
            kind = plain_text(part.get("content_type"))
            parts.append(plain_text(part.get("text")) or (f"[{kind.replace('_', ' ')}]" if kind else ""))
        else:
            parts.append(plain_text(part))
    if not parts and (text := plain_text(content.get("text"))):
        parts.append(f"```\n{text}\n```" if content.get("content_type") == "code" else text)
    return "\n\n".join(part for part in parts if part)


def _claude(location: str, row: Row) -> SourceRecord | RefusedRecord:
    draft = Draft(location, row, "claude")
    draft.text("id", f"claude:{plain_text(row.get('uuid'))}")
    draft.text("summary", row.get("summary"))
    draft.text("agent", row.get("model"), "claude")
    draft.moment("created_at", row.get("created_at"))
    draft.moment("updated_at", row.get("updated_at"))
    draft.text("source_url", f"https://claude.ai/chat/{plain_text(row.get('uuid'))}")
    turns: list[tuple[str, str]] = []
    for message in _claude_messages(row):
        parts = [plain_text(fields_of(one).get("text")) for one in listed(message.get("content"))]
        text = "\n\n".join(part for part in parts if part) or plain_text(message.get("text"))
        for attachment in map(fields_of, listed(message.get("attachments"))):
            name = plain_text(attachment.get("file_name")) or "attachment"
            text += f"\n\n[{name}]\n\n{plain_text(attachment.get('extracted_content'))}".rstrip()
        for file in map(fields_of, listed(message.get("files"))):
            text += f"\n\n[{plain_text(file.get('file_name')) or 'file'}]"
        if (speaker := _SPEAKERS.get(plain_text(message.get("sender")))) and text.strip():
            turns.append((speaker, text.strip()))
    return _conversation(draft, plain_text(row.get("name")), turns)


def _claude_messages(row: Row) -> list[dict[str, Any]]:
    """The messages of the branch that was last active: an edited turn has the same parent as the one before."""
    messages = [fields_of(one) for one in listed(row.get("chat_messages"))]
    by_id = {plain_text(one.get("uuid")): one for one in messages if plain_text(one.get("uuid"))}
    if len(by_id) < len(messages) or not any(plain_text(one.get("parent_message_uuid")) in by_id for one in messages):
        return messages
    leaf = plain_text(row.get("current_leaf_message_uuid"))
    last = by_id.get(leaf) or max(reversed(messages), key=_moment_of)
    path: list[dict[str, Any]] = []
    seen: set[str] = set()
    at = plain_text(last.get("uuid"))
    while at in by_id and at not in seen:
        seen.add(at)
        path.append(by_id[at])
        at = plain_text(by_id[at].get("parent_message_uuid"))
    return path[::-1]


def _claude_project(location: str, row: Row) -> Iterator[SourceRecord]:
    """The instructions and the documents of a project, in the project of its name."""
    name, project_id = plain_text(row.get("name")), plain_text(row.get("uuid"))
    instructions = {"filename": "Instructions", "content": row.get("prompt_template"), "uuid": f"{project_id}:prompt"}
    for number, document in enumerate([instructions, *map(fields_of, listed(row.get("docs")))]):
        if not plain_text(document.get("content")):
            continue
        draft = Draft(f"{location}.docs[{number - 1}]" if number else location, document, "claude")
        draft.text("id", f"claude-document:{plain_text(document.get('uuid'))}")
        draft.data["type"] = "document"
        draft.text("project", name[:100])
        draft.text("title", document.get("filename"))
        draft.text("content", document.get("content"))
        draft.moment("created_at", document.get("created_at"), row.get("created_at"))
        draft.data["updated_at"] = draft.data.get("created_at")
        yield draft.record()


def _claude_memory(location: str, row: Row) -> Iterator[SourceRecord]:
    texts = {"conversations": row.get("conversations_memory"), **fields_of(row.get("project_memories"))}
    for name, text in texts.items():
        if plain_text(text):
            draft = Draft(f"{location} {name}", {"of": name}, "claude")
            draft.data |= {"id": f"claude-memory:{plain_text(row.get('account_uuid'))}:{name}"[:500], "type": "memory"}
            draft.text("content", text)
            yield draft.record()


IMPORTER = Importer("conversations", "the export of ChatGPT or Claude (conversations.json, or its ZIP)", knows, read)
