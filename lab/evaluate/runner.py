"""An evaluation: import the documents, run every query in every mode, and judge the answers.

The site is measured as it is used, through its import, worker, web server and API. Documents get new ids: their own,
such as 12, may be words of a query, and nobody searches for a document by its number.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any

from django.conf import settings

from access.keys import make_key
from access.viewer import command_viewer
from lab.evaluate.baselines import (
    BASELINES,
    BM25,
    COSINE,
    FUSED_DEPTH,
    FUSION,
    Rankings,
    Scored,
    baseline_label,
    bm25_scores,
    cosine_scores,
    fused_scores,
)
from lab.evaluate.client import Results, serve
from lab.evaluate.collection import Collection, read_collection
from lab.evaluate.metrics import DEPTH, mean_scores, scores_of
from lab.progress import Progress
from lab.report import Row, machine, percentiles
from lab.sandbox import BenchmarkError, Sandbox, open_sandbox, vacuum
from memories.embedding.query import serving_model
from memories.embedding.vectors import pending_count
from memories.models import Memory
from search.query import Mode

_REFUSED = "refused.jsonl"
# The time that the server may need to load a model.
_MODEL_SECONDS = 300
# Modes that do not rank memories by a text alone.
_UNRANKED = {"tag", "faceted", "unified"}
# The position of a document in the collection, as a word that nobody types.
_ID = "document{:09d}"
_ID_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Variation:
    """A change to one part of the search: environment variables of the web server, parameters of the query, or both.

    Documents, index and vectors stay the same. It is measured in these modes, by default in all.
    """

    name: str
    environment: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    modes: tuple[str, ...] = ()


_WITH_VECTORS = tuple(mode.value for mode in Mode if mode.looks_by_meaning)
# Neighbours with the same environment share a server.
VARIATIONS: tuple[Variation, ...] = (
    Variation("no minimum similarity", parameters={"min_similarity": "0"}, modes=_WITH_VECTORS),
    Variation("no rerank", {"SEARCH_WEIGHTS": "quality=0,recency=0,source=0"}, modes=_WITH_VECTORS),
    Variation("no neighbours", {"SEARCH_NEIGHBOUR_WEIGHT": "0"}, modes=("hybrid",)),
    Variation("no deduplication", {"SEARCH_DEDUP_SIMILARITY": "1"}, modes=_WITH_VECTORS),
    Variation("ranked by words alone", {"SEARCH_SEMANTIC_WEIGHT": "0"}, modes=("hybrid",)),
    Variation("ranked by vectors alone", {"SEARCH_SEMANTIC_WEIGHT": "1"}, modes=("hybrid",)),
    Variation("words and vectors equally", {"SEARCH_SEMANTIC_WEIGHT": "0.5"}, modes=("hybrid",)),
    # Last: a server without the derived index removes it.
    Variation("postgres alone", {"SEARCH_ENGINE": "postgres"}),
)


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """The options of the command line."""

    modes: tuple[str, ...]
    baselines: tuple[str, ...]
    ablation: bool
    limit_queries: int | None
    seed: int
    keep: bool


def ranked_modes() -> tuple[str, ...]:
    """The modes of the site that rank memories by a text."""
    return tuple(mode.value for mode in Mode if mode.value not in _UNRANKED)


def unread_variables(variations: Sequence[Variation]) -> list[str]:
    """Variables that no setting reads. Without this check a misspelled one would look like a part without effect."""
    sources = [(Path(settings.BASE_DIR) / "config" / name).read_text() for name in ("settings.py", "database.py")]
    names = dict.fromkeys(name for variation in variations for name in variation.environment)
    return [name for name in names if not any(f'"{name}"' in source for source in sources)]


def sandbox_name(collection: Path) -> str:
    """The name of the database and of the folder for a collection."""
    path = collection.resolve()
    word = re.sub(r"[^a-z0-9]+", "_", path.name.lower()).strip("_")[:30]
    return f"evaluate_{word}_{sha256(str(path).encode()).hexdigest()[:8]}"


def evaluate(folder: Path, options: EvaluationOptions, progress: Progress, write: Callable[[Row], None]) -> Row:
    """Measure one collection. `write` receives the report each time that it has grown."""
    variations = VARIATIONS if options.ablation else ()
    if unread := unread_variables(variations):
        raise BenchmarkError(f"No setting reads {', '.join(unread)}: the ablation would show no effect.")
    progress.log(f"reading {folder}")
    collection = read_collection(folder)
    if options.limit_queries is not None:
        collection.limit_queries(options.limit_queries, options.seed)
    name = sandbox_name(folder)
    home = Path(settings.HOME) / "lab" / name
    with open_sandbox(home, name, collection.digest, keep=options.keep) as sandbox:
        report: Row = {
            "collection": folder.resolve().name,
            "documents": len(collection.ids),
            "queries": len(collection.queries),
            "judgements": sum(map(len, collection.judgements.values())),
            "kinds": _by_kind(collection),
            "notes": collection.notes,
            "machine": machine(),
            "rows": [],
        }
        # First, because their packages may be missing.
        rankings = _baseline_rankings(collection, options.baselines, sandbox, progress)
        report["rows"] += [_row(collection, baseline_label(kind), kind, found) for kind, found in rankings.items()]
        write(report)
        if options.modes:
            report["notes"] += _load(collection, options, sandbox, progress)
            for environment, cases in _by_environment((Variation(""), *variations), options.modes):
                report["rows"] += _site_rows(environment, cases, collection, sandbox, progress)
                write(report)
    if options.keep:
        progress.log(f"kept the database {name} and {home}")
    return report


def _by_kind(collection: Collection) -> dict[str, list[str]]:
    """The queries of each kind."""
    found: dict[str, list[str]] = {}
    for name in collection.queries:
        if kind := collection.kinds.get(name):
            found.setdefault(kind, []).append(name)
    return found


def _baseline_rankings(
    collection: Collection, chosen: Sequence[str], sandbox: Sandbox, progress: Progress
) -> dict[str, Rankings]:
    """The rankings of the chosen baselines. A fusion needs both of the others."""
    needed = {BM25, COSINE} if FUSION in chosen else set(chosen)
    found: dict[str, Scored] = {}
    if BM25 in needed:
        with progress.bar(baseline_label(BM25), len(collection.ids)) as advance:
            found[BM25] = bm25_scores(collection, FUSED_DEPTH + 1, advance)
    if COSINE in needed:
        with progress.bar(baseline_label(COSINE), len(collection.ids) + len(collection.queries)) as advance:
            found[COSINE] = cosine_scores(collection, FUSED_DEPTH + 1, sandbox.folder, advance)
    for scored in found.values():
        for query, scores in scored.items():
            # In some collections a query is a document with the same id, which must not find itself.
            scores.pop(query, None)
    if FUSION in chosen:
        found[FUSION] = fused_scores(found[BM25], found[COSINE])
    return {
        name: {query: list(scores)[:DEPTH] for query, scores in found[name].items()}
        for name in BASELINES
        if name in chosen
    }


def _load(collection: Collection, options: EvaluationOptions, sandbox: Sandbox, progress: Progress) -> list[str]:
    """Import the documents, and embed them if a mode needs vectors. Return notes about refused documents."""
    if not sandbox.loaded:
        _import(collection, sandbox, progress)
        sandbox.mark_loaded()
    notes = _check_import(collection, sandbox)
    if any(Mode(mode).looks_by_meaning for mode in options.modes):
        progress.log("embedding")
        sandbox.manage("worker", "--once")
        serving = serving_model()
        if serving is None or pending_count(serving.id):
            raise BenchmarkError("manage.py worker --once has left memories without vectors.")
    return notes


def _import(collection: Collection, sandbox: Sandbox, progress: Progress) -> None:
    records = sandbox.folder / "records.jsonl"
    documents = progress.track("writing records", collection.documents(), len(collection.ids))
    new_ids = {name: _ID.format(position) for position, name in enumerate(collection.ids)}
    with records.open("w", encoding="utf-8") as file:
        for document in documents:
            record = {**_renamed(document.record, new_ids), "id": new_ids[document.id]}
            record |= {"title": document.title, "content": document.text}
            if not document.text:
                record |= {"title": "", "content": document.title}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    progress.log("importing")
    options = ("--format", "jsonl", "--project", "evaluation", "--report", str(sandbox.folder / _REFUSED))
    sandbox.manage("import_memories", str(records), *options)
    records.unlink()
    vacuum()


def _renamed(record: Mapping[str, Any], new_ids: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a record, with the new ids of the documents that it names."""

    def new(name: Any) -> Any:
        return new_ids.get(name, name) if isinstance(name, str) else name

    found = {key: new(value) if key == "superseded_by" else value for key, value in record.items()}
    for key in ("supersedes", "links"):
        if isinstance(names := record.get(key), list):
            found[key] = [
                one | {"target": new(one.get("target"))} if isinstance(one, dict) else new(one) for one in names
            ]
    return found


def _check_import(collection: Collection, sandbox: Sandbox) -> list[str]:
    """Notes about the documents that the import refused. Raises BenchmarkError if others are missing."""
    refused = [json.loads(line) for line in (sandbox.folder / _REFUSED).read_text().splitlines()]
    expected = len(collection.ids) - len(refused)
    if (stored := Memory.objects.count()) != expected:
        raise BenchmarkError(f"{expected:,} documents were imported, but there are {stored:,} memories.")
    if not refused:
        return []
    reasons = Counter(record["reason"] for record in refused)
    first = "; ".join(f"{reason} ({count:,})" for reason, count in reasons.most_common(3))
    documents = "1 document" if len(refused) == 1 else f"{len(refused):,} documents"
    return [f"{documents} refused by the import and found by no mode: {first}"]


def _by_environment(
    variations: Sequence[Variation], modes: Sequence[str]
) -> Iterator[tuple[dict[str, str], list[tuple[Variation, str]]]]:
    """The variations and modes that share a server, for each environment."""
    for environment, group in groupby(variations, key=lambda variation: variation.environment):
        cases = [(of, mode) for of in group for mode in modes if mode in of.modes or not of.modes]
        if cases:
            yield environment, cases


def _site_rows(
    environment: Mapping[str, str],
    cases: Sequence[tuple[Variation, str]],
    collection: Collection,
    sandbox: Sandbox,
    progress: Progress,
) -> list[Row]:
    """Run every query in each case, through one server with this environment."""
    key = make_key(name="evaluation", scopes=["read"], every_project=True, viewer=command_viewer()).raw
    progress.log(" ".join(["serving", *(f"{name}={value}" for name, value in environment.items())]))
    own = {name: _ID.format(at) for at, name in enumerate(collection.ids) if name in collection.queries}
    rows = []
    with serve(sandbox, key, environment) as client:
        needs_vectors = any(Mode(mode).looks_by_meaning for _, mode in cases)
        if needs_vectors and (missing := client.wait_for_embeddings("a first question", _MODEL_SECONDS)):
            raise BenchmarkError(f"The site has no semantic search. {missing}")
        for variation, mode in cases:
            name = f"{mode}, {variation.name}" if variation.name else mode
            answers: dict[str, Results] = {}
            for query, text in progress.track(name, collection.queries.items(), len(collection.queries)):
                answers[query] = client.search(
                    text, mode, DEPTH, exclude=own.get(query, ""), parameters=variation.parameters
                )
            rows.append(_site_row(name, mode, variation, collection, answers))
    return rows


def _site_row(
    name: str, mode: str, variation: Variation, collection: Collection, answers: Mapping[str, Results]
) -> Row:
    rankings = {
        query: [collection.ids[int(found[-_ID_DIGITS:])] for found in answer.ids] for query, answer in answers.items()
    }
    row = _row(collection, name, mode, rankings)
    row["mode"], row["variation"] = mode, asdict(variation) if variation.name else None
    row["engines"] = dict(Counter(answer.engine for answer in answers.values() if answer.engine))
    row["latency"] = percentiles([answer.milliseconds / 1_000 for answer in answers.values()])
    for query, answer in answers.items():
        for warning in answer.warnings:
            row["warnings"].setdefault(warning, []).append(query)
        if answer.error:
            row["errors"].setdefault(answer.error, []).append(query)
    return row


def _row(collection: Collection, name: str, kind: str, rankings: Rankings) -> Row:
    """A row of the report. Warnings and errors hold the queries that got each message."""
    by_query = {query: scores_of(rankings[query], collection.judgements[query]) for query in collection.queries}
    return {
        "name": name,
        "kind": kind,
        "scores": mean_scores(list(by_query.values())),
        "by_query": by_query,
        "ids": rankings,
        "mode": "",
        "variation": None,
        "engines": {},
        "latency": None,
        "warnings": {},
        "errors": {},
    }
