"""Clients that send or take slowly, never end, or send too much: each holds its connection, and that not for long.

The doors are found in the site itself, so that a new one is tried without being named here.
"""

import asyncio
import contextlib
import json
import re
import socket
import time

import httpx2
import pytest
from django.urls import get_resolver

from agent_tools import asgi
from agent_tools.claude_mem import worker
from tests.agent_tools.conftest import key_for, shared_ids, site
from web import bodies, connections
from web.admission import light_requests, requests
from web.bodies import BodyReader
from web.handler import SiteHandler

__all__ = ["shared_ids", "site"]

GROUP = re.compile(r"\(\?P<\w+>.*?\)|<int:\w+>|<[^>]+>")


def addresses(resolver=None, before="/"):
    """An address of every route of Django, with 1 for its parameters."""
    for one in (resolver or get_resolver()).url_patterns:
        route = before + str(one.pattern).removeprefix("^").removesuffix("$")
        if hasattr(one, "url_patterns"):
            yield from addresses(one, route)
        else:
            yield GROUP.sub("1", route)


def doors():
    return sorted({*addresses(), *asgi.PATHS, *asgi.OAUTH_PATHS, "/nowhere/"})


WORKER_DOORS = sorted({path for _, path in worker.ROUTES} | {"/api/corpus/1/query"})


@pytest.fixture
def impatient(monkeypatch):
    """A server that waits for seconds only, for any number of clients."""
    monkeypatch.setattr(bodies, "FREE_SECONDS", 2.0)
    monkeypatch.setattr(connections, "HEADER_SECONDS", 2.0)
    monkeypatch.setattr(connections, "TAKE_SECONDS", 1.0)
    for waiting in (bodies.awaited, connections.awaited):
        monkeypatch.setattr(waiting, "most", 10_000)


class Client:
    """A connection that sends what it is given, and no more."""

    def __init__(self, address, sent, **options):
        host, _, port = address.removeprefix("http://").partition(":")
        self.socket = socket.socket()
        for name, value in options.items():
            self.socket.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
        self.socket.settimeout(30)
        self.socket.connect((host, int(port)))
        self.socket.sendall(sent)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def end(self):
        """Everything that comes until the server ends the connection."""
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := self.socket.recv(65536):
                received += piece
        return received


def begun(path, method="POST", *, body=b"{", length=1_000, **headers):
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {length}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def answers_others(site, key):
    """Whether the site answers people and programs, at once and with all its turns."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    bearer = {"Authorization": f"Bearer {key}", "Accept": "application/json, text/event-stream"}
    replies = [
        httpx2.get(f"{site}/sign-in/"),
        httpx2.get(f"{site}/healthz"),
        httpx2.get(f"{site}/api/search", params={"q": "tea"}, headers=bearer, timeout=30),
        httpx2.post(f"{site}/mcp", json=call, headers=bearer, timeout=30),
        httpx2.get(f"{site}/.well-known/oauth-authorization-server"),
    ]
    assert [reply.status_code for reply in replies] == [200] * len(replies)
    # Turns end a moment after their answers.
    for _ in range(200):
        if (requests.free, light_requests.free) == (requests.running, light_requests.running):
            return True
        time.sleep(0.05)
    return False


# --- clients that send slowly -------------------------------------------------------------------------------------


def test_every_door_held_half_open_holds_nothing(site, shared_ids, impatient, caplog):
    key = key_for()
    assert answers_others(site, key)  # and has loaded what it needs
    assert len(doors()) > 150
    with contextlib.ExitStack() as stack:
        at_worker = f"http://127.0.0.1:{asgi.worker_port}"
        held = [
            *(stack.enter_context(Client(site, begun(path))) for path in doors()),
            *(stack.enter_context(Client(at_worker, begun(path))) for path in WORKER_DOORS),
            *(stack.enter_context(Client(site, begun(path, "GET", Authorization=f"Bearer {key}"))) for path in doors()),
        ]
        assert answers_others(site, key)
        late = [client.end()[:12] for client in held]
    assert set(late) == {b"HTTP/1.1 408"}
    assert bodies.strangers_bytes.total == len(bodies.awaited) == 0
    assert not [record for record in caplog.records if "unforeseen" in record.message or record.exc_info]


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_door_that_reads_no_body_waits_for_none(site, shared_ids, impatient, path):
    with Client(site, begun(path)) as client:
        assert client.end().startswith(b"HTTP/1.1 ")


def test_client_that_hangs_up_is_nobodys_fault(site, shared_ids, impatient, caplog):
    for path in ("/register", "/token", "/mcp", "/api/memories", "/sign-in/", "/imports/upload/"):
        Client(site, begun(path)).socket.close()
    assert answers_others(site, key_for())
    time.sleep(0.2)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_no_door_waits_for_a_client_in_its_turn(shared_ids, monkeypatch):
    """Each is asked by a client whose every piece and every look at the answer is watched."""
    application = BodyReader(asgi.McpApplication(SiteHandler()), asgi.sender_of, asgi.allowance_of, asgi.refusal_of)
    monkeypatch.setattr(asgi, "OAUTH_PER_ADDRESS", 1_000_000)
    key, waits = key_for(), 0

    def watch():
        nonlocal waits
        waits += 1
        assert (requests.free, light_requests.free) == (requests.running, light_requests.running)

    async def ask(path, method, headers):
        pieces = [(b"{", True), (b"}", False)]

        async def receive():
            if not pieces:
                return await asyncio.Event().wait()
            watch()
            body, more = pieces.pop(0)
            return {"type": "http.request", "body": body, "more_body": more}

        async def send(message):
            watch()

        scope = {"type": "http", "http_version": "1.1", "method": method, "scheme": "http", "path": path}
        scope |= {"raw_path": path.encode(), "root_path": "", "query_string": b"", "server": ("127.0.0.1", 1)}
        scope |= {"client": ("127.0.0.1", 1), "headers": [(b"host", b"localhost"), *headers]}
        await application(scope, receive, send)

    async def ask_all():
        lifespan, over = asyncio.Queue(), asyncio.Queue()
        lifespan.put_nowait({"type": "lifespan.startup"})
        life = asyncio.create_task(application({"type": "lifespan"}, lifespan.get, over.put))
        await over.get()
        bearer = (b"authorization", f"Bearer {key}".encode())
        for path in doors():
            await ask(path, "GET", [bearer])
            await ask(path, "POST", [])
        await ask("/mcp", "POST", [bearer, (b"content-type", b"application/json"), (b"accept", b"application/json")])
        lifespan.put_nowait({"type": "lifespan.shutdown"})
        await life

    asyncio.run(ask_all())
    assert waits > 8 * 150


def test_body_that_drips_ends_in_time_and_one_that_flows_is_read(site, shared_ids, impatient, monkeypatch):
    monkeypatch.setattr(bodies, "LEAST_RATE", 1_000_000)
    key, large = key_for(), json.dumps({"content": "Tea. " * 40_000}).encode()
    head = begun("/api/memories", body=b"", length=len(large), Authorization=f"Bearer {key}", Connection="close")
    with Client(site, head) as dripping, Client(site, head) as flowing:
        for at in range(0, len(large), 20_000):
            flowing.socket.sendall(large[at : at + 20_000])
            dripping.socket.sendall(b"{")
            time.sleep(0.05)
        assert not flowing.end().startswith(b"HTTP/1.1 408")
        assert dripping.end().startswith(b"HTTP/1.1 408")


def test_newest_clients_are_read_when_very_many_wait(site, shared_ids, impatient, monkeypatch):
    monkeypatch.setattr(bodies, "FREE_SECONDS", 30.0)
    monkeypatch.setattr(connections, "HEADER_SECONDS", 30.0)
    monkeypatch.setattr(bodies.awaited, "most", 20)
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(Client(site, begun("/register"))) for _ in range(30)]
        assert answers_others(site, key_for())
        monkeypatch.setattr(connections.awaited, "most", 20)
        silent = [stack.enter_context(Client(site, b"GET / HT")) for _ in range(30)]
        assert answers_others(site, key_for())
        assert [client.end()[:12] for client in held[:10]] == [b"HTTP/1.1 408"] * 10
        assert [client.end() for client in silent[:10]] == [b""] * 10


# --- headers ------------------------------------------------------------------------------------------------------


def test_headers_that_never_end_are_not_waited_for(site, shared_ids, impatient):
    ready = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    begun_and_left = [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", ready + b"GET / HT", ready]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(site, sent)) for sent in begun_and_left]
        assert [client.end().count(b"HTTP/1.1 200") for client in clients] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param(b"a: b\r\n" * 10_000 + b"\r\n", id="many"),
        pytest.param(b"a: b\r\n" * 120 + b"\r\n", id="a few too many"),
        pytest.param(b"a: " + b"b" * 70_000 + b"\r\n\r\n", id="a long one"),
        pytest.param(b"a: " + b"b" * 70_000, id="a long one without an end"),
        pytest.param(b"a" * 70_000, id="a long name without an end"),
    ],
)
def test_headers_that_are_too_large_are_refused(site, shared_ids, impatient, headers):
    with Client(site, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + headers) as client:
        assert client.end().startswith(b"HTTP/1.1 431 ")
    with Client(site, b"GET /healthz?" + b"x" * 70_000) as client:
        assert client.end().startswith(b"HTTP/1.1 431 ")
    long = {f"x-{n}": "y" * 400 for n in range(80)}
    assert httpx2.get(f"{site}/healthz", headers=long).status_code == 200


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([b"GET /healthz?" + b"x" * 20_000, b"x" * 20_000, b" HTTP/1.1\r\nHost: localhost"], id="address"),
        pytest.param([b"GET /healthz HTTP/1.1\r\n", b"a: " + b"b" * 40_000 + b"\r\n", b"Host: localhost"], id="header"),
    ],
)
def test_headers_in_parts_may_be_as_large_as_in_one(site, shared_ids, impatient, parts):
    with Client(site, b"") as client:
        for part in (*parts, b"\r\nConnection: close\r\n\r\n"):
            client.socket.sendall(part)
            time.sleep(0.1)
        assert client.end().startswith(b"HTTP/1.1 200 ")


def test_websocket_is_answered_as_a_request(site, shared_ids, caplog):
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "x", "Sec-WebSocket-Version": "13"}
    assert httpx2.get(f"{site}/sign-in/", headers=upgrade).status_code == 200
    assert not [record for record in caplog.records if record.exc_info]


# --- clients that take slowly -------------------------------------------------------------------------------------


def test_answers_that_nobody_takes_are_given_up(site, shared_ids, impatient):
    """They are more than the kernel takes for a client."""
    key = key_for()
    asked = f"GET /api/openapi.json HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
    with Client(site, 15 * asked, SO_RCVBUF=4096) as client:
        assert answers_others(site, key)
        time.sleep(5)
        whole = 15 * len(httpx2.get(f"{site}/api/openapi.json", timeout=30).content)
        assert len(client.end()) < whole


def test_proxies_are_believed_where_there_is_one(settings, monkeypatch):
    from web.serving import server_config

    monkeypatch.delenv("FORWARDED_ALLOW_IPS", raising=False)
    settings.BEHIND_TLS_PROXY = False
    assert not server_config().proxy_headers
    settings.BEHIND_TLS_PROXY = True
    assert server_config().proxy_headers
    settings.BEHIND_TLS_PROXY = False
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "10.0.0.7")
    assert server_config().proxy_headers
