"""The interfaces as clients meet them: REST, MCP over HTTP and over standard input and output, and pages."""

import html
import http.client
import json
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from lab.torture.site import ROOT, Site

# Longer than a server works on a request that nobody waits for any more.
SECONDS = 75.0


class NoAnswerError(Exception):
    """Nobody knows whether it was done: the connection broke, or the server failed."""


class RefusedError(Exception):
    """The server says that it did not do it."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    """By their names in lower case."""
    text: str
    cookies: tuple[str, ...] = ()

    def json(self) -> Any:
        return json.loads(self.text)


class Http:
    """Requests to one site, each over a connection of its own."""

    def __init__(self, port: int, headers: Mapping[str, str] | None = None) -> None:
        self.port, self.headers = port, dict(headers or {})

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, form: bool = False
    ) -> Answer:
        """Send a request with JSON or a form. Raises NoAnswerError if no whole answer comes back."""
        sent = {**self.headers, **(headers or {})}
        data = None
        if form:
            data = urlencode(body, doseq=True).encode()
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        elif body is not None:
            data = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        elif method != "GET":
            data = b""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            text = response.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswerError(repr(error)) from error
        finally:
            connection.close()
        cookies = tuple(response.headers.get_all("Set-Cookie", []))
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, text, cookies)

    def done(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        """The JSON of a request that was done; RefusedError for one that was refused."""
        answer = self.ask(method, path, body, headers)
        if answer.status >= 500:
            raise NoAnswerError(f"{answer.status} {answer.text[:300]}")
        if answer.status >= 300:
            raise RefusedError(f"{method} {path}: {answer.status} {answer.text[:600]}")
        return answer.json()


class Rest:
    """Single writes through the API."""

    name = "REST"

    def __init__(self, http: Http) -> None:
        self.http = http

    def store(self, fields: Mapping[str, Any]) -> int:
        return int(self.http.done("POST", "/api/memories", fields)["id"])

    def change(self, memory: int, fields: Mapping[str, Any]) -> None:
        self.http.done("PATCH", f"/api/memories/{memory}", fields)

    def delete(self, memory: int) -> None:
        self.http.done("DELETE", f"/api/memories/{memory}")

    def restore(self, memory: int) -> None:
        self.http.done("POST", f"/api/memories/{memory}/restore")


class McpCaller:
    """Tools of MCP, over whatever transport `request` uses."""

    name = ""

    def request(self, method: str, params: Mapping[str, Any]) -> Any:
        raise NotImplementedError

    def tool(self, name: str, **arguments: Any) -> str:
        """The answer of a tool. An error says in words what was not done, or that nobody knows."""
        result = self.request("tools/call", {"name": name, "arguments": arguments})
        text = str(result["content"][0]["text"])
        if result.get("isError"):
            # A refusal of the tool is certain; a database that went away may have done it.
            raise (NoAnswerError if "database" in text.lower() or "internal" in text.lower() else RefusedError)(text)
        return text

    def store(self, fields: Mapping[str, Any]) -> int:
        text = self.tool("store_memory", **fields)
        found = re.search(r'"?\bid"?: ?(\d+)', text)
        if found is None:
            raise NoAnswerError(f"store_memory names no id: {text[:300]}")
        return int(found[1])

    def change(self, memory: int, fields: Mapping[str, Any]) -> None:
        self.tool("update_memory", id=memory, **fields)

    def delete(self, memory: int) -> None:
        self.tool("update_memory", id=memory, state="deleted")

    def restore(self, memory: int) -> None:
        self.tool("restore", id=memory)


class McpHttp(McpCaller):
    name = "MCP over HTTP"

    def __init__(self, http: Http) -> None:
        self.http = http

    def request(self, method: str, params: Mapping[str, Any]) -> Any:
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = self.http.ask("POST", "/mcp", call, {"Accept": "application/json, text/event-stream"})
        if answer.status >= 300:
            raise (RefusedError if answer.status < 500 else NoAnswerError)(f"{answer.status} {answer.text[:300]}")
        text = answer.text
        if "data:" in text and not text.startswith("{"):  # one event of a stream
            text = next(line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:"))
        return _result(json.loads(text))


class McpStdio(McpCaller):
    """`manage.py mcp` as a child, started again when it is gone."""

    name = "MCP over stdio"

    def __init__(self, site: Site, key: str) -> None:
        self._site, self._key = site, key
        self._lines: queue.Queue[str] = queue.Queue()
        self._number = 0
        self.process: subprocess.Popen[str] | None = None

    def request(self, method: str, params: Mapping[str, Any]) -> Any:
        if self.process is None or self.process.poll() is not None:
            self._start()
        return self._exchange(method, params)

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    pipe.close()
            self.process = None

    def _start(self) -> None:
        self.close()
        self._lines = queue.Queue()
        with self._site.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "mcp"],
                cwd=ROOT,
                env={**self._site.environment, "MNEMOSCOPE_KEY": self._key},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                process_group=0,
            )
        threading.Thread(target=self._read, args=(self.process, self._lines), daemon=True).start()
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "torture", "version": "1"}}
        self._exchange("initialize", hello)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _exchange(self, method: str, params: Mapping[str, Any]) -> Any:
        self._number += 1
        self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        while True:
            try:
                line = self._lines.get(timeout=SECONDS)
            except queue.Empty:
                self.close()
                raise NoAnswerError("no answer from manage.py mcp") from None
            if not line:
                raise NoAnswerError("manage.py mcp has ended")
            message = json.loads(line)
            if message.get("id") == self._number:
                return _result(message)

    def _send(self, message: Mapping[str, Any]) -> None:
        if self.process is None or self.process.stdin is None:
            raise NoAnswerError("manage.py mcp has ended")
        try:
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()
        except (OSError, ValueError) as error:
            raise NoAnswerError(repr(error)) from error

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: "queue.Queue[str]") -> None:
        try:
            for line in process.stdout or ():
                if line.startswith("{"):
                    lines.put(line)
        except ValueError:  # closed meanwhile
            pass
        lines.put("")


def _result(message: Mapping[str, Any]) -> Any:
    if "result" not in message:
        text = json.dumps(message.get("error"))[:600]
        # It is unknown how much was done before an internal error.
        raise (RefusedError if "-32602" in text else NoAnswerError)(text)
    return message["result"]


class Pages:
    """A person's browser: the forms of memories and of curation, with a session and its CSRF tokens."""

    name = "pages"

    def __init__(self, http: Http, link: str, project: str) -> None:
        self.http, self.project = http, project
        self.cookies: dict[str, str] = {}
        self.get("/" + link.split("/", 3)[3])

    def get(self, path: str) -> Answer:
        return self._ask("GET", path)

    def post(self, path: str, fields: Mapping[str, Any]) -> Answer:
        token = next((value for name, value in self.cookies.items() if name.startswith("csrftoken")), "")
        answer = self._ask("POST", path, {**fields, "csrfmiddlewaretoken": token})
        if answer.status >= 500:
            raise NoAnswerError(f"{answer.status} {path}")
        return answer

    def _ask(self, method: str, path: str, body: Any = None) -> Answer:
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        answer = self.http.ask(method, path, body, {"Cookie": cookies}, form=body is not None)
        for cookie in answer.cookies:
            name, _, rest = cookie.partition("=")
            self.cookies[name] = rest.partition(";")[0]
        return answer

    # ── Memories ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def store(self, fields: Mapping[str, Any]) -> int:
        answer = self._send_form("/m/new/", {**_as_form(fields), "project": self.project})
        made = re.search(r"/m/(\d+)/", answer.headers.get("location", ""))
        if made is None:
            raise RefusedError(_said(answer))
        return int(made[1])

    def change(self, memory: int, fields: Mapping[str, Any]) -> None:
        self._send_form(f"/m/{memory}/edit/", _as_form(fields))

    def delete(self, memory: int) -> None:
        self._set_state(memory, "deleted")

    def restore(self, memory: int) -> None:
        self._set_state(memory, "active")

    def _send_form(self, address: str, fields: Mapping[str, Any]) -> Answer:
        form = self.get(address)
        if form.status >= 500:
            raise NoAnswerError(f"{form.status} of the form")
        answer = self.post(address, {**_fields_of_form(form.text), **fields})
        if answer.status != 302:
            raise RefusedError(_said(answer))
        return answer

    def _set_state(self, memory: int, state: str) -> None:
        answer = self.post(f"/m/{memory}/state/", {"state": state})
        if answer.status != 302:
            raise RefusedError(_said(answer))

    # ── The vocabulary ───────────────────────────────────────────────────────────────────────────────────────────────

    def merge(self, kind: str, source: str, target: str) -> None:
        """Merge one term into another: the preview, and its confirmation."""
        found = self.get("/curate/?" + urlencode({"kind": kind, "name": source})).headers.get("location", "")
        if not found.startswith(f"/curate/{kind}/"):
            raise NoAnswerError(f"the page of {source} is not found")
        address = found.replace("/curate/", "/curate/merge/", 1)
        preview = self.post(address, {"target": target})
        token = re.search(r'name="token" value="([^"]+)"', preview.text)
        if token is None:
            raise RefusedError(_said(preview))
        answer = self.post(address, {"target": target, "token": token[1]})
        if answer.status != 302:
            raise RefusedError(_said(answer))


def _as_form(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a record as the form of the pages has them, with one name a line."""
    shown = {name: value for name, value in fields.items() if name != "project"}
    return {name: "\n".join(value) if isinstance(value, list) else value for name, value in shown.items()}


_INPUT = re.compile(r"<input\b(?P<rest>[^>]*)>|<textarea\b(?P<area>[^>]*)>(?P<text>.*?)</textarea>", re.DOTALL)
_SELECT = re.compile(r"<select\b(?P<rest>[^>]*)>(?P<options>.*?)</select>", re.DOTALL)
_ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')


def _fields_of_form(page: str) -> dict[str, str]:
    """The values that a browser would send back with the form of a memory."""
    start = page.find('<form class="edit"')
    form = page[start : page.find("</form>", start)]
    found: dict[str, str] = {}
    for match in _INPUT.finditer(form):
        attributes = dict(_ATTRIBUTE.findall(match["rest"] or match["area"] or ""))
        name, kind = attributes.get("name", ""), attributes.get("type", "text")
        if not name or kind in {"submit", "file"} or (kind in {"checkbox", "radio"} and " checked" not in match[0]):
            continue
        value = match["text"] if match["text"] is not None else attributes.get("value", "")
        # A browser drops the first line feed of a text area.
        found[name] = html.unescape(value.removeprefix("\r\n").removeprefix("\n"))
    for match in _SELECT.finditer(form):
        name = dict(_ATTRIBUTE.findall(match["rest"])).get("name", "")
        chosen = re.search(r'<option value="([^"]*)"[^>]* selected', match["options"])
        if name and chosen:
            found[name] = html.unescape(chosen[1])
    return found


def _said(answer: Answer) -> str:
    """The message of a page that refused a form."""
    errors = re.findall(r'<p class="(?:notice error|field-error)"[^>]*>(.*?)</p>', answer.text, re.DOTALL)
    text = " ".join(errors) or answer.text
    return f"{answer.status} " + re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))[:400]
