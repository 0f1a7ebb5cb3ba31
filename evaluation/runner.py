"""An evaluation from beginning to end: load the documents, ask every query in every way, and judge the answers.

The site is measured as it is used: its import, its worker, its web server and its API. Documents go by ids of our own:
theirs, such as 12, are words that a query may hold, and nobody else would find a document by its number.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from access.keys import make_key
from access.viewer import command_viewer
from bench.database import mark_loaded, server_version, tidy_database
from bench.figures import spread
from bench.machine import this_machine
from bench.telling import Teller
from evaluation.ablation import VARIATIONS, Variation, unread_variables
from evaluation.asking import Answer, Site
from evaluation.baselines import (
    BASELINES,
    BM25,
    COSINE,
    FUSION,
    BaselineUnavailableError,
    Rankings,
    baseline_label,
    bm25_rankings,
    cosine_rankings,
    fused_rankings,
)
from evaluation.collection import Collection, read_collection
from evaluation.metrics import DEPTH, mean_scores, scores_of
from evaluation.place import EvaluationError, Place, evaluation_place, place_name
from evaluation.report import Report, Row
from memories.embedding.query import serving_model
from memories.embedding.vectors import pending_count
from memories.models import Memory
from search.query import Mode

_REFUSED = "refused.jsonl"
# How long a model may take to be loaded beside the requests.
_MODEL_SECONDS = 300
# Those that rank no memories by a text alone.
_UNRANKED = {"tag", "faceted", "unified"}
# The place of a document in the collection, as one word that nobody types.
_ID = "document{:09d}"
_ID_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Choices:
    """What was asked for on the command line."""

    modes: tuple[str, ...]
    baselines: tuple[str, ...]
    ablation: bool
    limit_queries: int | None
    seed: int
    keep: bool


def ranked_modes() -> tuple[str, ...]:
    """The modes of the site that rank memories by a text."""
    return tuple(mode.value for mode in Mode if mode.value not in _UNRANKED)


def evaluate(folder: Path, choices: Choices, teller: Teller, write: Callable[[Report], None]) -> Report:
    """Measure everything that was chosen over one collection. `write` gets what is known, each time that it is more."""
    variations = VARIATIONS if choices.ablation else ()
    if unread := unread_variables(variations):
        raise EvaluationError(f"No setting is read from {', '.join(unread)}: the ablation would show no effect.")
    teller.say(f"reading {folder}")
    collection = read_collection(folder)
    if choices.limit_queries is not None:
        collection.limit_queries(choices.limit_queries, choices.seed)
    with evaluation_place(folder, collection.digest, keep=choices.keep) as place:
        report = Report(
            collection=folder.resolve().name,
            documents=len(collection.ids),
            queries=len(collection.queries),
            judgements=sum(map(len, collection.judgements.values())),
            notes=collection.notes,
            machine=this_machine(server_version()),
        )
        # First, because they are what may be missing.
        rankings = _baseline_rankings(collection, choices.baselines, place, teller)
        report.rows += [_baseline_row(name, collection, found) for name, found in rankings.items()]
        write(report)
        if choices.modes:
            report.notes += _load(collection, choices, place, teller)
            for environment, asked in _asked_together((Variation(""), *variations), choices.modes):
                report.rows += _rows_of(environment, asked, collection, place, teller)
                write(report)
        if choices.keep:
            teller.say(f"kept the database {place_name(folder)} and {place.folder}")
    return report


def _baseline_rankings(
    collection: Collection, chosen: Sequence[str], place: Place, teller: Teller
) -> dict[str, Rankings]:
    """The rankings of the baselines that were chosen, in their order; what a fusion is made of is made for it."""
    wanted = {BM25, COSINE} if FUSION in chosen else set(chosen)
    found: dict[str, Rankings] = {}
    size = len(collection.ids)
    try:
        if BM25 in wanted:
            with teller.bar(baseline_label(BM25), size) as advance:
                found[BM25] = bm25_rankings(collection, DEPTH + 1, advance)
        if COSINE in wanted:
            with teller.bar(baseline_label(COSINE), size + len(collection.queries)) as advance:
                found[COSINE] = cosine_rankings(collection, DEPTH + 1, place.folder, advance)
    except BaselineUnavailableError as error:
        raise EvaluationError(f"{error} Or leave it out with --baselines.") from error
    for rankings in found.values():
        for query, ids in rankings.items():
            # In some collections queries are documents, under the same id: none is to find itself.
            rankings[query] = [name for name in ids if name != query][:DEPTH]
    if FUSION in chosen:
        found[FUSION] = fused_rankings(found[BM25], found[COSINE], DEPTH)
    return {name: found[name] for name in BASELINES if name in chosen}


def _baseline_row(name: str, collection: Collection, rankings: Rankings) -> Row:
    return _judged(baseline_label(name), name, collection, rankings)


def _load(collection: Collection, choices: Choices, place: Place, teller: Teller) -> list[str]:
    """Have every document in the database, with its vectors where a mode looks at them; what was refused, in words."""
    if not place.loaded:
        _import(collection, place, teller)
        mark_loaded(place_name(collection.folder), collection.digest)
    notes = _checked(collection, place)
    if any(Mode(mode).looks_by_meaning for mode in choices.modes):
        teller.say("embedding")
        place.manage("worker", "--once")
        serving = serving_model()
        if serving is None or pending_count(serving.id):
            raise EvaluationError("manage.py worker --once has left memories without vectors.")
    return notes


def _import(collection: Collection, place: Place, teller: Teller) -> None:
    """Bring the documents in as anybody would: a file of records, through the import command."""
    records, refusals = place.folder / "records.jsonl", place.folder / _REFUSED
    with teller.bar("writing records", len(collection.ids)) as advance, records.open("w", encoding="utf-8") as file:
        for place_in_order, document in enumerate(collection.documents()):
            record = {"id": _ID.format(place_in_order), "title": document.title, "content": document.text}
            if not document.text:
                record |= {"title": "", "content": document.title}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            advance()
    teller.say("importing")
    place.manage(
        "import_memories", str(records), "--format", "jsonl", "--project", "evaluation", "--report", str(refusals)
    )
    records.unlink()
    tidy_database()
    (place.folder / "loaded").touch()


def _checked(collection: Collection, place: Place) -> list[str]:
    """What the import refused, in words. Raises EvaluationError where more than that is missing."""
    refused = [json.loads(line) for line in (place.folder / _REFUSED).read_text().splitlines()]
    expected = len(collection.ids) - len(refused)
    if (stored := Memory.objects.count()) != expected:
        raise EvaluationError(f"{expected:,} documents were imported, and {stored:,} memories are there.")
    if not refused:
        return []
    reasons = Counter(one["reason"] for one in refused)
    most = "; ".join(f"{reason} ({count:,})" for reason, count in reasons.most_common(3))
    some = "1 document was" if len(refused) == 1 else f"{len(refused):,} documents were"
    return [f"{some} refused by the import, and no mode can find what is not there: {most}"]


def _asked_together(
    variations: Sequence[Variation], modes: Sequence[str]
) -> Iterator[tuple[dict[str, str], list[tuple[Variation, str]]]]:
    """What one server can be asked, one environment after the other."""
    for environment, alike in groupby(variations, key=lambda one: one.environment):
        asked = [(one, mode) for one in alike for mode in modes if mode in one.modes or not one.modes]
        if asked:
            yield environment, asked


def _rows_of(
    environment: Mapping[str, str],
    asked: Sequence[tuple[Variation, str]],
    collection: Collection,
    place: Place,
    teller: Teller,
) -> list[Row]:
    """Every query in every one of these modes, with what varies in them, through one server of their own."""
    key = make_key(name="evaluation", scopes=["read"], every_project=True, viewer=command_viewer()).raw
    teller.say(" ".join(["serving", *(f"{name}={value}" for name, value in environment.items())]))
    own = {name: _ID.format(at) for at, name in enumerate(collection.ids) if name in collection.queries}
    rows = []
    with place.served(environment) as port, closing(Site(port, key)) as site:
        by_meaning = any(Mode(mode).looks_by_meaning for _, mode in asked)
        if by_meaning and (missing := site.wait_for_meaning("a first question", _MODEL_SECONDS)):
            raise EvaluationError(f"The site does not look by meaning. {missing}")
        for variation, mode in asked:
            name = f"{mode}, {variation.name}" if variation.name else mode
            answers: dict[str, Answer] = {}
            with teller.bar(name, len(collection.queries)) as advance:
                for query, text in collection.queries.items():
                    answers[query] = site.search(
                        text, mode, DEPTH, leave_out=own.get(query, ""), parameters=variation.parameters
                    )
                    advance()
            rows.append(_site_row(name, mode, variation, collection, answers))
    return rows


def _site_row(name: str, mode: str, variation: Variation, collection: Collection, answers: Mapping[str, Answer]) -> Row:
    rankings = {query: _names_of(answer.ids, collection) for query, answer in answers.items()}
    row = _judged(name, mode, collection, rankings)
    row.mode, row.variation = mode, variation
    row.engines = dict(Counter(answer.engine for answer in answers.values() if answer.engine))
    row.latency = spread([answer.milliseconds / 1_000 for answer in answers.values()])
    for query, answer in answers.items():
        for warning in answer.warnings:
            row.warnings.setdefault(warning, []).append(query)
        if answer.error:
            row.errors.setdefault(answer.error, []).append(query)
    return row


def _judged(name: str, kind: str, collection: Collection, rankings: Rankings) -> Row:
    by_query = {query: scores_of(rankings[query], collection.judgements[query]) for query in collection.queries}
    return Row(name, kind, mean_scores(by_query.values()), by_query, rankings)


def _names_of(ids: Sequence[str], collection: Collection) -> list[str]:
    return [collection.ids[int(name[-_ID_DIGITS:])] for name in ids]
