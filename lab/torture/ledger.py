"""The writes of a campaign, and the answers that follow from those that were acknowledged.

Every field of a memory derives from one token, so that half a write shows. A write that got no answer may have been
done or not, but wholly: the next look decides which, and it stays so.
"""

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

TYPES = ("note", "decision", "fix", "idea")
GROUP_KINDS = ("tag", "category", "concept", "entity")


@dataclass(frozen=True)
class Version:
    """The content of a memory after a write."""

    token: str
    is_deleted: bool = False
    # For a memory in a group: whether its term was merged into that of the group's other memories.
    is_merged: bool = False


@dataclass(eq=False)
class Entry:
    """One memory."""

    origin: str
    cycle: int
    group: str = ""  # its number and the kind of term, such as "12 concept"
    side: str = "left"
    id: int | None = None
    external_id: str = ""
    version: Version | None = None  # None: it is not there
    doubt: "Write | None" = None
    writes: int = 0  # those that have begun

    def fields(self, version: Version) -> dict[str, Any]:
        """The record of a version, as it is stored and as it is read."""
        rng = random.Random(version.token)
        fields: dict[str, Any] = {
            "title": f"Token {version.token}",
            "content": f"The token {version.token} was written for {self.origin}.\n\n" + " ".join(_words(rng)),
            "type": rng.choice(TYPES),
            "tags": [f"cycle-{self.cycle}", f"tag-{rng.randrange(20)}", f"colour-{rng.randrange(20)}"],
            "categories": [f"torture/part-{rng.randrange(6)}/piece-{rng.randrange(6)}"],
            "concepts": [f"concept {rng.randrange(15)}"],
            "entities": [f"tool:engine-{rng.randrange(15)}"],
        }
        if self.group:
            number, kind = self.group.split()
            side = "right" if version.is_merged else self.side
            name, term = group_term(kind, number, side)
            fields[name] = [*fields[name], term]
        return fields


def group_term(kind: str, number: str, side: str) -> tuple[str, str]:
    """The field and the name of a term that is merged, or that another is merged into."""
    return {
        "tag": ("tags", f"{side}-{number}"),
        "category": ("categories", f"groups/{side}-{number}"),
        "concept": ("concepts", f"{side} {number}"),
        "entity": ("entities", f"tool:{side}-{number}"),
    }[kind]


def _words(rng: random.Random) -> list[str]:
    return ["".join(rng.choice("aeioubdgklmnprst") for _ in range(6)) for _ in range(rng.randrange(5, 40))]


@dataclass(eq=False)
class Write:
    """One request, and the version of each memory after it."""

    through: str
    verb: str
    after: dict[Entry, Version]
    cycle: int


@dataclass
class Findings:
    """Everything that was wrong, by kind, with the first of each as an example."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def add(self, kind: str, example: str) -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= 20:
            self.examples.append(f"{kind}: {example}"[:1200])


class Ledger:
    """Every memory of a campaign. Safe to use from many threads."""

    def __init__(self, project: str) -> None:
        self.project = project
        self.entries: list[Entry] = []
        self.acknowledged: Counter[tuple[str, str]] = Counter()
        self.unanswered: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        # How long answers took, by interface.
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.done_unanswered = 0
        self.refused: Counter[str] = Counter()
        self.findings = Findings()
        self.touched: set[Entry] = set()
        self._known: set[Entry] = set()
        self.started = 0
        self._lock = threading.RLock()
        self.late = 0
        self._refused_tokens: dict[str, str] = {}
        self._tokens: dict[str, Entry] = {}
        # New memories of writes that got no answer: the server may still be at it after a look that did not find them.
        self._open: dict[str, tuple[Entry, Version]] = {}

    # ── Writing ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, write: Write) -> None:
        """A request is about to be sent."""
        with self._lock:
            self.started += 1
            for entry, version in write.after.items():
                self._tokens[version.token] = entry
                entry.writes += 1
                if entry not in self._known:
                    self._known.add(entry)
                    self.entries.append(entry)
                entry.doubt = write
                self.touched.add(entry)

    def took(self, through: str, seconds: float) -> None:
        """An answer of any kind came after some seconds."""
        with self._lock:
            self.seconds[through].append(seconds)

    def acknowledge(self, write: Write, ids: Iterable[int] = ()) -> None:
        """It was answered; for new memories with their ids, in their order."""
        with self._lock:
            self.acknowledged[write.through, write.verb] += 1
            for entry, number in zip(write.after, ids, strict=False):
                entry.id = number
            self._settle(write, is_done=True)

    def refuse(self, write: Write, reason: str) -> None:
        """The server says that it did nothing."""
        with self._lock:
            self.refused[f"{write.through}: {write.verb}: {reason[:300]}"] += 1
            for version in write.after.values():
                self._refused_tokens[version.token] = reason
            self._settle(write, is_done=False)

    def leave_open(self, write: Write, reason: str = "") -> None:
        """Nobody knows: the next look finds out."""
        with self._lock:
            self.unanswered[write.through] += 1
            self.reasons[reason[:150]] += 1
            for entry, version in write.after.items():
                if entry.version is None:
                    self._open[version.token] = entry, version

    def _settle(self, write: Write, *, is_done: bool) -> None:
        for entry, version in write.after.items():
            entry.doubt = None
            if is_done:
                entry.version = version

    def pick(self, rng: random.Random, origin: str, *, deleted: bool = False) -> Entry | None:
        """One of the latest memories of an interface, which nobody else changes."""
        with self._lock:
            latest = self.entries[-300:]
        for entry in rng.sample(latest, min(len(latest), 40)):
            is_free = entry.origin == origin and entry.doubt is None and entry.id is not None
            if is_free and entry.version is not None and entry.version.is_deleted == deleted:
                return entry
        return None

    # ── Reading ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def compare(self, replies: Mapping[int, Mapping[str, Any]], entries: Iterable[Entry]) -> None:
        """Hold memories as they are read against what they have to be, and settle what was in doubt."""
        with self._lock:
            chosen = list(entries)
            known = {entry.id: entry for entry in self.entries if entry.id is not None}
            by_token = {reply["title"].removeprefix("Token "): number for number, reply in replies.items()}
            for entry in chosen:
                version = entry.version if entry.doubt is None else entry.doubt.after[entry]
                if entry.id is None and version is not None and (found := by_token.get(version.token)):
                    entry.id = found
                    known[found] = entry
            for write in {entry.doubt for entry in chosen if entry.doubt is not None}:
                self._settle_by_look(write, replies)
            for entry in chosen:
                self._compare_one(entry, replies)
            for number, reply in replies.items():
                if number not in known:
                    token = reply["title"].removeprefix("Token ")
                    if token in self._open:
                        self._arrived_late(number, token, reply)
                        continue
                    why = self._refused_tokens.get(token)
                    kind = "written although refused" if why else "doubled or never written"
                    self.findings.add(kind, f"#{number} {reply['title']}, {why or ''}")

    def _settle_by_look(self, write: Write, replies: Mapping[int, Mapping[str, Any]]) -> None:
        outcomes = set()
        for entry, version in write.after.items():
            reply = replies.get(entry.id or 0)
            outcomes.add(reply is not None and not differences(entry, version, reply))
        if len(outcomes) > 1:
            tokens = [version.token for version in write.after.values()]
            self.findings.add("half-written", f"{write.through} {write.verb} of {tokens}")
        self.done_unanswered += outcomes == {True}
        self._settle(write, is_done=True in outcomes)

    def _arrived_late(self, number: int, token: str, reply: Mapping[str, Any]) -> None:
        """A new memory that was not there at the last look, of a write without an answer."""
        entry, version = self._open.pop(token)
        if entry.version is not None:
            self.findings.add("doubled or never written", f"#{number} {token} is #{entry.id} already")
        elif different := differences(entry, version, reply):
            self.findings.add("not as written", f"#{number} {version} arrived late: {different}")
        entry.id, entry.version = number, version
        self.late += 1

    def _compare_one(self, entry: Entry, replies: Mapping[int, Mapping[str, Any]]) -> None:
        reply = replies.get(entry.id or 0)
        if entry.version is None:
            if reply is not None:
                self.findings.add("there although it is not", f"#{entry.id} by {entry.origin}")
        elif reply is None:
            self.findings.add("lost", f"#{entry.id} {entry.version} by {entry.origin}, cycle {entry.cycle}")
        elif different := differences(entry, entry.version, reply):
            self.findings.add("not as written", f"#{entry.id} {entry.version} by {entry.origin}: {different}")

    def expected_ids(self, cycle: int | None, *, deleted: bool) -> set[int]:
        """The ids of the memories of a cycle, or of all."""
        with self._lock:
            return {
                entry.id
                for entry in self.entries
                if entry.id is not None
                and entry.version is not None
                and entry.version.is_deleted == deleted
                and (cycle is None or entry.cycle == cycle)
            }

    def expected_counts(self, cycle: int | None) -> dict[str, Counter[str]]:
        """The counts of each facet over the memories that are not deleted."""
        counts: dict[str, Counter[str]] = {name: Counter() for name in FACETS}
        with self._lock:
            for entry in self.entries:
                if entry.version is None or entry.version.is_deleted or cycle not in (None, entry.cycle):
                    continue
                fields = entry.fields(entry.version)
                counts["memory_types"][fields["type"]] += 1
                for facet in ("tags", "concepts", "entities"):
                    counts[facet].update(set(fields[facet]))
                paths = {path for given in fields["categories"] for path in _ancestors(given)}
                counts["categories"].update(paths)
        return counts

    def standing(self) -> dict[Entry, tuple[Version, int]]:
        """The memories whose last write was acknowledged, each with its version and the number of its writes."""
        with self._lock:
            entries = [entry for entry in self.entries if entry.doubt is None]
            return {entry: (entry.version, entry.writes) for entry in entries if entry.version is not None}

    def tokens(self) -> set[str]:
        """The tokens of all writes that have begun."""
        with self._lock:
            return set(self._tokens)

    def entry_of(self, token: str) -> Entry | None:
        """The memory that was written with a token."""
        return self._tokens.get(token)

    def take_touched(self) -> set[Entry]:
        """The memories that were written since the last call."""
        with self._lock:
            touched, self.touched = self.touched, set()
            return touched


# The facets of a reply that are compared, with their keys in the address.
FACETS = {"memory_types": "type", "tags": "tag", "categories": "category", "concepts": "concept", "entities": "entity"}


def _ancestors(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts) + 1)]


def differences(entry: Entry, version: Version, reply: Mapping[str, Any]) -> list[str]:
    """Describe the fields in which a memory differs from a version of it."""
    wanted = entry.fields(version)
    read = {
        "title": reply["title"],
        "content": reply["content"].replace("\r\n", "\n"),
        "type": reply["memory_type"],
        "tags": sorted(reply["tags"]),
        "categories": sorted(category["path"] for category in reply["categories"]),
        "concepts": sorted(concept["name"] for concept in reply["concepts"]),
        "entities": sorted(entity["value"] for entity in reply["entities"]),
    }
    different = [
        f"{name}: {read[name]!r} for {value!r}"
        for name, value in wanted.items()
        if read[name] != (sorted(value) if isinstance(value, list) else value)
    ]
    state = "deleted" if version.is_deleted else "active"
    if reply["state"] != state:
        different.append(f"state: {reply['state']} for {state}")
    return different


def changed(version: Version, **changes: Any) -> Version:
    return replace(version, **changes)
