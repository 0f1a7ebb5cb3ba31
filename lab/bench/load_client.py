"""`python -m lab.bench.load_client URL KEY SECONDS`: readers and writers who ask a running server at once.

A reader sends the next request as soon as it has the answer to the last, whatever the answer was, over one connection.
All of them draw from the same kinds of requests, whose words and names are those of the memories that the server has.
"""

import argparse
import asyncio
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection
from itertools import accumulate
from typing import Generic, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from lab.report import Row, percentiles

_WORD = re.compile(r"[^\W\d_]{4,}")
_SAMPLED_PAGES = 5
_PROJECT = "load"

T = TypeVar("T")


class Popular(Generic[T]):
    """Values that are drawn as readers do: some of them often and most of them rarely (Zipf), or all equally often."""

    def __init__(self, values: Sequence[T], is_even: bool) -> None:
        self._values = list(values)
        random.Random(1).shuffle(self._values)
        self._weights = list(accumulate(1 if is_even else 1 / rank for rank in range(1, len(values) + 1)))

    def draw(self, rng: random.Random) -> T:
        return rng.choices(self._values, cum_weights=self._weights)[0]


@dataclass(frozen=True, slots=True)
class Sample:
    """The ids, words and names of some memories of a server."""

    ids: Popular[int]
    words: Popular[str]
    tags: Popular[str]
    categories: Popular[str]


@dataclass(slots=True)
class Findings:
    """The seconds of the answers by kind of request, those of refusals, and how often each outcome came."""

    good: dict[str, list[float]] = field(default_factory=dict)
    refused: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)

    def row(self, seconds: float) -> Row:
        answers = sum(map(len, self.good.values()))
        everything = [spent for kind in self.good.values() for spent in kind]
        return {
            "seconds": round(seconds, 1),
            "answers": answers,
            "answers_per_second": round(answers / seconds, 1),
            "outcomes": dict(self.outcomes),
            "latency": percentiles(everything),
            "refusals": percentiles(self.refused),
            "kinds": {kind: percentiles(found) for kind, found in sorted(self.good.items())},
        }


Draw = Callable[[random.Random, Sample], str]

# Paths of reads by kind, each drawn equally often.
READS: dict[str, Draw] = {
    "keyword": lambda rng, of: _search(q=of.words.draw(rng), mode="keyword"),
    "hybrid": lambda rng, of: _search(q=f"{of.words.draw(rng)} {of.words.draw(rng)}"),
    "newest": lambda rng, of: _search(sort="newest", page=rng.randint(1, 5)),
    "filtered": lambda rng, of: _search(tag=of.tags.draw(rng)),
    "facets": lambda rng, of: _search(q=of.words.draw(rng), include_facets="true"),
    "unified": lambda rng, of: _search(q=of.words.draw(rng), mode="unified"),
    "timeline": lambda rng, of: f"/api/timeline?{urlencode({'anchor': of.ids.draw(rng)})}",
    "memory": lambda rng, of: f"/api/memories/{of.ids.draw(rng)}",
    "categories": lambda rng, of: "/api/categories",
    "category": lambda rng, of: f"/api/categories/{quote(of.categories.draw(rng), safe='')}",
    "page": lambda rng, of: f"/explore/?{urlencode({'q': of.words.draw(rng)})}",
}


def _search(**parameters: object) -> str:
    return f"/api/search?{urlencode(parameters)}"


def sample(url: str, key: str, *, is_even: bool = False) -> Sample:
    """Read some memories of the server. Raises RuntimeError if it has none."""
    place = urlsplit(url)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=60)
    ids: list[int] = []
    words, tags, categories = Counter[str](), Counter[str](), Counter[str]()
    for page in range(1, _SAMPLED_PAGES + 1):
        headers = {"Authorization": f"Bearer {key}"}
        connection.request("GET", _search(sort="oldest", page=page, page_size=100), headers=headers)
        response = connection.getresponse()
        reply = json.loads(response.read())
        if response.status != 200:
            raise RuntimeError(f"The server answers {response.status}: {reply}")
        for memory in reply["memories"]:
            ids.append(memory["id"])
            words.update(_WORD.findall(f"{memory['title']} {memory.get('snippet', '')}".lower()))
            tags.update(memory["tags"])
            categories.update(memory["categories"])
    if not (ids and words and tags and categories):
        raise RuntimeError("The server has no memories with tags and categories.")
    names = (Popular(sorted(found), is_even) for found in (words, tags, categories))
    return Sample(Popular(ids, is_even), *names)


class _Client:
    """One connection, which is opened again after an error."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, headers: str, body: bytes = b"") -> tuple[int, bytes]:
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection(self._host, self._port)
            reader, writer = self._streams
            length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
            writer.write(f"{method} {path} HTTP/1.1\r\n{headers}{length}\r\n".encode() + body)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            return int(head.split(" ", 2)[1]), await _content(reader, head.lower())
        except (OSError, EOFError, asyncio.IncompleteReadError):
            self.close()
            raise

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


async def _content(reader: asyncio.StreamReader, head: str) -> bytes:
    if "transfer-encoding: chunked" not in head:
        length = re.search(r"content-length: (\d+)", head)
        return await reader.readexactly(int(length[1])) if length else b""
    content = b""
    while size := int(await reader.readline(), 16):
        content += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)
    return content


async def _load(url: str, key: str, cookie: str, readers: int, writers: int, seconds: float, of: Sample) -> Findings:
    place = urlsplit(url)
    host, port = place.hostname or "", place.port or 80
    findings = Findings()
    until = time.monotonic() + seconds
    with_key = f"Host: {place.netloc}\r\nAuthorization: Bearer {key}\r\n"
    with_cookie = f"Host: {place.netloc}\r\nCookie: {cookie}\r\n"

    async def ask(client: _Client, kind: str, method: str, path: str, body: bytes = b"") -> None:
        begin = time.perf_counter()
        try:
            headers = with_cookie if kind == "page" else with_key
            status, content = await client.ask(method, path, headers, body)
        except (OSError, EOFError, asyncio.IncompleteReadError) as error:
            findings.outcomes[type(error).__name__] += 1
            return
        spent = time.perf_counter() - begin
        findings.outcomes[_outcome(status, content)] += 1
        if status < 300:
            findings.good.setdefault(kind, []).append(spent)
        else:
            findings.refused.append(spent)

    async def read(number: int) -> None:
        rng = random.Random(number)
        client = _Client(host, port)
        kinds = [kind for kind in READS if cookie or kind != "page"]
        while time.monotonic() < until:
            kind = rng.choice(kinds)
            await ask(client, kind, "GET", READS[kind](rng, of))
        client.close()

    async def write(number: int) -> None:
        rng = random.Random(-number)
        client = _Client(host, port)
        while time.monotonic() < until:
            content = " ".join(of.words.draw(rng) for _ in range(30))
            body = json.dumps({"content": content, "project": _PROJECT, "tags": [of.tags.draw(rng)]})
            await ask(client, "store", "POST", "/api/memories", body.encode())
        client.close()

    await asyncio.gather(*(read(n) for n in range(readers)), *(write(n + 1) for n in range(writers)))
    return findings


def _outcome(status: int, content: bytes) -> str:
    """The status, and of an error its word for programs."""
    if status < 300:
        return str(status)
    try:
        return f"{status} {json.loads(content)['error']}"
    except (ValueError, KeyError, TypeError):
        heading = re.search(rb"<h1>(.*?)</h1>", content)
        return f"{status} {heading[1].decode() if heading else 'page'}"


def sign_in(link: str) -> str:
    """The cookie of a session, by a sign-in link."""
    place = urlsplit(link)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=60)
    connection.request("GET", f"{place.path}?{place.query}")
    cookies = connection.getresponse().headers.get_all("Set-Cookie") or []
    return "; ".join(cookie.partition(";")[0] for cookie in cookies)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.bench.load_client", description=(__doc__ or "").strip())
    parser.add_argument("url")
    parser.add_argument("key", help="a key that reads and writes, without a limit that matters")
    parser.add_argument("seconds", type=float)
    parser.add_argument("--link", default="", help="a sign-in link; without one no pages are read")
    parser.add_argument("--readers", type=int, default=200)
    parser.add_argument("--writers", type=int, default=3)
    parser.add_argument("--even", action="store_true", help="draw rare words and names as often as popular ones")
    given = parser.parse_args()
    of = sample(given.url, given.key, is_even=given.even)
    cookie = sign_in(given.link) if given.link else ""
    begin = time.monotonic()
    found = asyncio.run(_load(given.url, given.key, cookie, given.readers, given.writers, given.seconds, of))
    json.dump(found.row(time.monotonic() - begin), sys.stdout)


if __name__ == "__main__":
    main()
