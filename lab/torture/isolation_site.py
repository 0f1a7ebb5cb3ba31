"""Probes of isolation against a running site, over HTTP and standard input and output."""

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from lab.torture.clients import Http, McpCaller, McpHttp, McpStdio, NoAnswerError, Pages, RefusedError
from lab.torture.isolation import (
    OWNER,
    PROBES_PER_STEP,
    WATCHERS,
    Answer,
    Leaks,
    Question,
    align,
    lines_of,
    record,
    replay,
)
from lab.torture.site import Site, SiteError, remove_folder

_ACCOUNTS = "import json; from lab.torture.accounts import make_accounts; print(json.dumps(make_accounts()))"
SETTLED_SECONDS = 30.0


class SiteWorld:
    """A running site, with a client of each interface for every viewer."""

    def __init__(self, site: Site, keys: dict[str, str]) -> None:
        self.site = site
        site.start()
        site.wait_until_it_answers()
        self.http = {who: Http(site.port, {"Authorization": f"Bearer {key}"}) for who, key in keys.items()}
        self.mcp: dict[tuple[str, str], McpCaller] = {}
        self.pages: dict[str, Pages] = {}
        for watcher in WATCHERS:
            self.mcp[watcher.name, "mcp"] = McpHttp(self.http[watcher.name])
            if "stdio" in watcher.interfaces:
                self.mcp[watcher.name, "stdio"] = McpStdio(site, keys[watcher.name])
            link = site.output("sign_in_link", "--user", watcher.name.replace(" ", "-")).strip().splitlines()[-1]
            self.pages[watcher.name] = Pages(Http(site.port), link, watcher.project)
        self.connection = site.connect()
        # Until then answers say that the database gives them.
        while self.http[OWNER].done("GET", "/api/health")["index"]["state"] != "ready":
            time.sleep(0.1)

    def ask(self, question: Question) -> Answer:
        if question.interface == "rest":
            answer = self.http[question.who].ask(question.method, question.address, question.body)
        elif question.interface == "page":
            answer = self.pages[question.who].get(question.address)
        else:
            return self._call(question)
        if answer.status >= 500:
            raise SiteError(f"{answer.status} for {question.text}: {answer.text[:300]}")
        etag = answer.headers.get("etag", "") if question.interface == "rest" else ""
        return Answer(answer.status, answer.text, etag)

    def _call(self, question: Question) -> Answer:
        caller = self.mcp[question.who, question.interface]
        try:
            return Answer(200, caller.tool(question.method, **(question.body or {})))
        except (RefusedError, NoAnswerError) as error:
            return Answer(400, str(error))

    def settle(self, step: int) -> None:
        self.connection.execute(align(step))
        until = time.monotonic() + SETTLED_SECONDS
        while time.monotonic() < until:
            row = self.connection.execute("SELECT count(*) FROM memories_outbox").fetchone()
            if row is None or row[0] == 0:
                return
            time.sleep(0.02)
        raise SiteError("the index does not follow")

    def end(self) -> None:
        self.connection.close()
        for caller in self.mcp.values():
            if isinstance(caller, McpStdio):
                caller.close()
        self.site.stop()


def run_isolation(folder: Path, port: int, probes: int, seed: int, json_file: Path | None, say: Any) -> int:
    """Ask the same in two copies of a home, print what depended on hidden data, and return 1 if anything did."""
    quiet, noisy = folder / "quiet", folder / "noisy"
    for home in (quiet, noisy):
        remove_folder(home)
    # Without a model, so that no answer depends on how far a worker has come.
    # Recalls would count what is asked here, and be stored at another time in each world.
    options = {"EMBEDDING_MODEL": str(folder / "no-model"), "RECALLS": "0"}
    first = Site(quiet, port, **options)
    try:
        first.start()
        first.wait_until_it_answers()
        keys = json.loads(first.output("shell", "-v", "0", "-c", _ACCOUNTS).strip().splitlines()[-1])
    finally:
        first.stop()
    # The files of Postgres have another owner.
    subprocess.run(["cp", "-a", str(quiet), str(noisy)], check=True)

    def progress(step: int, leaks: Leaks | None = None) -> None:
        if step % 25 == 0:
            where = (
                "where nobody else writes"
                if leaks is None
                else f"where others write: {sum(leaks.kinds.values())} leaks"
            )
            say(f"{step * PROBES_PER_STEP} probes {where}")

    second = Site(noisy, port, **options)
    try:
        world = SiteWorld(first, keys)
        turns = record(world, probes, seed, progress)
        world.end()
        world = SiteWorld(second, keys)
        leaks = replay(world, turns, seed, progress=progress)
        world.end()
    finally:
        for site in (first, second):
            site.stop()
            remove_folder(site.home)
    say("\n".join(lines_of(leaks, seed)))
    if json_file is not None:
        report = {"seed": seed, "probes": leaks.probes, "around": leaks.around, "leaks": dict(leaks.kinds)}
        json_file.write_text(json.dumps({**report, "examples": leaks.examples}, indent=1) + "\n")
    return int(bool(leaks.kinds))
