"""The messages of JSON-RPC in a body: one, or those of a batch."""

import json
from collections.abc import Mapping
from typing import Any

from web.errors import ApiError

# The last revision of the protocol with batches, which a client without a header speaks.
_BATCHES = "2025-03-26"
# A batch holds its turn until all its messages are answered.
_MOST_IN_BATCH = 20


class JsonRpcError(ApiError):
    """A body that is no message of JSON-RPC. `number` is the code that JSON-RPC has for that."""

    def __init__(self, number: int, detail: str, suggestion: str) -> None:
        self.number = number
        super().__init__(400, "malformed_request", detail, suggestion)


def messages_in(body: bytes, headers: Mapping[str, str]) -> dict[str, Any] | list[Any]:
    """The message in a body, or those of a batch. Raises JsonRpcError."""
    try:
        read = json.loads(body)
    except (ValueError, RecursionError):
        raise JsonRpcError(-32700, "The body is not JSON.", "Send one JSON-RPC message.") from None
    if not isinstance(read, list):
        return check_message(read)
    version = headers.get("mcp-protocol-version", _BATCHES)
    if version > _BATCHES:
        wrong = f"The protocol of {version} has no batches."
        raise JsonRpcError(-32600, wrong, "Send each message in a request of its own.")
    if not 0 < len(read) <= _MOST_IN_BATCH:
        wrong = f"A batch has 1 to {_MOST_IN_BATCH} messages, and this one {len(read):,}."
        raise JsonRpcError(-32600, wrong, "Send fewer at a time." if read else "Send a message.")
    return read


def check_in_batch(message: Any) -> dict[str, Any]:
    """A message of a batch. Raises JsonRpcError."""
    if check_message(message).get("method") == "initialize":
        raise JsonRpcError(-32600, "A batch cannot initialize.", "Send it in a request of its own.")
    return check_message(message)


def check_message(message: Any) -> dict[str, Any]:
    """A message of JSON-RPC. Raises JsonRpcError."""
    if not isinstance(message, dict):
        raise JsonRpcError(-32600, "A message must be a JSON object.", "Send one with jsonrpc, id, method and params.")
    is_reply = "method" not in message and ("result" in message or "error" in message)
    identity = message.get("id", 0)
    wrong = ""
    if message.get("jsonrpc") != "2.0":
        wrong = 'jsonrpc must be "2.0".'
    elif not is_reply and not isinstance(message.get("method"), str):
        wrong = "method must be a text, such as tools/call."
    elif isinstance(identity, bool) or not isinstance(identity, str | int):
        wrong = "id must be a text or a whole number."
    elif not isinstance(message.get("params"), dict | None):
        wrong = "params must be an object."
    if wrong:
        raise JsonRpcError(-32600, wrong, "Send a message of JSON-RPC 2.0, with jsonrpc, id, method and params.")
    return message
