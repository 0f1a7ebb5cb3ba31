"""Probes of isolation: does anything that a partial viewer is answered depend on what they may not see?

The same questions, reads and writes, are asked in two worlds. In the second one others write in projects of their own
meanwhile, through every interface. Both worlds draw their ids from the same places, so every difference between two
answers reveals something. Besides, reads are asked right before and after hidden writes, and no answer may contain a
word of another project that was neither in the question nor ever written by the viewer.
"""

import difflib
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote, unquote_plus

OWNER, HIDDEN_CURATOR = "owner", "curator of secret"
HIDDEN = "secret"
# Words that all projects use.
SHARED = ("kettle", "brewing", "guests", "winter", "harbour", "ledger")
# Every word of another project begins so, and nothing else does.
MARK = "zqv"
_CANARY = re.compile(rf"{MARK}(?:guess|hidden|tea|boat|crew)[a-z]*\d*")
# More new names than one memory may bring.
FLOOD = 60
# Probes between two hidden writes, and reads that are asked around each.
PROBES_PER_STEP, READS_AROUND = 12, 3


@dataclass(frozen=True)
class Watcher:
    """A viewer who may see one project."""

    name: str
    project: str
    scopes: tuple[str, ...] = ("read", "write")
    # The page or tools of their interface, besides REST.
    interfaces: tuple[str, ...] = ("rest", "mcp", "page")


WATCHERS = (
    Watcher("reader of tea", "tea", ("read", "write"), ("rest", "mcp", "page")),
    Watcher("reader of boat", "boat", ("read", "write"), ("rest", "stdio", "page")),
    Watcher("curator of crew", "crew", ("read", "write", "curate"), ("rest", "mcp", "page")),
)


@dataclass(frozen=True)
class Question:
    """One request of somebody through an interface."""

    who: str
    interface: str  # rest, page, mcp or stdio
    method: str  # of a tool: its name
    address: str
    body: Mapping[str, Any] | None = None
    template: str = ""  # what it tries, for the report

    @property
    def text(self) -> str:
        body = "" if self.body is None else json.dumps(self.body, sort_keys=True)
        return f"{self.who}: {self.interface} {self.method} {self.address} {body}"

    @property
    def is_read(self) -> bool:
        return self.method == "GET"


@dataclass(frozen=True)
class Answer:
    status: int
    text: str
    etag: str = ""


class World(Protocol):
    """A site with the watchers' and the others' accounts."""

    def ask(self, question: Question) -> Answer: ...

    def settle(self, step: int) -> None:
        """Wait until searches see every write, and let all sequences of ids go on at `first_id(step)`."""


@dataclass
class Turn:
    """A step: the questions that are asked in both worlds, with the answers of the first."""

    around: list[Question] = field(default_factory=list)
    asked: list[tuple[Question, Answer]] = field(default_factory=list)


@dataclass
class Leaks:
    """The answers that depended on hidden data, by interface and template."""

    probes: int = 0
    around: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, question: Question, detail: str) -> None:
        name = f"{kind}: {question.interface} {question.template or question.method}"
        self.kinds[name] += 1
        self.examples.setdefault(name, f"{question.text}\n    {detail}"[:1500])


# ── The questions of the watchers ────────────────────────────────────────────────────────────────────────────────────


def guess(number: int) -> str:
    """A name that others give to something hidden, and that watchers come to guess."""
    return f"{MARK}guess{number}"


class Asker:
    """Makes up questions. It learns the ids of the watchers' memories from the answers."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"questions {seed}")
        self.mine: dict[str, list[int]] = {watcher.name: [] for watcher in WATCHERS}
        self.step = 0
        self.count = 0

    def read(self, watcher: Watcher) -> Question:
        interface = self.rng.choice(watcher.interfaces)
        if interface == "rest":
            address = self.rest_address(watcher)
            return Question(watcher.name, "rest", "GET", address, template=_template(address))
        if interface == "page":
            address = self.page_address(watcher)
            return Question(watcher.name, "page", "GET", address, template=_template(address))
        name, arguments = self.tool_call(watcher)
        return Question(watcher.name, interface, name, "", arguments, template=name)

    def write(self, watcher: Watcher) -> Question:
        choices: list[Callable[[Watcher], Question]] = [self.store, self.store, self.store, self.change]
        if "curate" in watcher.scopes:
            choices += [self.curate, self.curate]
        if self.rng.random() < 0.01:
            choices = [self.flood]
        return self.rng.choice(choices)(watcher)

    def learn(self, question: Question, answer: Answer) -> None:
        is_stored = question.template.startswith("store") and answer.status < 300
        if is_stored and (found := re.search(r'"?\bid"?: ?(\d+)', answer.text)):
            self.mine[question.who].append(int(found[1]))

    # Names: known to everybody, one's own, and guesses of what others have.

    def name(self, watcher: Watcher) -> str:
        return self.rng.choice(
            (
                self.rng.choice(SHARED),
                f"{MARK}{watcher.project}{self.rng.randrange(12)}",
                guess(self.rng.randrange(5 * self.step + 12)),
            )
        )

    def written_name(self, watcher: Watcher) -> str:
        """Like `name`, but a guess is one that was given to something hidden by now: nobody curates it again."""
        own = (self.rng.choice(SHARED), f"{MARK}{watcher.project}{self.rng.randrange(12)}")
        return self.rng.choice((*own, guess(self.rng.randrange(5 * self.step + 1))))

    def number(self, watcher: Watcher) -> int:
        """The id of a memory or a term: one's own, or one that others may have got."""
        mine = self.mine[watcher.name]
        foreign = first_id(self.rng.randrange(self.step + 1)) + self.rng.randrange(12)
        return self.rng.choice((*self.rng.choices(mine, k=3), foreign)) if mine else foreign

    def rest_address(self, watcher: Watcher) -> str:
        rng, name = self.rng, quote(self.name(watcher))
        facet = rng.choice(("tag", "category", "concept", "entity", "author", "agent", "source", "type", "project"))
        mode = rng.choice(("keyword", "hybrid", "tag", "faceted", "unified"))
        words = "+".join(quote(self.name(watcher)) for _ in range(rng.randrange(1, 4)))
        return rng.choice(
            (
                f"/api/search?q={words}&mode={mode}" if mode != "tag" else f"/api/search?tag={name}&mode=tag",
                f"/api/search?q={words}&include_facets=1&sort=newest",
                f"/api/search?{facet}={name}&include_facets=1",
                f"/api/search?-{facet}={name}&page_size=5&sort=title",
                f"/api/search/why-not?id={self.number(watcher)}&q={words}",
                f"/api/facets?{facet}={name}",
                f"/api/facets/{facet}?search={name[:6]}&sort=name",
                f"/api/facets/{facet}?q={words}",
                f"/api/categories?filter={name[:6]}&include_hierarchy=1",
                "/api/categories?sort_by=name",
                f"/api/categories/{name}?include_children=1",
                f"/api/categories/{name}/concepts",
                f"/api/entities?search={name[:6]}&sort=-links",
                f"/api/entities/{name}",
                f"/api/entities/tool:{name}/neighbourhood?depth=2",
                f"/api/entities/path?from=tool:kettle&to={name}&together=1",
                f"/api/concepts?search={name[:6]}",
                f"/api/concepts/{name}",
                f"/api/concepts/{name}/neighbourhood",
                f"/api/relationships/{self.number(watcher)}",
                f"/api/memories/{self.number(watcher)}",
                f"/api/memories/{self.number(watcher)}/history",
                f"/api/memories/{self.number(watcher)}/similar",
                f"/api/timeline?query={words}",
                f"/api/timeline?anchor={self.number(watcher)}",
                "/api/changes?limit=500",
                f"/api/context?project={rng.choice((watcher.project, HIDDEN, name))}",
                "/api/projects",
                f"/api/tags?search={name[:6]}",
                f"/api/sessions?search={name[:6]}",
                "/api/whoami",
                "/api/health",
                "/api/curation",
                f"/api/curation/{self.number(watcher)}",
                "/api/suggestions",
            )
        )

    def page_address(self, watcher: Watcher) -> str:
        rng, name = self.rng, quote(self.name(watcher))
        words = "+".join(quote(self.name(watcher)) for _ in range(rng.randrange(1, 4)))
        choices = [
            f"/explore/?q={words}&sort=newest",
            f"/explore/?tag={name}",
            f"/explore/?category={name}",
            f"/explore/why-not/?id={self.number(watcher)}&q={words}",
            f"/facets/{rng.choice(('tag', 'entity', 'concept', 'source'))}/?search={name[:6]}",
            f"/m/{self.number(watcher)}/",
            f"/m/{self.number(watcher)}/similar/",
            "/status/",
            f"/categories/?filter={name[:6]}",
            f"/categories/{name}/",
            f"/graph/?search={name[:6]}",
            "/graph/concepts/",
            f"/graph/entity/tool:{name}/",
            f"/graph/concept/{name}/",
            f"/graph/relationship/{self.number(watcher)}/",
            f"/graph/entity/tool:kettle/?to={name}&together=1",
            "/settings/keys/",
        ]
        if "curate" in watcher.scopes:
            kind = rng.choice(("tag", "concept", "entity", "category"))
            choices += ["/curate/", f"/curate/{kind}/{name}/", f"/curate/?kind={kind}&name={name}", "/review/"]
        return rng.choice(choices)

    def tool_call(self, watcher: Watcher) -> tuple[str, dict[str, Any]]:
        rng, name, number = self.rng, self.name(watcher), self.number(watcher)
        words = " ".join(self.name(watcher) for _ in range(rng.randrange(1, 4)))
        return rng.choice(
            (
                ("search", {"query": words, "include_facets": True, "mode": "keyword"}),
                ("search", {"tag": [name]}),
                ("retrieve_memory", {"query": words, "include_facets": True}),
                ("timeline", {"query": words}),
                ("get_observations", {"ids": [number, self.number(watcher)]}),
                ("list_categories", {"filter": name[:6], "include_hierarchy": True}),
                ("category_search", {"category": name, "include_children": True}),
                ("list_concepts_in_category", {"category": name}),
                ("list_values", {"facet": rng.choice(("tag", "concept", "entity", "source")), "search": name[:6]}),
                ("about", {rng.choice(("concept", "entity")): name}),
                ("about", {"entity": "tool:kettle", "to": name}),
                ("similar", {"id": number}),
                # With all their tokens: where a text is cut depends on the digits of its times.
                ("changes", {"since": "7d", "limit": 200, "max_tokens": 100_000}),
                ("history", {"id": number}),
                ("session_context", {"project": [rng.choice((watcher.project, HIDDEN))]}),
            )
        )

    # Writes.

    def memory(self, watcher: Watcher, name: Callable[[Watcher], str]) -> dict[str, Any]:
        self.count += 1
        rng = self.rng
        return {
            "content": f"Number {self.count}. " + " ".join(name(watcher) for _ in range(rng.randrange(3, 9))),
            "title": f"{name(watcher)} {self.count}",
            "type": rng.choice(("note", "decision")),
            "tags": [name(watcher) for _ in range(rng.randrange(3))],
            "categories": rng.choice(([], [name(watcher)], [f"{name(watcher)}/{name(watcher)}"])),
            "concepts": [name(watcher)],
            "entities": [f"{rng.choice(('tool', 'person'))}:{name(watcher)}"],
            "authors": [name(watcher)],
            "agent": name(watcher),
            "source": name(watcher),
            "created_at": f"2024-0{rng.randrange(1, 10)}-1{rng.randrange(10)}T10:00:00Z",
        }

    def store(self, watcher: Watcher) -> Question:
        record = {**self.memory(watcher, self.written_name), "project": watcher.project}
        interface = self.rng.choice([one for one in watcher.interfaces if one != "page"])
        if interface == "rest":
            if self.rng.random() < 0.1:
                record["project"] = self.rng.choice((HIDDEN, guess(self.step)))
            if self.rng.random() < 0.2:
                record["links"] = [{"rel": "fixes", "target": f"#{self.number(watcher)}"}]
            return Question(watcher.name, "rest", "POST", "/api/memories", record, "store")
        return Question(watcher.name, interface, "store_memory", "", record, "store by tool")

    def change(self, watcher: Watcher) -> Question:
        number, record = self.number(watcher), self.memory(watcher, self.written_name)
        choices: tuple[tuple[str, str, dict[str, Any] | None], ...] = (
            ("PATCH", f"/api/memories/{number}", {"tags": record["tags"], "concepts": record["concepts"]}),
            ("PATCH", f"/api/memories/{number}", {"categories": record["categories"], "entities": record["entities"]}),
            ("DELETE", f"/api/memories/{number}", None),
            ("POST", f"/api/memories/{number}/restore", {}),
            ("POST", f"/api/memories/{number}/relations", {"target": self.number(watcher), "rel": "fixes"}),
            ("POST", "/api/memories/batch", {"ids": sorted({number, self.number(watcher)})}),
            (
                "POST",
                "/api/memories/forget",
                {"query": f"tag={record['tags'][0] if record['tags'] else guess(self.step)}", "dry_run": True},
            ),
            ("POST", f"/api/memories/{number}/history/{self.rng.randrange(1, 400)}/restore", {}),
            ("POST", "/api/memories/bulk", {"operations": [{"op": "create", "memory": record}]}),
        )
        method, address, body = self.rng.choice(choices)
        return Question(watcher.name, "rest", method, address, body, f"change {method} {_template(address)}")

    def curate(self, watcher: Watcher) -> Question:
        """A change to the vocabulary that concerns the curator's own project alone.

        Whether a category, concept or entity may be made, renamed, moved or merged depends on others who use the name,
        and says so.
        """
        rng = self.rng
        kind = rng.choice(("tag", "concept", "entity", "category"))
        other, term = self.written_name(watcher), self.written_name(watcher)
        named = f"tool:{term}" if kind == "entity" else term
        dry = {"dry_run": True} if rng.random() < 0.5 else {}
        text = {"description": f"{MARK}crewtext"}
        verb, body = rng.choice(
            (
                ("rename", {"kind": "tag", "term": term, "name": other, **dry}),
                ("merge", {"kind": "tag", "source": term, "target": other, **dry}),
                ("alias", {"kind": kind, "term": named, "add": [other], **dry}),
                ("edit", {"kind": "concept", "term": term, **text, **dry}),
            )
        )
        return Question(watcher.name, "rest", "POST", f"/api/curation/{verb}", body, f"curate {verb} {body['kind']}")

    def flood(self, watcher: Watcher) -> Question:
        record = {**self.memory(watcher, self.written_name), "project": watcher.project}
        record["categories"] = [f"{MARK}{watcher.project}flood/n{self.count}x{n}" for n in range(FLOOD)]
        return Question(watcher.name, "rest", "POST", "/api/memories", record, "store a flood of names")


def _template(address: str) -> str:
    """An address without what was guessed."""
    path, _, query = address.partition("?")
    path = re.sub(rf"(tool:)?{MARK}\w+|\b({'|'.join(SHARED)})\b|\b\d+\b", "…", path)
    return path + ("?" + "&".join(pair.partition("=")[0] for pair in query.split("&")) if query else "")


# ── What happens elsewhere meanwhile ─────────────────────────────────────────────────────────────────────────────────


class Others:
    """Somebody who sees everything and a curator of the hidden project, who write, curate and delete there."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"others {seed}")
        self.hidden: list[int] = []
        self.names = 0

    def secret(self) -> str:
        """A word that no watcher ever guesses."""
        self.names += 1
        return f"{MARK}hidden{self.names}"

    def questions(self, step: int) -> Iterator[Question]:
        """The writes of one step. Each answer is learned before the next."""
        # Names that watchers write from the next step on, and nobody has written yet.
        fresh = [guess(n) for n in range(5 * step + 1, 5 * step + 6)]
        for name in fresh:
            yield self.store(name)
        yield self.store(self.rng.choice(SHARED))
        kinds = ("tag", "concept", "entity", "category")
        for name in fresh:
            yield from self.curate(self.rng.choice((HIDDEN_CURATOR, OWNER)), self.rng.choice(kinds), name)
        shared = self.rng.choice((*SHARED, fresh[0]))
        kind = self.rng.choice(kinds)
        # A curator of the hidden project alone may touch none of the words of others.
        yield self.question(
            HIDDEN_CURATOR, "/api/curation/alias", {"kind": kind, "term": self.term(kind, fresh[0]), "add": [shared]}
        )
        yield from self.curate(HIDDEN_CURATOR, kind, fresh[1])
        if self.hidden:
            number = self.rng.choice(self.hidden)
            yield Question(OWNER, "rest", *self.rng.choice(
                (
                    ("DELETE", f"/api/memories/{number}", None),
                    ("PATCH", f"/api/memories/{number}", {"content": f"{self.secret()} {self.rng.choice(SHARED)}"}),
                    ("PATCH", f"/api/memories/{number}", {"state": "archived"}),
                )
            ))  # fmt: skip

    def store(self, name: str) -> Question:
        record = {
            "project": HIDDEN,
            "title": f"{name} {self.secret()}",
            "content": " ".join([name, *self.rng.choices(SHARED, k=4), self.secret()]),
            "tags": [name, self.rng.choice(SHARED)],
            "categories": [name, f"{self.rng.choice(SHARED)}/{name}"],
            "concepts": [name, self.rng.choice(SHARED)],
            "entities": [f"tool:{name}", f"person:{name}", f"tool:{self.rng.choice(SHARED)}"],
            "authors": [name],
            "agent": name,
            "session": name,
            "source": name,
            "source_url": f"https://{self.secret()}.example/",
            "created_at": f"2024-0{self.rng.randrange(1, 10)}-1{self.rng.randrange(10)}T10:00:00Z",
        }
        who = self.rng.choice((OWNER, HIDDEN_CURATOR))
        return Question(who, "rest", "POST", "/api/memories", record, "store")

    @staticmethod
    def term(kind: str, name: str) -> str:
        return f"tool:{name}" if kind == "entity" else name

    def curate(self, who: str, kind: str, name: str) -> Iterator[Question]:
        """Give what watchers will name another name, a description, an alias."""
        term, new = self.term(kind, name), self.secret()
        if kind in ("concept", "entity", "category"):
            yield self.question(
                who, "/api/curation/edit", {"kind": kind, "term": term, "description": f"About {self.secret()}."}
            )
        verb = self.rng.choice(("rename", "alias", "rename", "relate"))
        if verb == "rename":
            yield self.question(who, "/api/curation/rename", {"kind": kind, "term": term, "name": new})
        elif verb == "alias":
            yield self.question(who, "/api/curation/alias", {"kind": kind, "term": term, "add": [new]})
        elif kind == "entity" and self.hidden:
            evidence = {"fact": f"It knows {new}.", "evidence": self.hidden[-1:]}
            other = f"tool:{self.rng.choice(SHARED)}"
            body = {"kind": kind, "term": term, "how": "knows", "other": other, **evidence}
            yield self.question(who, "/api/curation/relate", body)

    @staticmethod
    def question(who: str, address: str, body: Mapping[str, Any]) -> Question:
        return Question(who, "rest", "POST", address, body, "curate")

    def learn(self, question: Question, answer: Answer) -> None:
        if question.template == "store" and answer.status == 201:
            self.hidden.append(int(json.loads(answer.text)["id"]))


# ── The two passes ───────────────────────────────────────────────────────────────────────────────────────────────────


def first_id(step: int) -> int:
    """Where the ids of memories go on after the hidden writes of a step, whether there were any or not."""
    return 1_001_000 + step * 1_000


def align(step: int) -> str:
    """SQL that continues all sequences at the same numbers in both worlds.

    Those of the vocabulary are far away: a term has the id that whoever had it first gave it, and is not compared.
    """
    return (
        "SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, "
        f"CASE WHEN sequencename LIKE 'categories%' THEN 4000000 ELSE 0 END + {first_id(step)})"
        " FROM pg_sequences WHERE schemaname = current_schema() AND data_type <> 'smallint'::regtype"
    )


def record(world: World, probes: int, seed: int, progress: Callable[[int], None] | None = None) -> list[Turn]:
    """Ask questions where nobody else writes, and note the answers."""
    asker = Asker(seed)
    turns: list[Turn] = []
    world.settle(-1)
    watchers = random.Random(f"watchers {seed}")
    for step in range(-(-probes // PROBES_PER_STEP)):
        asker.step = step
        world.settle(step)
        turn = Turn(around=[asker.read(watchers.choice(WATCHERS)) for _ in range(READS_AROUND)])
        for _ in range(PROBES_PER_STEP):
            watcher = watchers.choice(WATCHERS)
            question = asker.write(watcher) if asker.rng.random() < 0.4 else asker.read(watcher)
            answer = world.ask(question)
            asker.learn(question, answer)
            turn.asked.append((question, answer))
        turns.append(turn)
        if progress is not None:
            progress(step)
    return turns


def replay(
    world: World,
    turns: list[Turn],
    seed: int,
    *,
    progress: Callable[[int, Leaks], None] | None = None,
) -> Leaks:
    """Ask the same where others write, and compare."""
    others, leaks = Others(seed), Leaks()
    written: dict[str, set[str]] = {watcher.name: set() for watcher in WATCHERS}
    projects = {watcher.name: watcher.project for watcher in WATCHERS}
    world.settle(-1)
    for step, turn in enumerate(turns):
        # Twice: what differs by itself, such as a cursor with a random part, tells nothing.
        before = [(world.ask(question), world.ask(question)) for question in turn.around]
        for question in others.questions(step):
            others.learn(question, world.ask(question))
        world.settle(step)
        for question, (first, then) in zip(turn.around, before, strict=True):
            now = world.ask(question)
            leaks.around += 1
            if _seen(first) == _seen(then) != _seen(now):
                detail = difference(masked(then.text), masked(now.text))
                leaks.add("changes with hidden writes", question, f"ETag {then.etag}, then {now.etag}; {detail}")
        for question, quiet in turn.asked:
            answer = world.ask(question)
            leaks.probes += 1
            words = set(_CANARY.findall(unquote_plus(question.text).lower()))
            if not question.is_read:
                written[question.who] |= words
            allowed = words | written[question.who]
            foreign = [
                word
                for word in set(_CANARY.findall(masked(answer.text).lower()))
                if word not in allowed and not word.startswith(MARK + projects[question.who])
            ]
            # A prefix of a word that was asked, such as in a search for names.
            foreign = [word for word in foreign if not any(one.startswith(word) for one in allowed)]
            if foreign:
                leaks.add("canary", question, f"{sorted(foreign)[:5]} in {_around(answer.text, foreign[0])}")
            before_text, after_text = comparable(quiet), comparable(answer)
            if before_text != after_text:
                leaks.add("depends on hidden data", question, difference(before_text, after_text))
            if question.template == "store a flood of names" and answer.status < 300:
                leaks.add("flood", question, f"{FLOOD} new names are accepted")
        if progress is not None:
            progress(step, leaks)
    return leaks


# Parts that differ with time or with each request, in any world.
_MASKS = (
    (re.compile(r'"(took_ms|lag_seconds|ms)": ?[\d.]+'), r'"\1": 0'),
    (re.compile(r'name="csrfmiddlewaretoken" value="[^"]*"|data-csrf="[^"]*"|"X-CSRFToken": ?"[^"]*"'), ""),
    (re.compile(r"[\d.,]+ m?s\b"), "0 ms"),
    (re.compile(r"\d+ (?:second|minute|hour)s? ago|just now"), "now"),
    (re.compile(r'"(?:remaining|reset)": ?\d+'), ""),
    (re.compile(r"127\.0\.0\.1:\d+|testserver"), "site"),
)
# Times and what is derived from them, and opaque words: the same viewer writes at another time in the other world.
_TIMES = (
    (re.compile(r"20(?:2[6-9]|[3-9]\d)-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"), "time"),
    (re.compile(r'"(version|cursor|next_cursor|token|after)": ?"[^"]*"'), r'"\1": ""'),
    (re.compile(r"(version|cursor|token|after): \S+"), r"\1"),
    # A version in a row of a table of tools, which names its columns once.
    (re.compile(r",[0-9a-f]{20},"), ",,"),
    (re.compile(r'"engine": ?"\w+"|engine: \w+'), ""),
    (re.compile(r'(name="(?:token|version)" value=)"[^"]*"'), r"\1"),
    # Recency is a part of the score.
    (re.compile(r'("(?:score|recency)": ?\d\.\d{3})\d+'), r"\1"),
    (re.compile(r"\d{1,2} \w{3} 20\d\d, \d\d:\d\d UTC"), "time"),
    (re.compile(r"\b5\d{6}\b"), "a term"),
    (re.compile(r"(?:<time[^>]*>).*?(?:</time>)", re.DOTALL), "time"),
)


def masked(text: str) -> str:
    for pattern, instead in _MASKS:
        text = pattern.sub(instead, text)
    return text


def _seen(answer: Answer) -> tuple[int, str, str]:
    return answer.status, masked(answer.text), answer.etag


def comparable(answer: Answer) -> str:
    text = masked(answer.text)
    for pattern, instead in _TIMES:
        text = pattern.sub(instead, text)
    return f"{answer.status} {text}"


def difference(before: str, after: str) -> str:
    """The first difference, with what is around it."""
    if len(before) + len(after) < 8_000:
        for verb, a1, a2, b1, b2 in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            if verb != "equal":
                return f"{before[max(a1 - 60, 0) : a2 + 60]!r} became {after[max(b1 - 60, 0) : b2 + 60]!r}"
    at = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after)))
    return f"{before[max(at - 80, 0) : at + 160]!r} became {after[max(at - 80, 0) : at + 160]!r}"


def _around(text: str, word: str) -> str:
    at = text.lower().find(word)
    return repr(text[max(at - 80, 0) : at + 80])


def lines_of(leaks: Leaks, seed: int) -> list[str]:
    """The result as Markdown."""
    total = sum(leaks.kinds.values())
    lines = [
        f"Seed {seed}: {leaks.probes:,} probes by {len(WATCHERS)} viewers, asked in two worlds, and {leaks.around:,}"
        f" reads asked before and after hidden writes. **Leaks: {total}.**"
    ]
    for name, number in leaks.kinds.most_common():
        lines += [f"- {number} x {name}", f"    {leaks.examples[name]}"]
    return lines
