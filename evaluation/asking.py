"""Asking our API as an agent does: over HTTP, with a key, a page at a time. Nothing that was asked is left out."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode

# As many as the API gives at once.
PAGE_SIZE = 100
_PATIENCE_SECONDS = 120
_POLL_SECONDS = 0.5


@dataclass(slots=True)
class Answer:
    """What came of one query: the external ids of the hits, the best first, and what was said about them."""

    ids: list[str] = field(default_factory=list)
    milliseconds: float = 0.0
    warnings: list[str] = field(default_factory=list)
    error: str = ""
    engine: str = ""


class Site:
    """The API of a server on loopback, through one connection."""

    def __init__(self, port: int, key: str) -> None:
        self._http = HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_SECONDS)
        self._headers = {"Authorization": f"Bearer {key}", "Accept": "application/json"}

    def close(self) -> None:
        self._http.close()

    def wait_for_meaning(self, text: str, seconds: float) -> str:
        """Wait until searches go by meaning too; why they do not, should they not by then."""
        until = time.monotonic() + seconds
        while True:
            _, reply = self._get(f"/api/search?{urlencode({'q': text, 'mode': 'semantic', 'page_size': 1})}")
            missing = [w["message"] for w in reply.get("warnings", ()) if w["parameter"] == "mode"]
            if not missing or time.monotonic() > until:
                return missing[0] if missing else ""
            time.sleep(_POLL_SECONDS)

    def search(
        self, text: str, mode: str, depth: int, *, leave_out: str = "", parameters: Mapping[str, str] | None = None
    ) -> Answer:
        """The first `depth` hits of a text as it was typed, but one. The time is that of the first page."""
        answer = Answer()
        page = 1
        while True:
            asked = {"q": text, "mode": mode, "page_size": PAGE_SIZE, "page": page, **(parameters or {})}
            begin = time.perf_counter()
            status, reply = self._get(f"/api/search?{urlencode(asked)}")
            answer.milliseconds = answer.milliseconds or (time.perf_counter() - begin) * 1_000
            if status != 200:
                answer.error = f"{status}: {_message(reply)}"
                return answer
            answer.engine = reply["engine"]
            answer.warnings += [w["message"] for w in reply["warnings"] if w["message"] not in answer.warnings]
            answer.ids += [hit["external_id"] for hit in reply["memories"] if hit["external_id"] != leave_out]
            if len(answer.ids) >= depth or not reply["has_more"]:
                # Where pages meet in the middle of equal scores, a hit may come twice.
                answer.ids = list(dict.fromkeys(answer.ids))[:depth]
                return answer
            page += 1

    def _get(self, path: str) -> tuple[int, Any]:
        self._http.request("GET", path, headers=self._headers)
        response = self._http.getresponse()
        body = response.read()
        try:
            return response.status, json.loads(body)
        except ValueError:
            return response.status, {"detail": body[:200].decode(errors="replace")}


def _message(reply: Any) -> str:
    """What an error says, in the API's one shape of errors."""
    return f"{reply['detail']} {reply.get('suggestion', '')}".strip()
