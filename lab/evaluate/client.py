"""Our API as agents use it: a web server in a sandbox, and HTTP requests with a key."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlencode

from lab.sandbox import Sandbox

# The largest page of the API.
PAGE_SIZE = 100
_TIMEOUT_SECONDS = 120
_POLL_SECONDS = 0.2


@dataclass(slots=True)
class Results:
    """The external ids found by one query, best first, with the warnings or the error of the API."""

    ids: list[str] = field(default_factory=list)
    milliseconds: float = 0.0
    warnings: list[str] = field(default_factory=list)
    error: str = ""
    engine: str = ""


class Client:
    """The API of a server on loopback, through one connection."""

    def __init__(self, port: int, key: str) -> None:
        self._http = HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_SECONDS)
        self._headers = {"Authorization": f"Bearer {key}", "Accept": "application/json"}

    def close(self) -> None:
        self._http.close()

    def is_ready(self) -> bool:
        """Whether the server answers, with the engine of its settings."""
        try:
            _, health = self._get("/api/health")
        except (OSError, HTTPException):
            return False
        return bool(health.get("status") == "ok" and health["index"]["state"] != "missing")

    def wait_for_embeddings(self, text: str, seconds: float) -> str:
        """Wait until semantic search works. Return the warning of the API if it still does not."""
        until = time.monotonic() + seconds
        while True:
            _, reply = self._get(f"/api/search?{urlencode({'q': text, 'mode': 'semantic', 'page_size': 1})}")
            missing = [str(w["message"]) for w in reply.get("warnings", ()) if w["parameter"] == "mode"]
            if not missing or time.monotonic() > until:
                return missing[0] if missing else ""
            time.sleep(_POLL_SECONDS)

    def search(self, text: str, mode: str, depth: int, *, exclude: str, parameters: Mapping[str, str]) -> Results:
        """The first `depth` hits of a text without the excluded one. The time is that of the first page."""
        results = Results()
        page = 1
        while True:
            asked = {"q": text, "mode": mode, "page_size": PAGE_SIZE, "page": page, **parameters}
            start = time.perf_counter()
            status, reply = self._get(f"/api/search?{urlencode(asked)}")
            results.milliseconds = results.milliseconds or (time.perf_counter() - start) * 1_000
            if status != 200:
                results.error = f"{status}: {reply['detail']} {reply.get('suggestion', '')}".strip()
                return results
            results.engine = reply["engine"]
            results.warnings += [w["message"] for w in reply["warnings"] if w["message"] not in results.warnings]
            results.ids += [hit["external_id"] for hit in reply["memories"] if hit["external_id"] != exclude]
            if len(results.ids) >= depth or not reply["has_more"]:
                # Among equal scores a hit may be on two pages.
                results.ids = list(dict.fromkeys(results.ids))[:depth]
                return results
            page += 1

    def _get(self, path: str) -> tuple[int, Any]:
        self._http.request("GET", path, headers=self._headers)
        response = self._http.getresponse()
        body = response.read()
        try:
            return response.status, json.loads(body)
        except ValueError:
            return response.status, {"detail": body[:200].decode(errors="replace")}


@contextmanager
def serve(sandbox: Sandbox, key: str, environment: Mapping[str, str]) -> Iterator[Client]:
    """Run a site until the block ends, and yield a client of it."""

    def is_ready(port: int) -> bool:
        with closing(Client(port, key)) as client:
            return client.is_ready()

    with sandbox.serve(is_ready, environment) as (port, _), closing(Client(port, key)) as client:
        yield client
