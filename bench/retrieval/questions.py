"""A collection with questions and answers, made from exported memories.

No search engine has a part in it: questions and answers come from what the memories say about each other. Questions
that people wrote are added from a file.
"""

import json
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.retrieval.collection import CORPUS, QRELS, QUERIES
from bench.sandbox import BenchmarkError
from curation.suggestions.duplicate_memories import REPLACED_RELS, REPLACING_RELS

RECORD = 'a record is {"id": "a1", "title": "…", "content": "…"}, as in our JSON Lines export'
PARAPHRASE = 'a question is {"text": "…", "answers": ["a1"]}'
_MIN_TITLE_WORDS = 4
_MIN_CONTENT = 80
# A title that begins with an identifier ("PEP 8: Style Guide") would find its memory by this alone.
_IDENTIFIER = re.compile(r"^\S{1,12}[ -]?\d+: +")
_WORD = re.compile(r"\w+")
# More memories than these by one author, or of one title, are not distinguished by a question.
_MOST_BY_AUTHOR, _MOST_VERSIONS, _MOST_TARGETS = 5, 20, 5

Record = Mapping[str, Any]
# The id of a memory, and the grade of its answer.
Grades = dict[str, int]


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its answers. One named after a memory does not find this memory itself."""

    id: str
    kind: str
    text: str
    answers: Grades


@dataclass(slots=True)
class Records:
    """Memories by id, in the order of their file, and the ids of those that replaced others."""

    by_id: dict[str, Record]
    successors: dict[str, str] = field(default_factory=dict)

    def current(self, name: str) -> str:
        """The last of the memories that replaced each other, beginning with this one."""
        seen = {name}
        while (after := self.successors.get(name)) and after not in seen:
            seen.add(name := after)
        return name


def read_records(path: Path) -> Records:
    """Read exported memories. Raises BenchmarkError for the first invalid line."""
    by_id: dict[str, Record] = {}
    for number, data in _objects(path, RECORD):
        if not all(isinstance(data.get(key), str) and data[key].strip() for key in ("id", "content")):
            raise BenchmarkError(f"{path}, line {number}: has no id or no content; {RECORD}.")
        for key in ("authors", "links"):
            if not isinstance(data.get(key), list | None):
                raise BenchmarkError(f"{path}, line {number}: {key} is no list; {RECORD}.")
        by_id[data["id"]] = data
    records = Records(by_id)
    for name, record in by_id.items():
        for after in _successors_of(record):
            if after in by_id and after != name:
                records.successors[name] = after
    return records


def _successors_of(record: Record) -> list[str]:
    stated = [str(record["superseded_by"])] if record.get("superseded_by") else []
    return stated + [link["target"] for link in _links(record) if link.get("rel") in REPLACED_RELS]


def read_paraphrases(path: Path, records: Records) -> Iterator[Question]:
    """Questions that people wrote. Raises BenchmarkError for the first that is invalid or has an unknown answer."""
    for number, data in _objects(path, PARAPHRASE):
        text, answers = data.get("text"), data.get("answers")
        are_ids = isinstance(answers, list) and all(isinstance(name, str) for name in answers)
        if not (isinstance(text, str) and text.strip() and answers and are_ids):
            raise BenchmarkError(f"{path}, line {number}: has no text or no answers; {PARAPHRASE}.")
        if missing := [name for name in answers if name not in records.by_id]:
            raise BenchmarkError(f"{path}, line {number}: there is no record {', '.join(missing)}.")
        yield Question(f"paraphrase-{number}", "paraphrase", text.strip(), dict.fromkeys(answers, 1))


def titles(records: Records) -> Iterator[Question]:
    """A title asks for its memory, whose title is left out of the collection."""
    counts = _counted(records, _title_key)
    for name, record in records.by_id.items():
        title, content = _title(record), str(record["content"])
        words = _words(title)
        if (
            len(words) >= _MIN_TITLE_WORDS
            and len(content) >= _MIN_CONTENT
            and len(counts[_title_key(record)]) == 1
            and " ".join(words) not in " ".join(_words(content))
            and name not in records.successors
        ):
            yield Question(f"title of {name}", "title", _typed(title), {name: 1})


def links(records: Records) -> Iterator[Question]:
    """The title of a memory asks for the memories that it links to."""
    for name, record in records.by_id.items():
        targets = [link["target"] for link in _links(record) if link.get("rel") not in REPLACING_RELS | REPLACED_RELS]
        known = [target for target in dict.fromkeys(targets) if target in records.by_id and target != name]
        title = _title(record)
        if 0 < len(known) <= _MOST_TARGETS and len(_words(title)) >= _MIN_TITLE_WORDS:
            yield Question(name, "link", _typed(title), dict.fromkeys(known, 1))


def authors(records: Records) -> Iterator[Question]:
    """An author and a month ask for what this author made then, if the memories say by whom they were made."""
    by_author: defaultdict[str, list[str]] = defaultdict(list)
    for name, record in records.by_id.items():
        for author in record.get("authors") or ():
            if f"by {author}" in record["content"] and _created(record):
                by_author[author].append(name)
    for author, names in by_author.items():
        months: defaultdict[str, Grades] = defaultdict(dict)
        for name in names if len(names) <= _MOST_BY_AUTHOR else ():
            months[f"{_created(records.by_id[name]):%B %Y}"][name] = 1
        for month, answers in months.items():
            yield Question(f"{author}, {month}", "author", _typed(f"{author} {month}"), answers)


def versions(records: Records) -> Iterator[Question]:
    """A title that several memories of a project have asks for all of them, and for the newest first."""
    for names in _counted(records, _title_key).values():
        dated = sorted(names, key=lambda name: str(records.by_id[name].get("created_at")))
        title = _title(records.by_id[dated[-1]])
        days = {str(records.by_id[name].get("created_at"))[:10] for name in names}
        if len(days) > 1 and len(names) <= _MOST_VERSIONS and len(_words(title)) >= _MIN_TITLE_WORDS:
            grades = dict.fromkeys(dated, 1) | {dated[-1]: 2}
            yield Question(f"versions of {dated[-1]}", "version", _typed(title), grades)


def superseded(records: Records) -> Iterator[Question]:
    """The title of a superseded memory asks for the memory that holds now."""
    for name in records.successors:
        title = _title(records.by_id[name])
        if len(_words(title)) > 1:
            yield Question(f"instead of {name}", "superseded", _typed(title), {records.current(name): 1})


KINDS: tuple[Callable[[Records], Iterator[Question]], ...] = (titles, links, authors, versions, superseded)


def questions_of(records: Records, paraphrases: Iterable[Question], per_kind: int, seed: int) -> list[Question]:
    """Questions of each kind, drawn with the seed and from all projects alike.

    A memory that answers another question keeps its title.
    """
    others = [one for kind in KINDS if kind is not titles for one in _drawn(kind(records), records, per_kind, seed)]
    found = [*paraphrases, *others]
    answers = {name for one in found for name in (*one.answers, one.id)}
    free = (one for one in titles(records) if answers.isdisjoint(one.answers))
    return [*found, *_drawn(free, records, per_kind, seed)]


def write_collection(records: Records, questions: Sequence[Question], folder: Path) -> None:
    """Write the collection. Everything else that a record says is in `record`, for the import."""
    (folder / QRELS).parent.mkdir(parents=True, exist_ok=True)
    untitled = {name for one in questions if one.kind == "title" for name in one.answers}
    with (folder / CORPUS).open("w", encoding="utf-8") as file:
        for name, record in records.by_id.items():
            title = "" if name in untitled else str(record.get("title") or "")
            rest = {key: value for key, value in record.items() if key not in {"id", "title", "content"}}
            if after := records.successors.get(name):
                rest |= {"superseded_by": after, "state": "superseded"}
            _write(file, {"_id": name, "title": title, "text": record["content"], "record": rest})
    with (folder / QUERIES).open("w", encoding="utf-8") as file:
        for one in questions:
            _write(file, {"_id": one.id, "text": one.text, "kind": one.kind})
    lines = [f"{one.id}\t{name}\t{grade}\n" for one in questions for name, grade in one.answers.items()]
    (folder / QRELS).write_text("".join(["query-id\tcorpus-id\tscore\n", *lines]), encoding="utf-8")


def _drawn(questions: Iterable[Question], records: Records, count: int, seed: int) -> list[Question]:
    """As many questions, by turns from each project of their answers."""
    by_project: defaultdict[str, list[Question]] = defaultdict(list)
    for one in questions:
        by_project[str(records.by_id[next(iter(one.answers))].get("project") or "")].append(one)
    for group in by_project.values():
        random.Random(seed).shuffle(group)
    drawn: list[Question] = []
    while by_project and len(drawn) < count:
        for project in list(by_project):
            drawn.append(by_project[project].pop())
            if not by_project[project]:
                del by_project[project]
    return drawn[:count]


def _counted(records: Records, key: Callable[[Record], Any]) -> dict[Any, list[str]]:
    found: defaultdict[Any, list[str]] = defaultdict(list)
    for name, record in records.by_id.items():
        found[key(record)].append(name)
    return found


def _title_key(record: Record) -> tuple[str, ...]:
    return (str(record.get("project") or ""), *_words(_title(record)))


def _title(record: Record) -> str:
    """The title without an identifier before a colon; empty if it is cut off."""
    title = _IDENTIFIER.sub("", str(record.get("title") or "").strip())
    return "" if title.endswith("…") else title


def _typed(text: str) -> str:
    """The text without operators of a query: quotes, and signs before a word."""
    return " ".join(word.lstrip("+-") for word in text.replace('"', " ").split()).strip()


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _links(record: Record) -> list[Mapping[str, Any]]:
    return [
        link for link in record.get("links") or () if isinstance(link, dict) and isinstance(link.get("target"), str)
    ]


def _created(record: Record) -> datetime | None:
    try:
        return datetime.fromisoformat(str(record.get("created_at")))
    except ValueError:
        return None


def _objects(path: Path, expected: str) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                data = json.loads(line)
            except ValueError as error:
                raise BenchmarkError(f"{path}, line {number}: is not JSON: {error}; {expected}.") from None
            if not isinstance(data, dict):
                raise BenchmarkError(f"{path}, line {number}: is not an object; {expected}.")
            yield number, data


def _write(file: Any, data: Mapping[str, Any]) -> None:
    file.write(json.dumps(data, ensure_ascii=False) + "\n")
