"""The contexts of a relationship, of a chain, and of a name that means nothing. No database and no request."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, tzinfo

from django.urls import reverse

from categories.graph.asking import MOST_STEPS, PathRequest, TableRequest
from categories.graph.kinds import ENTITY
from categories.graph.node import Fact
from categories.graph.path import Path, PathEndError, Step
from categories.graph.reads import NameAmbiguousError, NameUnknownError
from categories.graph.wording import (
    Sample,
    both_url,
    evidence_link,
    graph_tabs,
    names_or_name,
    path_url,
    relationship_notes,
    sample_of,
    table_url,
    term_url,
    verb_text,
)
from categories.queries import Term
from memories.context import Mention, mention
from search.chart import Option
from search.context import Notice
from search.labels import memories, plural
from search.links import Link

# --- one relationship --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FactContext:
    title: str
    tabs: tuple[Link, ...]
    source: Link
    verb: str
    target: Link
    fact: str
    notes: tuple[str, ...]
    summary: str
    evidence: tuple[Sample, ...]
    put_away: tuple[Sample, ...]
    both_url: str


def build_fact(fact: Fact, zone: tzinfo = UTC) -> FactContext:
    record = fact.record
    ends = [Term(end.id, end.value, end.name, end.type) for end in (record.source, record.target)]
    source, target = (Link(end.label, term_url(ENTITY, end), end.type) for end in ends)
    shown, every = len(fact.evidence), len(record.evidence)
    return FactContext(
        title=record.title,
        tabs=graph_tabs(ENTITY),
        source=source,
        verb=verb_text(record.type),
        target=target,
        fact=record.fact,
        notes=relationship_notes(record),
        summary=f"{memories(every)}{f', of which {shown} are shown' if shown < every else ''}",
        evidence=tuple(sample_of(hit, zone) for hit in fact.evidence),
        put_away=tuple(sample_of(hit, zone) for hit in fact.put_away),
        both_url=both_url(ENTITY, *ends),
    )


# --- a chain -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShownLink:
    """What links two in a row: of a relationship `leads_on` where it points along the chain."""

    verb: str
    leads_on: bool
    fact: str
    notes: tuple[str, ...]
    evidence: Link


@dataclass(frozen=True, slots=True)
class ShownStep:
    source: Link
    target: Link
    links: tuple[ShownLink, ...]
    together: Link | None
    memories: tuple[Mention, ...]


@dataclass(frozen=True, slots=True)
class PathContext:
    tabs: tuple[Link, ...]
    begin: str
    end: str
    steps_asked: tuple[Option, ...]
    together: bool
    notices: tuple[Notice, ...]
    summary: str
    reason: str
    # Where the search takes in memories in common, where that was not asked for.
    wider: Link | None
    start: Link | None
    steps: tuple[ShownStep, ...]


def build_path(asked: PathRequest, path: Path | None, notices: Iterable[Notice], zone: tzinfo = UTC) -> PathContext:
    steps = tuple(_step(step, zone) for step in path.steps) if path else ()
    is_same = path is not None and path.source.id == path.target.id
    return PathContext(
        tabs=graph_tabs(None),
        begin=asked.begin,
        end=asked.end,
        steps_asked=tuple(Option(str(n), str(n), n == asked.steps) for n in range(1, MOST_STEPS + 1)),
        together=asked.together,
        notices=tuple(notices),
        summary=f"{plural(len(steps), 'step')} from {path.source.label} to {path.target.label}"
        if path and steps
        else "",
        reason="These are the same." if is_same else path.reason if path else "",
        wider=Link("Look through memories in common too", path_url(asked.but(together=True)))
        if path and path.reason and not asked.together
        else None,
        start=Link(path.source.label, term_url(ENTITY, path.source), path.source.type) if path and steps else None,
        steps=steps,
    )


def _step(step: Step, zone: tzinfo) -> ShownStep:
    both = both_url(ENTITY, step.source, step.target)
    count = step.bond.together
    return ShownStep(
        source=Link(step.source.label, term_url(ENTITY, step.source), step.source.type),
        target=Link(step.target.label, term_url(ENTITY, step.target), step.target.type),
        links=tuple(
            ShownLink(
                verb_text(record.type),
                record.source.id == step.source.id,
                record.fact,
                relationship_notes(record),
                evidence_link(record),
            )
            for record in step.relationships
        ),
        together=Link(f"{memories(count)} {names_or_name(count)} both", both) if count else None,
        memories=tuple(mention(memory, None, zone) for memory in step.memories),
    )


# --- names that mean nothing, or several -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LostContext:
    """In place of a node: what was asked for, and what may have been meant."""

    title: str
    message: str
    tabs: tuple[Link, ...]
    label: str
    choices: tuple[Link, ...]
    search_url: str


def build_lost(error: NameUnknownError | NameAmbiguousError) -> LostContext:
    kind = error.kind
    if isinstance(error, NameAmbiguousError):
        choices = tuple(
            Link(term.label, reverse(f"graph:{kind.key}", args=[term.id]), term.type) for term in error.choices
        )
        label = "Which one?"
    else:
        choices = tuple(Link(near, reverse(f"graph:{kind.key}", args=[near])) for near in error.near)
        label = "Did you mean"
    search = TableRequest(search=(error.name.partition(":")[2] or error.name)[:200])
    return LostContext(
        title=f"Several {kind.many} of this name" if label == "Which one?" else f"No such {kind.key}",
        message=str(error),
        tabs=graph_tabs(kind),
        label=label if choices else "",
        choices=choices,
        search_url=table_url(kind, search),
    )


def end_notice(error: PathEndError, asked: PathRequest) -> Notice:
    """What is wrong with one of two names, with links that put it right."""
    field = "begin" if error.parameter == "from" else "end"
    cause = error.cause
    if isinstance(cause, NameAmbiguousError):
        meant, values = "Which one?", [(f"{term.label} ({term.type})", str(term.id)) for term in cause.choices]
    else:
        meant, values = "Did you mean", [(near, near) for near in cause.near]
    links = tuple(Link(label, path_url(asked.but(**{field: value})), f"Take {label}") for label, value in values)
    return Notice(str(cause), parameter=error.parameter, suggestion=meant if links else "", links=links)
