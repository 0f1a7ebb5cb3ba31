"""Asking an ASGI application without a server."""

import asyncio
from dataclasses import dataclass

from agent_tools.asgi import allowance_of, refusal_of, sender_of
from web.bodies import BodyReader


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self):
        return self.body.decode()


async def ask(application, path, method="GET", gone=None, body=(b"",), headers=((b"host", b"localhost"),)):
    """The answer of an application; None if it gave none. The client stays until `gone`. `body` has pieces."""
    sent, to_come = [], [{"type": "http.request", "body": piece, "more_body": True} for piece in reversed(body)]
    to_come[0]["more_body"] = False

    async def receive():
        if to_come:
            return to_come.pop()
        await (gone or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": list(headers),
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
    }
    await BodyReader(application, sender_of, allowance_of, refusal_of)(scope, receive, send)
    if not sent:
        return None
    headers = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], headers, b"".join(message.get("body", b"") for message in sent[1:]))
