"""The model of one process for all others of this machine, so that only one has to load it.

The worker offers its models on a Unix socket in MNEMOSCOPE_HOME that only its user can open. Each request and reply is
a line of JSON.
"""

import base64
import contextlib
import fcntl
import json
import logging
import os
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from django.conf import settings

from memories.embedding import installation
from memories.embedding.models import Embedder, EmbedderUnavailableError, Vectors, load_embedder, missing_packages
from memories.embedding.query import (
    EmbedderLoadingError,
    EmbedderNotReadyError,
    QueryEmbedder,
    QueryModel,
    QueryVector,
    ServingModel,
)

logger = logging.getLogger(__name__)

# The time that a query waits for a model of its own process.
PATIENCE_SECONDS = 10.0
# A worker that starts, or starts again, answers within this time.
START_SECONDS = 60.0
_RETRY_SECONDS = 60.0
_TIMEOUT_SECONDS = 10.0
_POLL_SECONDS = 0.25
_LONGEST_LINE = 1 << 20
# The kernels allow 103 to 107 bytes.
_LONGEST_PATH = 100


def socket_file() -> Path:
    return Path(settings.HOME) / "queries.sock"


@contextlib.contextmanager
def _socket_name() -> Iterator[str]:
    """A name of the socket that is short enough for the kernel."""
    path = socket_file()
    if len(os.fsencode(path)) <= _LONGEST_PATH or not Path("/proc/self/fd").exists():
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


# --- the server ---------------------------------------------------------------------------------------------------


class Models:
    """The models of this process. Each is loaded once, and each user gets an embedder that shares the weights."""

    def __init__(self, load: Callable[[str], Embedder] = lambda source: load_embedder(source, threads=1)) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._loaded: dict[str, Embedder] = {}

    def embedder(self, source: str) -> Embedder:
        """Load a model, which takes seconds, unless it is loaded. Raises EmbedderUnavailableError."""
        with self._lock:
            if source not in self._loaded:
                self._loaded[source] = self._load(source)
            return self._loaded[source].clone()


class OfferedModels:
    """The embedders that answer other processes. Loads what they ask for in the background."""

    def __init__(self, models: Models, clock: Callable[[], float] = time.monotonic) -> None:
        self._models = models
        self._clock = clock
        self._lock = threading.Lock()
        self._embedders: dict[str, Embedder] = {}
        self._loading: set[str] = set()
        self._failed: dict[str, tuple[str, float]] = {}

    def reply(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The vector of a text by a model, or the reason why there is none."""
        try:
            embedder = self._ready(str(asked["source"]))
        except EmbedderNotReadyError as error:
            return {"reason": error.reason, "is_loading": isinstance(error, EmbedderLoadingError)}
        if embedder.name != asked["name"]:
            reason = f"memories are embedded by {asked['name']}, but {asked['source']} is now another model"
            return {"reason": reason}
        text = str(asked["text"])
        vector = embedder.encode_query(text) if asked["is_query"] else embedder.encode([text])[0]
        return {"vector": base64.b64encode(vector.tobytes()).decode()}

    def load_soon(self, source: str) -> None:
        """Load a model in a thread, unless it is loaded or loading, or failed recently."""
        with self._lock:
            failed = self._failed.get(source)
            if failed and self._clock() - failed[1] < _RETRY_SECONDS:
                return
            if source in self._embedders or source in self._loading:
                return
            self._loading.add(source)
        threading.Thread(target=self._load, args=(source,), name="embedder", daemon=True).start()

    def _ready(self, source: str) -> Embedder:
        self.load_soon(source)
        with self._lock:
            if source in self._embedders:
                return self._embedders[source]
            if source in self._failed and source not in self._loading:
                raise EmbedderNotReadyError(self._failed[source][0])
        raise EmbedderLoadingError

    def _load(self, source: str) -> None:
        reason = ""
        try:
            embedder = self._models.embedder(source)
            embedder.encode_query("the first one takes longer")
        except EmbedderUnavailableError as error:
            logger.warning("Searching by words only: %s", error)
            reason = str(error)
        except Exception as error:
            logger.exception("Searching by words only: the model could not be loaded.")
            reason = f"the model could not be loaded: {error}"
        with self._lock:
            self._loading.discard(source)
            if reason:
                self._failed[source] = (reason, self._clock())
            else:
                self._embedders[source] = embedder
                self._failed.pop(source, None)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128
    timeout = _POLL_SECONDS

    def __init__(self, address: str, models: OfferedModels) -> None:
        super().__init__(address, _Handler)
        self.models = models


class _Handler(socketserver.StreamRequestHandler):
    timeout = _TIMEOUT_SECONDS
    server: _Server

    def handle(self) -> None:
        # A client that hangs up, or sends something else.
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            asked = json.loads(self.rfile.readline(_LONGEST_LINE))
            self.wfile.write(json.dumps(self.server.models.reply(asked)).encode() + b"\n")


@contextlib.contextmanager
def offer(models: Models, source: str) -> Iterator[None]:
    """Answer the queries of other processes while the block runs, first of all by the model of this source.

    Of several workers with the same MNEMOSCOPE_HOME one answers, and another takes its place when it ends. The threads
    that answer have the priority that this thread has at the beginning of the block.
    """
    over = threading.Event()
    offered = OfferedModels(models)
    thread = threading.Thread(target=_serve, args=(offered, source, over), name="queries", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _serve(models: OfferedModels, source: str, over: threading.Event) -> None:
    path = socket_file()
    try:
        with path.with_suffix(".lock").open("w") as file:
            if not _own_turn(file.fileno(), over):
                return
            # A killed worker leaves its socket behind.
            path.unlink(missing_ok=True)
            with _socket_name() as name, _Server(name, models) as server:
                path.chmod(0o600)
                models.load_soon(source)
                try:
                    while not over.is_set():
                        server.handle_request()
                finally:
                    path.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("Other processes search by words only: the model cannot be offered in %s: %s", path, error)


def _own_turn(lock: int, over: threading.Event) -> bool:
    """Wait for the lock of the process that answers. Returns whether this process has it; otherwise it is `over`."""
    while not over.is_set():
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            over.wait(_POLL_SECONDS)
        else:
            return True
    return False


# --- the clients --------------------------------------------------------------------------------------------------


class NobodyAnswersError(EmbedderNotReadyError):
    """No process of this machine offers its models."""


class RemoteModel:
    """The serving model in the process that has it."""

    def __init__(self, serving: ServingModel, answered: Callable[[], None] = lambda: None) -> None:
        self.name = serving.name
        self._source = serving.source
        self._answered = answered

    def encode(self, texts: Sequence[str]) -> Vectors:
        return np.stack([self._vector(text, is_query=False) for text in texts])

    def encode_query(self, text: str) -> npt.NDArray[np.float32]:
        return self._vector(text, is_query=True)

    def _vector(self, text: str, *, is_query: bool) -> npt.NDArray[np.float32]:
        reply = _ask({"source": self._source, "name": self.name, "text": text, "is_query": is_query})
        self._answered()
        if reply.get("is_loading"):
            raise EmbedderLoadingError
        if "reason" in reply:
            raise EmbedderNotReadyError(str(reply["reason"]))
        return np.frombuffer(base64.b64decode(reply["vector"]), np.float32).copy()


class RemoteQueries(QueryEmbedder):
    """The query vectors of a web process, by the model of the worker. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock=clock)
        self._answered_at = clock()

    def ready(self) -> tuple[ServingModel, QueryModel]:
        serving = self._look()
        if serving is None or not self._some_vectors(serving):
            raise EmbedderNotReadyError(missing_packages(settings.EMBEDDING_MODEL) or "no memory has been embedded yet")
        return serving, RemoteModel(serving, self._answered)

    def vector(self, text: str) -> QueryVector:
        with self._explained():
            return super().vector(text)

    def passage_vector(self, text: str) -> QueryVector:
        with self._explained():
            return super().passage_vector(text)

    def check(self) -> None:
        with self._explained():
            self.ready()[1].encode_query("")

    def load_soon(self, then: Callable[[], None] = lambda: None) -> None:
        """Nothing: the worker loads its model by itself."""

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Tell a worker that starts from one that is not there."""
        try:
            yield
        except NobodyAnswersError:
            raise NobodyAnswersError(self._why_nobody_answers()) from None

    def _answered(self) -> None:
        self._answered_at = self._clock()

    def _why_nobody_answers(self) -> str:
        serving = self._look()
        if serving and (missing := missing_packages(serving.source) or installation.state()):
            return missing
        if self._clock() - self._answered_at < START_SECONDS:
            return EmbedderLoadingError().reason
        return "the process that has the model is not running: manage.py worker"


class SharedQueries(RemoteQueries):
    """The query vectors of the running worker; without one those of an own model, which the first queries wait for."""

    def __init__(self, load: Callable[[str], Embedder] | None = None) -> None:
        super().__init__()
        self._own = QueryEmbedder(load)

    def prepare(self) -> None:
        """Begin to load an own model, unless a worker answers."""
        try:
            _ask({"source": settings.EMBEDDING_MODEL, "name": "", "text": "", "is_query": True})
        except NobodyAnswersError:
            self._own.load_soon()
        except EmbedderNotReadyError:
            pass

    def vector(self, text: str) -> QueryVector:
        try:
            return super().vector(text)
        except NobodyAnswersError:
            return self._by_own_model(lambda: self._own.vector(text))

    def passage_vector(self, text: str) -> QueryVector:
        try:
            return super().passage_vector(text)
        except NobodyAnswersError:
            return self._by_own_model(lambda: self._own.passage_vector(text))

    def _by_own_model(self, embed: Callable[[], QueryVector]) -> QueryVector:
        try:
            return embed()
        except EmbedderLoadingError:
            self._own.wait(PATIENCE_SECONDS)
            return embed()


def _ask(question: dict[str, Any]) -> dict[str, Any]:
    """The reply of the process that offers its models. Raises EmbedderNotReadyError."""
    try:
        with _socket_name() as name, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            channel.settimeout(_TIMEOUT_SECONDS)
            channel.connect(name)
            channel.sendall(json.dumps(question).encode() + b"\n")
            with channel.makefile("rb") as file:
                line = file.readline(_LONGEST_LINE)
    except TimeoutError:
        raise EmbedderNotReadyError("the process that has the model does not answer") from None
    except OSError:
        raise NobodyAnswersError("no process offers a model") from None
    # A process that is killed leaves half a line.
    with contextlib.suppress(ValueError):
        reply = json.loads(line) if line.endswith(b"\n") else None
        if isinstance(reply, dict) and reply.keys() & {"vector", "reason"}:
            return reply
    raise NobodyAnswersError("the process that has the model ended")
