"""A campaign: faults one after the other while everybody writes, and after each a comparison with the ledger."""

import copy
import itertools
import json
import os
import random
import statistics
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

from lab.report import Cell, table
from lab.torture.clients import Http, McpHttp, McpStdio, NoAnswerError, Pages, RefusedError, Rest
from lab.torture.cluster import has_citus
from lab.torture.faults import FAULTS, Fault, Scene
from lab.torture.ledger import FACETS, Entry, Ledger
from lab.torture.site import ROOT, Site, SiteError, remove_folder, small_disk
from lab.torture.writers import (
    BulkWriter,
    Curator,
    Importer,
    RepeatingWriter,
    SingleWriter,
    Traffic,
    Writer,
    stop_stdio,
)

BACK_SECONDS = 120.0
# Beyond ten seconds of lag the database answers everybody.
STALE_SECONDS = 15.0
PROJECT = "torture"
IMPORTED = 150


@dataclass(frozen=True)
class Options:
    seed: int
    folder: Path
    port: int
    cycles: int = 0
    seconds: float = 0.0
    faults: tuple[str, ...] = ()
    model: str = "hashed-words"
    disk_megabytes: int = 1500
    json: Path | None = None
    database: str = ""


@dataclass
class Figures:
    """The measurements of a campaign."""

    back: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    compared: Counter[str] = field(default_factory=Counter)
    stale: list[float] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    checks: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    cycles: int = 0
    tracebacks: int = 0
    deadlocks: int = 0


class Campaign:
    """One site, its writers, and what is known of it."""

    def __init__(self, options: Options, home: Path, no_disk: str) -> None:
        self.options, self.home = options, home
        self.rng = random.Random(options.seed)
        self.site = Site(home, options.port, database=options.database, EMBEDDING_MODEL=options.model)
        self.ledger = Ledger(PROJECT)
        self.findings = self.ledger.findings
        self.figures = Figures()
        self.traffic = Traffic()
        self.no_disk = no_disk
        self.writers: list[Writer] = []

    # ── Before and after ─────────────────────────────────────────────────────────────────────────────────────────────

    def prepare(self) -> None:
        """Start the site, and make the keys and the writers."""
        if has_citus(self.site):
            self.site.output("migrate", "-v", "0")
            self.site.output("distribute", "--yes", "--shards", "8")
        self.site.start()
        self.site.wait_until_it_answers()
        key = self.site.output(
            "create_api_key", "torture", "--scopes", "admin", "--per-minute", "1000000", "-v", "0"
        ).strip()
        link = self.site.output("sign_in_link").strip().splitlines()[-1].strip()
        if self.options.database and self.ids_in_database([1]):
            raise SiteError("The database has memories of an earlier campaign: make a new one.")
        self.http = Http(self.options.port, {"Authorization": f"Bearer {key}"})
        self.prober = SingleWriter(Rest(self.http), "", self.ledger, self.traffic, f"{self.options.seed} prober")
        entry, version = self.prober.new()
        body = self.prober.record(entry, version)
        if not self.prober.write("store", {entry: version}, lambda: [self.prober.client.store(body)]):
            raise SiteError(f"The first memory cannot be stored: {self.ledger.refused}")
        pages = Pages(self.http_of_pages(), link, PROJECT)
        seed, stdio = str(self.options.seed), McpStdio(self.site, key)
        common = (self.ledger, self.traffic, seed)
        self.importer = Importer(self.site, self.options.folder, IMPORTED, *common)
        self.writers = [
            SingleWriter(Rest(self.http), Pages.name, *common),
            RepeatingWriter(self.http, *common),
            BulkWriter(self.http, *common),
            SingleWriter(McpHttp(self.http), Rest.name, *common),
            SingleWriter(stdio, McpHttp.name, *common),
            SingleWriter(pages, McpStdio.name, *common),
            Curator(self.http, McpHttp(self.http), copy.copy(pages), *common),
            self.importer,
        ]
        self.scene = Scene(
            self.site, self.home.parent, self.rng, [stdio], self.importer, self.http, self.findings, self.no_disk
        )
        for writer in self.writers:
            writer.start()

    def http_of_pages(self) -> Http:
        return Http(self.options.port, {"Origin": f"http://127.0.0.1:{self.options.port}"})

    def chosen_faults(self) -> list[Fault]:
        """The faults of this campaign; those that cannot be done here are noted with the reason."""
        chosen = []
        for fault in FAULTS:
            is_named = any(word in fault.name for word in self.options.faults)
            if not (is_named if self.options.faults else fault.weight):
                continue
            if reason := fault.reason_not(self.scene):
                self.figures.skipped[fault.name] = reason
            else:
                chosen.append(fault)
        return chosen

    # ── The cycles ───────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, say: Any) -> None:
        begun = time.monotonic()
        faults = self.chosen_faults()
        weights = [fault.weight or 1 for fault in faults]
        while self.figures.cycles < self.options.cycles and time.monotonic() - begun < self.options.seconds:
            self.figures.cycles += 1
            self.traffic.cycle = self.figures.cycles
            # At first each fault once, so that a short campaign has them all.
            fault = (
                faults[self.figures.cycles - 1]
                if self.figures.cycles <= len(faults)
                else self.rng.choices(faults, weights)[0]
            )
            back = self.cycle(fault)
            self.figures.seconds = time.monotonic() - begun
            say(
                f"{self.figures.cycles:5} {self.figures.seconds:7.0f} s  {fault.name:28} back after {back:5.1f} s,"
                f" {sum(self.ledger.acknowledged.values())} writes, findings {dict(self.findings.counts) or 'none'}"
            )
            self.write_json()

    def cycle(self, fault: Fault) -> float:
        self.traffic.open()
        time.sleep(self.rng.uniform(0.1, 0.6))
        since = fault.act(self.scene)
        back = self.wait_until_back(since, fault)
        self.figures.back[fault.name].append(back)
        time.sleep(0.1)
        if not self.traffic.close(90):
            self.findings.add("stuck", f"a writer waits for an answer after: {fault.name}")
        self.check_cycle()
        return back

    def wait_until_back(self, since: float, fault: Fault) -> float:
        """Seconds until a search and a write succeed."""
        while time.monotonic() - since < BACK_SECONDS:
            if not self.site.is_running():
                self.site.restart()
            if self.searches() and self.stores():
                return time.monotonic() - since
            time.sleep(0.05)
        self.findings.add("did not come back", f"after: {fault.name}")
        self.site.kill_all()
        self.site.start()
        self.site.wait_until_it_answers()
        return time.monotonic() - since

    def searches(self) -> bool:
        try:
            return self.http.ask("GET", f"/api/search?tag=cycle-{self.traffic.cycle}&page_size=1").status == 200
        except NoAnswerError:
            return False

    def stores(self) -> bool:
        entry, version = self.prober.new()
        body = self.prober.record(entry, version)
        return self.prober.write("store", {entry: version}, lambda: [self.prober.client.store(body)])

    # ── Comparing ────────────────────────────────────────────────────────────────────────────────────────────────────

    def check_cycle(self) -> None:
        """Compare what was written in this cycle: by reading, by searching and by counting."""
        cycle = self.traffic.cycle
        touched = self.ledger.take_touched()
        # Whether a write without an answer was done is asked of the database: a search might lag behind.
        cycles = {cycle, *(entry.cycle for entry in touched if entry.id is None)}
        ids = {entry.id for entry in touched if entry.id is not None} | self.ids_in_database(cycles)
        self.ledger.compare(self.read(ids), touched)
        self.check_found(cycle, f"tag=cycle-{cycle}")
        found = [e for e in touched if e.version is not None and not e.version.is_deleted and e.cycle == cycle]
        for entry in self.rng.sample(found, min(len(found), 3)):
            self.check_by_words(entry)

    def ids_in_database(self, cycles: Iterable[int]) -> set[int]:
        """The ids of all memories that were stored in some cycles."""
        wanted = [f"cycle-{cycle}" for cycle in cycles]
        until = time.monotonic() + BACK_SECONDS
        while True:
            try:
                with self.site.connect() as connection:
                    found = connection.execute("SELECT id FROM memories_memory WHERE tags && %s::text[]", [wanted])
                    return {row[0] for row in found}
            except psycopg.Error:
                if time.monotonic() > until:
                    raise
                time.sleep(0.3)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of a read, asked again while the site is not back altogether."""
        until = time.monotonic() + BACK_SECONDS
        while True:
            try:
                return self.http.done(method, path, body)
            except NoAnswerError:
                self.figures.compared["reads that had to be repeated"] += 1
                if time.monotonic() > until:
                    raise
                time.sleep(0.3)

    def check_found(self, cycle: int | None, query: str) -> None:
        """Search and counts have to agree with the ledger at once; how long they do not is recorded."""
        begun = time.monotonic()
        wrong = self.wrong_in_search(cycle, query)
        while wrong and time.monotonic() - begun < STALE_SECONDS:
            time.sleep(0.2)
            if cycle is not None:
                self.ledger.compare(self.read(self.ids_in_database([cycle])), ())
            if not (still := self.wrong_in_search(cycle, query)):
                self.figures.stale.append(round(time.monotonic() - begun, 2))
                self.findings.examples.append(f"stale for {self.figures.stale[-1]} s: {wrong}"[:600])
                return
            wrong = still
        if wrong:
            self.findings.add("search or counts wrong", f"cycle {cycle}: {wrong}")

    def wrong_in_search(self, cycle: int | None, query: str) -> str:
        """The first difference of a search or a count; empty if there is none."""
        for state in ("active", "deleted"):
            expected = self.ledger.expected_ids(cycle, deleted=state == "deleted")
            found = self.listed(query, state)
            self.figures.compared["memories by search"] += len(expected)
            if found != expected:
                return f"{state}: missing {sorted(expected - found)[:9]}, too many {sorted(found - expected)[:9]}"
        return self.wrong_counts(cycle, query)

    def wrong_counts(self, cycle: int | None, query: str) -> str:
        """The first facet whose counts differ from the ledger's."""
        # In one answer a facet has at most a thousand values.
        reply = self.ask("GET", f"/api/search?{query}&include_facets=1&facet_scope=results&page_size=1")
        for facet, expected in self.ledger.expected_counts(cycle).items():
            counted = reply["facets"][facet]
            if facet in reply["facet_notes"]:
                counted = self.all_values(FACETS[facet], query)
            values = {value: number for value, number in counted.items() if number}
            wanted = {_value(facet, name): number for name, number in expected.items() if number}
            self.figures.compared["counts"] += len(wanted)
            if values != wanted:
                different = {name for name in {*values, *wanted} if values.get(name) != wanted.get(name)}
                shown = {name: (values.get(name), wanted.get(name)) for name in sorted(different)[:5]}
                return f"{facet}: {shown}"
        return ""

    def all_values(self, facet: str, query: str) -> dict[str, int]:
        """Every value of a facet with its count."""
        values: dict[str, int] = {}
        for page in itertools.count(1):
            reply = self.ask("GET", f"/api/facets/{facet}?{query}&page_size=1000&page={page}&facet_scope=results")
            values.update({value["value"]: value["count"] for value in reply["values"]})
            if not reply["has_more"]:
                break
        return values

    def check_by_words(self, entry: Entry) -> None:
        token = entry.version.token if entry.version else ""
        reply = self.ask("GET", f"/api/search?q={token}&mode=keyword&page_size=5")
        self.figures.compared["memories by words"] += 1
        if [memory["id"] for memory in reply["memories"]] != [entry.id] or reply["total"] != 1:
            self.findings.add("not found by words", f"{token}: {reply['total']} for #{entry.id}")

    def listed(self, query: str, state: str) -> set[int]:
        """The ids of all memories that match."""
        found: set[int] = set()
        cursor = ""
        while True:
            address = f"/api/search?{query}&state={state}&sort=oldest&page_size=100&view=index"
            reply = self.ask("GET", address + (f"&cursor={quote(cursor)}" if cursor else ""))
            found.update(memory["id"] for memory in reply["memories"])
            cursor = reply["next_cursor"]
            if not cursor:
                return found

    def read(self, ids: Collection[int]) -> dict[int, Mapping[str, Any]]:
        """Memories by id."""
        self.figures.compared["memories by id"] += len(ids)
        return read_memories(lambda body: self.ask("POST", "/api/memories/batch", body), ids)

    def check_all(self, say: Any) -> None:
        """Compare every memory of the campaign, and run the commands that check a home."""
        self.traffic.close(90)
        say("comparing everything …")
        query = f"project={PROJECT}"
        ids = {entry.id for entry in self.ledger.entries if entry.id is not None}
        ids |= self.ids_in_database(range(self.figures.cycles + 1))
        self.ledger.compare(self.read(ids), self.ledger.entries)
        self.check_found(None, query)
        backup = self.options.folder / "torture.backup"
        backup.unlink(missing_ok=True)
        for command in (*self.index_check(), ["check_vocabulary"], ["backup", str(backup)], ["verify", str(backup)]):
            done = self.site.command(*command, seconds=900)
            last = (done.stdout + done.stderr).strip().splitlines()[-1:]
            self.figures.checks[command[0]] = f"exit code {done.returncode}. {last[0] if last else ''}"
            say(f"{command[0]}: {self.figures.checks[command[0]]}")
            if done.returncode:
                self.findings.add(f"{command[0]} fails", (done.stdout + done.stderr)[-1000:])
        backup.unlink(missing_ok=True)

    def index_check(self) -> list[list[str]]:
        """The check of the index, which only a database of one machine has."""
        return [] if self.options.database else [["index", "--check"]]

    def end(self) -> None:
        self.traffic.end()
        stop_stdio(self.writers)
        self.site.stop()
        if self.site.log.exists():
            log = self.site.log.read_text(errors="replace")
            self.figures.tracebacks, self.figures.deadlocks = log.count("Traceback"), log.lower().count("deadlock")
            if self.figures.deadlocks:
                self.findings.add("deadlock", f"{self.figures.deadlocks} lines of the log name one")

    # ── Report ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def report(self) -> dict[str, Any]:
        ledger, figures = self.ledger, self.figures
        through: dict[str, Counter[str]] = defaultdict(Counter)
        for (name, verb), number in ledger.acknowledged.items():
            through[name][verb] += number
        return {
            "seed": self.options.seed,
            "commit": _commit(),
            "cycles": figures.cycles,
            "seconds": round(figures.seconds),
            "cores": os.cpu_count(),
            "memories": sum(entry.version is not None for entry in ledger.entries),
            "acknowledged": {name: dict(verbs) for name, verbs in sorted(through.items())},
            "seconds_of_an_answer": {name: _spread(seconds) for name, seconds in sorted(ledger.seconds.items())},
            "unanswered": dict(ledger.unanswered),
            "reasons": dict(ledger.reasons.most_common(20)),
            "unanswered_but_done": ledger.done_unanswered,
            "arrived_late": ledger.late,
            "refused": dict(ledger.refused.most_common(20)),
            "compared": dict(figures.compared),
            "stale": figures.stale,
            "back": {name: _spread(seconds) for name, seconds in figures.back.items()},
            "skipped": figures.skipped,
            "checks": figures.checks,
            "tracebacks": figures.tracebacks,
            "deadlocks": figures.deadlocks,
            "findings": dict(ledger.findings.counts),
            "examples": ledger.findings.examples,
        }

    def write_json(self) -> None:
        if self.options.json is not None:
            self.options.json.write_text(json.dumps(self.report(), indent=1) + "\n")


def read_memories(ask: Callable[[Any], Any], ids: Iterable[int]) -> dict[int, Mapping[str, Any]]:
    """Memories by id, a hundred in a request."""
    replies: dict[int, Mapping[str, Any]] = {}
    wanted = sorted(ids)
    for start in range(0, len(wanted), 100):
        found = ask({"ids": wanted[start : start + 100]})["memories"]
        replies.update({memory["id"]: memory for memory in found})
    return replies


def _value(facet: str, name: str) -> str:
    return name.lower().replace(" ", "-") if facet == "categories" else name


def _commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()


def _spread(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "cycles": len(ordered),
        "median": round(statistics.median(ordered), 2),
        "p95": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))], 2),
        "worst": round(ordered[-1], 2),
    }


def lines_of(report: Mapping[str, Any]) -> list[str]:
    """The report as Markdown."""
    writes = sum(sum(verbs.values()) for verbs in report["acknowledged"].values())
    unanswered = sum(report["unanswered"].values())
    rows: list[list[Cell]] = [
        [name, *row.values()] for name, row in sorted(report["back"].items(), key=lambda item: -item[1]["cycles"])
    ]
    rows += [[name, f"skipped: {reason}", "", "", ""] for name, reason in report["skipped"].items()]
    answers: list[list[Cell]] = []
    for name, spread in report["seconds_of_an_answer"].items():
        verbs = sorted(report["acknowledged"].get(name, {}).items())
        done = ", ".join(f"{number:,} {verb}" for verb, number in verbs) or "none"
        answers.append([name, done, spread["median"], spread["p95"], spread["worst"]])
    lines = [
        f"Seed {report['seed']}, {report['cycles']} cycles in {report['seconds']} s, {report['cores']} cores,"
        f" {report['memories']:,} memories.",
        "",
        *table(["fault", "cycles", "back after, median, s", "95 %", "worst"], rows),
        "",
        *table(["interface", "acknowledged writes", "an answer, median, s", "95 %", "worst"], answers),
    ]
    compared = ", ".join(f"{number:,} {what}" for what, number in report["compared"].items())
    reasons = "; ".join(f"{number} {reason}" for reason, number in report["reasons"].items()) or "none"
    found = ", ".join(f"{number} {what}" for what, number in report["findings"].items()) or "none"
    lines += [
        "",
        f"{writes:,} writes were acknowledged and {unanswered:,} got no answer, of which"
        f" {report['unanswered_but_done']:,} were done all the same. Compared: {compared}.",
        f"Reasons of no answer: {reasons}.",
        f"Searches that lagged behind: {len(report['stale'])}, at most {max(report['stale'], default=0)} s."
        f" Refused: {sum(report['refused'].values())}. Tracebacks in the log: {report['tracebacks']},"
        f" deadlocks: {report['deadlocks']}.",
        *(f"`{name}`: {said}" for name, said in report["checks"].items()),
        f"**Wrong: {found}.**",
    ]
    return lines


def run_campaign(options: Options, say: Any) -> int:
    """Run a campaign, print its figures, and return 1 if anything was lost, doubled, half-written or wrong."""
    remove_folder(options.folder / "disk")
    with small_disk(options.folder / "disk", options.disk_megabytes) as no_disk:
        campaign = Campaign(options, options.folder / "disk" / "home", no_disk)
        campaign.site.log = options.folder / "site.log"
        campaign.site.log.unlink(missing_ok=True)
        interrupted = False
        try:
            campaign.prepare()
            campaign.run(say)
            campaign.check_all(say)
        except KeyboardInterrupt:
            interrupted = True
        except (SiteError, NoAnswerError, RefusedError) as error:
            campaign.findings.add("the campaign failed", repr(error))
        finally:
            campaign.end()
        campaign.write_json()
        say("\n" + "\n".join(lines_of(campaign.report())))
        for example in campaign.findings.examples:
            say(f"- {example}")
    remove_folder(options.folder / "disk")
    return 130 if interrupted else int(bool(campaign.findings.counts))
