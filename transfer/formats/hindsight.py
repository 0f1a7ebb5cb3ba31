"""Archives of hindsight: documents, the facts that were extracted from them, and what was learned from facts."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from transfer.formats.base import (
    NotReadableError,
    Options,
    Reading,
    Records,
    RefusedRecord,
    SourceRecord,
    UnreadableFileError,
    read_guarded,
)
from transfer.formats.drafts import Draft, fields_of, listed, plain_text
from transfer.formats.importer import Importer
from transfer.formats.sources import MAX_VALUE, Source
from transfer.formats.trees import FileTree, TreeFile, opened_tree

SOURCE = "hindsight"
SCHEMA_VERSION = 1
_MANIFEST = "manifest.json"
_DOCUMENT = re.compile(r"documents/\d+\.json")
# Rows of a whole bank that are memories, with their types; the last are facts that somebody invalidated.
_INVALIDATED = "data/invalidated_memory_units.json"
_ROWS = {"mental_models.json": "mental-model", "directives.json": "directive", _INVALIDATED: "fact"}
# Dates that stand for "since ever" and "still".
_OPEN_BOUND = re.compile(r"(?:0001|9999)-")

Row = Mapping[str, Any]
Found = Iterator[SourceRecord | RefusedRecord]


def knows(source: Source) -> bool:
    if not source.is_archive and not (source.path / _MANIFEST).is_file():
        return False
    with opened_tree(source.path) as tree:
        return _manifest(tree).keys() >= {"schema_version", "source_bank_id"}


def _manifest(tree: FileTree) -> dict[str, Any]:
    for file in tree.files():
        if file.name == _MANIFEST:
            try:
                return fields_of(_value(tree, file))
            except UnreadableFileError:
                return {}
    return {}


def _value(tree: FileTree, file: TreeFile) -> Any:
    try:
        return json.loads(tree.read(file, MAX_VALUE))
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise UnreadableFileError(f"is not JSON: {reason[:200]}") from None


def read(path: Path, options: Options) -> Reading:
    with opened_tree(path) as tree:
        manifest = _manifest(tree)
    if "source_bank_id" not in manifest:
        raise NotReadableError(f"{path}: is no archive of hindsight.")
    version = manifest.get("schema_version")
    if version != SCHEMA_VERSION:
        raise NotReadableError(
            f"{path}: is an archive of hindsight of schema {version!r}; schema {SCHEMA_VERSION} is read."
        )
    done = total = 0

    def records() -> Records:
        nonlocal done, total
        bank = _Bank(plain_text(manifest["source_bank_id"]))
        with opened_tree(path) as tree:
            files = list(tree.files())
            total = len(files)
            # Observations name facts by their documents, which therefore come first.
            for file in sorted(files, key=lambda one: not _DOCUMENT.fullmatch(one.name)):
                yield from read_guarded(file.name, partial(bank.records, tree, file))
                done += 1

    return Reading(records(), lambda: done / total if total else None)


class _Bank:
    """The records of an archive. Facts have no ids in it: theirs are derived from the document and the text."""

    def __init__(self, project: str) -> None:
        self.project = project
        self.facts: dict[str, list[str]] = {}

    def records(self, tree: FileTree, file: TreeFile) -> Found:
        if _DOCUMENT.fullmatch(file.name):
            yield from self._document(file.name, fields_of(_value(tree, file)))
        elif file.name == "observations.json":
            for number, row in enumerate(listed(_value(tree, file))):
                yield self._observation(f"{file.name}[{number}]", fields_of(row))
        elif kind := _ROWS.get(file.name):
            for number, row in enumerate(listed(_value(tree, file))):
                yield self._row(f"{file.name}[{number}]", fields_of(row), kind, is_valid=file.name != _INVALIDATED)

    def _draft(self, location: str, row: Row, known_by: str, kind: str) -> Draft:
        raw = {name: value for name, value in row.items() if value not in (None, "", [], {}) and name != "embedding"}
        draft = Draft(location, raw, SOURCE)
        draft.text("project", self.project)
        draft.text("id", known_by)
        draft.text("type", kind)
        draft.names("tags", listed(row.get("tags")))
        return draft

    def _document(self, name: str, row: Row) -> Found:
        document_id = plain_text(row.get("id"))
        if not document_id:
            yield RefusedRecord(name, "is a document without an id")
            return
        facts = [fields_of(fact) for fact in listed(row.get("facts"))]
        chunks = [plain_text(fields_of(chunk).get("chunk_text")) for chunk in listed(row.get("chunks"))]
        self.facts[document_id] = ids = _fact_ids(document_id, facts)
        if text := plain_text(row.get("original_text")) or "\n\n".join(chunk for chunk in chunks if chunk):
            # The chunks repeat the text, and the facts are memories of their own.
            draft = self._draft(
                name,
                {key: value for key, value in row.items() if key not in ("chunks", "facts")},
                document_id,
                "document",
            )
            draft.text("content", text)
            draft.moment("created_at", row.get("created_at"))
            draft.data["updated_at"] = draft.data.get("created_at")
            yield draft.record()
        for number, fact in enumerate(facts):
            location = f"{name} facts[{number}]"
            if not plain_text(fact.get("text")):
                yield RefusedRecord(location, "is a fact without a text")
                continue
            draft = self._fact(location, fact, ids[number])
            draft.moment("created_at", fact.get("created_at"), fact.get("mentioned_at"), row.get("created_at"))
            draft.data["updated_at"] = draft.data.get("created_at")
            draft.link("from", document_id if text else "")
            for relation in map(fields_of, listed(fact.get("causal_relations"))):
                target = relation.get("target_fact_index")
                if isinstance(target, int) and 0 <= target < len(ids):
                    draft.link(plain_text(relation.get("relation_type")) or "related", ids[target])
                else:
                    draft.notes.append(f"causal_relations: {target!r:.40} is no fact of the document; it is left out")
            yield draft.record()

    def _fact(self, location: str, fact: Row, fact_id: str) -> Draft:
        draft = self._draft(location, fact, fact_id, plain_text(fact.get("fact_type")) or "fact")
        draft.text("content", fact.get("text"))
        draft.text("summary", fact.get("context"))
        draft.entities("thing", listed(fact.get("entities")))
        dates = (plain_text(fact.get(name)) for name in ("occurred_start", "event_date"))
        draft.moment("happened_at", *(date for date in dates if not _OPEN_BOUND.match(date)))
        return draft

    def _observation(self, location: str, row: Row) -> SourceRecord | RefusedRecord:
        if not (text := plain_text(row.get("text"))):
            return RefusedRecord(location, "is an observation without a text")
        draft = self._fact(location, {**row, "fact_type": "observation"}, f"observation:{_digest(self.project, text)}")
        draft.moment("created_at", row.get("mentioned_at"), row.get("event_date"))
        draft.data["updated_at"] = draft.data.get("created_at")
        for source in map(fields_of, listed(row.get("sources"))):
            ids, number = self.facts.get(plain_text(source.get("document_id")), []), source.get("fact_index")
            if isinstance(number, int) and 0 <= number < len(ids):
                draft.link("derived-from", ids[number])
        return draft.record()

    def _row(self, location: str, row: Row, kind: str, *, is_valid: bool) -> SourceRecord | RefusedRecord:
        """A mental model, a directive or an invalidated fact. Older models have their text in the description."""
        draft = self._draft(location, row, f"{kind}:{plain_text(row.get('id'))}", kind)
        draft.text("title", row.get("name"))
        draft.text("content", row.get("content"), row.get("text"), row.get("description"))
        draft.text("summary", row.get("source_query"))
        draft.moment("created_at", row.get("created_at"))
        draft.moment("updated_at", row.get("updated_at"), row.get("last_refreshed_at"), draft.data.get("created_at"))
        if not is_valid or row.get("is_active") in (False, 0):
            draft.data["state"] = "archived"
        if "content" not in draft.data:
            return RefusedRecord(location, f"is a {kind.replace('-', ' ')} without a text")
        return draft.record()


def _fact_ids(document_id: str, facts: list[dict[str, Any]]) -> list[str]:
    """An id for each fact. It stays when other facts come or go; the same text again is counted."""
    seen: Counter[str] = Counter()
    ids: list[str] = []
    for fact in facts:
        digest = _digest(document_id, plain_text(fact.get("text")))
        seen[digest] += 1
        ids.append(f"fact:{digest}" + (f":{seen[digest]}" if seen[digest] > 1 else ""))
    return ids


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:24]


IMPORTER = Importer(SOURCE, "an archive of hindsight (ZIP), of documents or of a bank", knows, read)
