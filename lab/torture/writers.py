"""Threads that write through every interface, and note in the ledger what was acknowledged."""

import contextlib
import json
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from lab.torture.clients import Http, McpCaller, McpStdio, NoAnswerError, Pages, RefusedError
from lab.torture.ledger import GROUP_KINDS, Entry, Ledger, Version, Write, changed, group_term
from lab.torture.site import ROOT, Site

Answered = TypeVar("Answered")

# A request is sent again until it is answered, for this long.
PATIENCE_SECONDS = 60.0


class Client(Protocol):
    """An interface that stores and changes one memory at a time."""

    name: str

    def store(self, fields: Mapping[str, Any]) -> int: ...

    def change(self, memory: int, fields: Mapping[str, Any]) -> None: ...

    def delete(self, memory: int) -> None: ...

    def restore(self, memory: int) -> None: ...


class Traffic:
    """Lets writers write or makes them wait, and knows when the last of them has had its answer."""

    def __init__(self) -> None:
        self.cycle = 0
        self.last_acknowledged = 0.0
        self.is_over = False
        self._is_open = threading.Event()
        self._busy = 0
        self._idle = threading.Condition()

    def open(self) -> None:
        self._is_open.set()

    def close(self, seconds: float) -> bool:
        """Make writers wait. Return whether all of them do in time."""
        self._is_open.clear()
        with self._idle:
            return self._idle.wait_for(lambda: self._busy == 0, seconds)

    def end(self) -> None:
        self.is_over = True
        self._is_open.set()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        while True:
            self._is_open.wait()
            with self._idle:
                if self._is_open.is_set() or self.is_over:
                    self._busy += 1
                    break
        try:
            yield
        finally:
            with self._idle:
                self._busy -= 1
                self._idle.notify_all()


class Writer(threading.Thread):
    """One thread, which writes for as long as it may."""

    pause = 0.1
    # Whether a write is sent several times, each of which is timed.
    repeats = False

    def __init__(self, name: str, ledger: Ledger, traffic: Traffic, seed: str) -> None:
        super().__init__(name=name, daemon=True)
        self.ledger, self.traffic = ledger, traffic
        self.rng = random.Random(f"{seed} {name}")
        self._prefix, self._count = uuid.UUID(int=self.rng.getrandbits(128)).hex[:8], 0
        self.crashed = ""

    def run(self) -> None:
        while not self.traffic.is_over:
            with self.traffic.turn():
                if self.traffic.is_over:
                    return
                try:
                    self.step()
                except Exception as error:  # a fault of the campaign must not look like silence
                    self.crashed = f"{self.name}: {error!r}"
                    self.ledger.findings.add("the campaign failed", self.crashed)
                    time.sleep(1)
            time.sleep(self.pause * self.rng.random() * 2)

    def step(self) -> None:
        raise NotImplementedError

    def token(self) -> str:
        self._count += 1
        return f"{self._prefix}n{self._count}"

    def new(self, **more: Any) -> tuple[Entry, Version]:
        return Entry(self.name, self.traffic.cycle, **more), Version(self.token())

    def write(self, verb: str, after: dict[Entry, Version], send: Callable[[], Iterable[int] | None]) -> bool:
        """Send a write, and note what became of it. Return whether it was acknowledged."""
        write = Write(self.name, verb, after, self.traffic.cycle)
        self.ledger.begin(write)
        try:
            ids = send() if self.repeats else self.timed(send)
        except RefusedError as error:
            self.ledger.refuse(write, str(error))
        except NoAnswerError as error:
            self.ledger.leave_open(write, str(error))
            time.sleep(0.1)
        else:
            self.ledger.acknowledge(write, ids or ())
            self.traffic.last_acknowledged = time.monotonic()
            return True
        return False

    def timed(self, send: Callable[[], Answered]) -> Answered:
        """Send one request, and note how long its answer took, whatever that was."""
        sent = time.monotonic()
        try:
            return send()
        finally:
            self.ledger.took(self.name, time.monotonic() - sent)

    def record(self, entry: Entry, version: Version, **more: Any) -> dict[str, Any]:
        return {**entry.fields(version), "project": self.ledger.project, **more}


class SingleWriter(Writer):
    """Stores one memory at a time, and changes, deletes and restores those that came through another interface."""

    def __init__(self, client: Client, other: str, ledger: Ledger, traffic: Traffic, seed: str) -> None:
        super().__init__(client.name, ledger, traffic, seed)
        self.client, self.other = client, other

    def step(self) -> None:
        verb = self.rng.choices(("store", "change", "delete", "restore"), (5, 3, 1, 1))[0]
        if verb == "store":
            entry, version = self.new()
            self.write(verb, {entry: version}, lambda: [self.client.store(self.record(entry, version))])
            return
        picked = self.ledger.pick(self.rng, self.other, deleted=verb == "restore")
        if picked is None or picked.id is None or picked.version is None:
            return
        number, before = picked.id, picked.version
        if verb == "change":
            after = Version(self.token())
            fields = picked.fields(after)
            self.write(verb, {picked: after}, lambda: self.client.change(number, fields))
        else:
            after = changed(before, is_deleted=verb == "delete")
            act = self.client.delete if verb == "delete" else self.client.restore
            self.write(verb, {picked: after}, lambda: act(number))


class RepeatingWriter(Writer):
    """Sends every request again until it is answered: a POST with an Idempotency-Key, or a PUT by external id."""

    repeats = True

    def __init__(self, http: Http, ledger: Ledger, traffic: Traffic, seed: str) -> None:
        super().__init__("REST, repeated", ledger, traffic, seed)
        self.http = http

    def step(self) -> None:
        if self.rng.random() < 0.5:
            entry, version = self.new()
            body, key = self.record(entry, version), {"Idempotency-Key": version.token}
            self.repeat("store", entry, version, lambda: self.http.done("POST", "/api/memories", body, key))
        else:
            entry, version = self.new()
            entry.external_id = version.token
            for attempt in ("store", "change"):
                body = self.record(entry, version)
                path = f"/api/memories/by-external-id/{self.ledger.project}/{entry.external_id}"
                if not self.repeat(attempt, entry, version, lambda p=path, b=body: self.http.done("PUT", p, b)):  # type: ignore[misc]
                    return
                version = Version(self.token())

    def repeat(self, verb: str, entry: Entry, version: Version, ask: Callable[[], Any]) -> bool:
        def send() -> list[int]:
            until = time.monotonic() + PATIENCE_SECONDS
            while True:
                try:
                    return [int(self.timed(ask)["id"])]
                except NoAnswerError:
                    if time.monotonic() > until or self.traffic.is_over:
                        raise
                    time.sleep(0.2)

        return self.write(verb, {entry: version}, send)


class BulkWriter(Writer):
    """Several memories in a request, all or none: stored, changed and deleted; or deleted by a query and undone."""

    def __init__(self, http: Http, ledger: Ledger, traffic: Traffic, seed: str) -> None:
        super().__init__("REST, bulk", ledger, traffic, seed)
        self.http = http

    def step(self) -> None:
        made = dict(self.new() for _ in range(self.rng.randrange(2, 8)))
        creations = [{"op": "create", "memory": self.record(entry, version)} for entry, version in made.items()]
        if not self.write("store", made, lambda: self.bulk(creations)):
            return
        if self.rng.random() < 0.5:
            after = {entry: Version(self.token()) for entry in made}
            updates = [
                {"op": "update", "id": entry.id, "memory": entry.fields(version)} for entry, version in after.items()
            ]
            if not self.write("change", after, lambda: self.bulk(updates)):
                return
        elif self.rng.random() < 0.4:
            self.forget(made)

    def bulk(self, operations: list[dict[str, Any]]) -> list[int]:
        reply = self.http.done("POST", "/api/memories/bulk", {"atomic": True, "operations": operations})
        if reply["failed"]:
            raise RefusedError(json.dumps(reply["results"])[:600])
        return [result["id"] for result in reply["results"]]

    def forget(self, made: dict[Entry, Version]) -> None:
        """Delete a few memories by a query, after its preview, and sometimes undo that."""
        words = " or ".join(version.token for version in made.values())
        body = {"query": f"q={words.replace(' ', '+')}&mode=keyword&tag=cycle-{next(iter(made)).cycle}"}
        try:
            plan = self.http.done("POST", "/api/memories/forget", {**body, "dry_run": True})["plan"]
        except (NoAnswerError, RefusedError):
            return
        if plan["memories"] != len(made):
            self.ledger.findings.add("not found", f"forget finds {plan['memories']} of {len(made)}: {body}")
            return
        after = {entry: changed(version, is_deleted=True) for entry, version in made.items()}
        undo: list[int] = []

        def send() -> None:
            reply = self.http.done("POST", "/api/memories/forget", {**body, "token": plan["token"]})
            undo.append(reply["curation"]["id"])

        if self.write("forget", after, send) and self.rng.random() < 0.5:
            self.write("undo", made, lambda: self.http.done("POST", f"/api/curation/{undo[0]}/undo") and None)


class Curator(Writer):
    """Stores a few memories with a term of their own, merges it into another one, and sometimes undoes that."""

    pause = 0.1

    def __init__(self, http: Http, mcp: McpCaller, pages: Pages, ledger: Ledger, traffic: Traffic, seed: str) -> None:
        super().__init__("curation", ledger, traffic, seed)
        self.http, self.mcp, self.pages = http, mcp, pages
        self._groups = 0

    def step(self) -> None:
        self._groups += 1
        kind, number = self.rng.choice(GROUP_KINDS), f"{self._prefix}g{self._groups}"
        sides = ["left"] * self.rng.randrange(1, 5) + ["right"]
        made = dict(self.new(group=f"{number} {kind}", side=side) for side in sides)
        operations = [{"op": "create", "memory": self.record(entry, version)} for entry, version in made.items()]
        body = {"atomic": True, "operations": operations}

        def send() -> list[int]:
            reply = self.http.done("POST", "/api/memories/bulk", body)
            if reply["failed"]:
                raise RefusedError(json.dumps(reply["results"])[:600])
            return [result["id"] for result in reply["results"]]

        if not self.write("store", made, send):
            return
        left, right = group_term(kind, number, "left")[1], group_term(kind, number, "right")[1]
        merged = {
            entry: changed(version, is_merged=entry.side == "left")
            for entry, version in made.items()
            if entry.side == "left"
        }
        ways: dict[str, Callable[[], Any]] = {
            "merge": lambda: self.http.done(
                "POST", "/api/curation/merge", {"kind": kind, "source": left, "target": right}
            ),
            "merge by MCP": lambda: self.mcp.tool("curate", operation="merge", kind=kind, source=left, target=right),
            "merge on pages": lambda: self.pages.merge(kind, left, right),
        }
        way = self.rng.choice(list(ways))
        done: list[Any] = []
        if self.write(way, merged, lambda: done.append(ways[way]())) and way == "merge" and self.rng.random() < 0.5:
            number_of_curation = done[0]["curation"]["id"]
            before = {entry: made[entry] for entry in merged}
            self.write(
                "undo", before, lambda: self.http.done("POST", f"/api/curation/{number_of_curation}/undo") and None
            )


class Importer(Writer):
    """Imports files by the command. After a killed import, everything of its file is there or nothing."""

    pause = 0.5

    def __init__(self, site: Site, folder: Path, records: int, ledger: Ledger, traffic: Traffic, seed: str) -> None:
        super().__init__("import", ledger, traffic, seed)
        self.site, self.folder, self.records = site, folder, records
        self.process: subprocess.Popen[bytes] | None = None
        self.is_wanted = threading.Event()
        self.killed: tuple[Path, dict[Entry, Version]] | None = None

    def step(self) -> None:
        if not self.is_wanted.is_set():
            return
        self.is_wanted.clear()
        verb, (path, made) = ("import", self.new_file()) if self.killed is None else ("import again", self.killed)
        if self.write(verb, made, lambda: self.run_import(path)):
            self.killed = None
            path.unlink()
        else:
            self.killed = path, made

    def new_file(self) -> tuple[Path, dict[Entry, Version]]:
        made = dict(self.new() for _ in range(self.records))
        path = self.folder / f"{next(iter(made.values())).token}.jsonl"
        lines = []
        for entry, version in made.items():
            entry.external_id = version.token
            lines.append(json.dumps({**self.record(entry, version), "id": entry.external_id}))
        path.write_text("\n".join(lines) + "\n")
        return path, made

    def run_import(self, path: Path) -> None:
        with self.site.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "import_memories", str(path)],
                cwd=ROOT,
                env=self.site.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        code = self.process.wait(300)
        if code == -signal.SIGKILL:
            raise NoAnswerError("killed")
        if code:
            raise NoAnswerError(f"exit code {code}")


def stop_stdio(writers: Iterable[Writer]) -> None:
    """End the children of the writers."""
    for writer in writers:
        client = getattr(writer, "client", None)
        if isinstance(client, McpStdio):
            client.close()
