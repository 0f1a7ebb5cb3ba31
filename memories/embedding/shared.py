"""Query vectors of one process for the others of this machine, so that only one has to load the model.

`offer` serves them on a Unix socket in MNEMOSCOPE_HOME that only the user who started the server can open. Each request
and reply is a line of JSON.
"""

import base64
import contextlib
import json
import logging
import os
import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from django.conf import settings
from django.db import connection

from memories.embedding.query import (
    EmbedderLoadingError,
    EmbedderNotReadyError,
    QueryEmbedder,
    QueryVector,
    query_vector,
)

logger = logging.getLogger(__name__)

# The time that a query waits for a model of its own process.
PATIENCE_SECONDS = 10.0
_TIMEOUT_SECONDS = 10.0
_LONGEST_LINE = 1 << 20


def socket_file() -> Path:
    return Path(settings.HOME) / "queries.sock"


def _database() -> list[str]:
    """Which database a process uses: another one has other models."""
    return [str(connection.settings_dict[key]) for key in ("HOST", "PORT", "NAME")]


# --- the server ---------------------------------------------------------------------------------------------------


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class _Handler(socketserver.StreamRequestHandler):
    timeout = _TIMEOUT_SECONDS

    def handle(self) -> None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            asked = json.loads(self.rfile.readline(_LONGEST_LINE))
            if asked["database"] != _database():
                return
            try:
                reply = _reply(str(asked["text"]))
            finally:
                connection.close()
            self.wfile.write(json.dumps(reply).encode() + b"\n")


def _reply(text: str) -> dict[str, Any]:
    try:
        found = query_vector(text)
    except EmbedderNotReadyError as error:
        return {"reason": error.reason}
    return {
        "model_id": found.model_id,
        "model": found.model,
        "min_similarity": found.min_similarity,
        "vector": base64.b64encode(found.vector.tobytes()).decode(),
    }


@contextlib.contextmanager
def offer() -> Iterator[None]:
    """Answer the queries of other processes while the block runs. Of two servers the later one answers."""
    path = socket_file()
    before = os.umask(0o177)
    try:
        path.unlink(missing_ok=True)
        server = _Server(str(path), _Handler)
        own = path.stat().st_ino
    except OSError as error:  # such as a path that is too long for a socket: other processes load their own model
        logger.info("The model is not shared with other processes: %s", error)
        yield
        return
    finally:
        os.umask(before)
    threading.Thread(target=server.serve_forever, name="shared-queries", daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == own:
                path.unlink()


# --- the client ---------------------------------------------------------------------------------------------------


class SharedQueries(QueryEmbedder):
    """The query vectors of the running server; without one those of an own model, which the first queries wait for."""

    def prepare(self) -> None:
        """Begin to load an own model, unless a server answers."""
        if _ask_server("") is None:
            self.load_soon()

    def vector(self, text: str) -> QueryVector:
        reply = _ask_server(text)
        if reply is None:
            return self._own_vector(text)
        if "reason" in reply:
            raise EmbedderNotReadyError(reply["reason"])
        vector = np.frombuffer(base64.b64decode(reply["vector"]), np.float32)
        return QueryVector(reply["model_id"], reply["model"], vector, reply["min_similarity"])

    def _own_vector(self, text: str) -> QueryVector:
        try:
            return super().vector(text)
        except EmbedderLoadingError:
            self.wait(PATIENCE_SECONDS)
            return super().vector(text)


def _ask_server(text: str) -> dict[str, Any] | None:
    """The reply of the running server; None if there is none for this database."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            channel.settimeout(_TIMEOUT_SECONDS)
            channel.connect(str(socket_file()))
            channel.sendall(json.dumps({"text": text, "database": _database()}).encode() + b"\n")
            line = channel.makefile("rb").readline(_LONGEST_LINE)
            reply: dict[str, Any] | None = json.loads(line) if line else None
            return reply
    except TimeoutError:
        return {"reason": "the server that has the model does not answer"}
    except (OSError, ValueError):
        return None
