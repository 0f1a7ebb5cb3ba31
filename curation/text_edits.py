"""Edits of the texts of the vocabulary: descriptions, aliases, facts. Names and paths do not change.

An edit replaces the previous text; imports only add to it, by the `enrich` services.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from django.db import transaction
from django.db.models import Model, Q, QuerySet
from django.db.models.functions import Lower

from access.viewer import Viewer, audit
from categories.models import Category, Concept, Entity, LocalText, Relationship
from categories.paths import clean_name
from categories.searched_terms import RELATIONSHIPS, SEARCHED_KINDS, terms_refresh
from categories.services import vocabulary_lock_shared
from categories.texts import projects_using, stored_alias_projects, stored_description_projects
from curation.queries import OTHERS_USE_IT, projects_with, used_by_others, visible_terms
from memories.records import unstorable
from memories.storage import corpus_bump
from web.secrets import texts_to_store

MAX_ALIAS = 500
MAX_ALIASES = 1_000


class EditRefusedError(ValueError):
    """The edit is not possible. `field` is the field at fault."""

    def __init__(self, message: str, field: str = "") -> None:
        self.field = field
        super().__init__(message)


@transaction.atomic
def term_describe(
    *, term: Category | Concept | Entity, description: str, aliases: Iterable[str], viewer: Viewer
) -> None:
    """Set the description and the aliases of a category, concept or entity. Raises EditRefusedError."""
    kind = str(term._meta.model_name)
    _require_curator(viewer, kind, [term.pk])
    given = texts_to_store({"description": description, "aliases": list(aliases)}, _refused_secret)
    names = clean_aliases(given["aliases"], term.name)

    def is_visible(other: int) -> bool:
        return bool(visible_terms(kind, [other], viewer))

    refuse_taken_names(names, namesakes(kind, term.pk, getattr(term, "entity_type", "")), is_visible)
    text = _text(given["description"], "description")
    stored = type(term)._default_manager.get(pk=term.pk)
    if viewer.curated_project_ids is not None:
        values = _write_local(stored, kind, text, names, viewer)
    else:
        values = _public_values(stored, kind, text, names)
    _edit(term, values, viewer)
    terms_refresh(SEARCHED_KINDS[kind], [term.pk])


def _public_values(term: Category | Concept | Entity, kind: str, description: str, names: list[str]) -> dict[str, Any]:
    """The texts, with the projects in which the new ones hold: those that use the term now."""
    columns = ("aliases", "description", "alias_projects", "description_projects")
    before = {name: getattr(term, name) for name in columns}
    used: list[int] | None = projects_using(kind, [term.pk]).get(term.pk)

    def origin(_: str) -> list[int] | None:
        return used

    held = {
        "alias_projects": stored_alias_projects(before, names, origin),
        "description_projects": stored_description_projects(before, description, origin),
    }
    changed = {name: projects for name, projects in held.items() if projects != before[name]}
    return {"description": description, "aliases": names, **changed}


def _write_local(
    term: Category | Concept | Entity, kind: str, description: str, aliases: Sequence[str], viewer: Viewer
) -> dict[str, Any]:
    """Store the texts that differ from the public ones as local ones. Returns the public ones that remain.

    The viewer may read all of the latter: `_require_curator` has checked it.
    """
    scope = projects_with(kind, term.pk, viewer.curated_project_ids or frozenset())
    shown = {alias.lower() for alias in aliases}
    public = [alias for alias in term.aliases if alias.lower() in shown]
    new = [(LocalText.Role.ALIAS, alias) for alias in aliases if alias.lower() not in {one.lower() for one in public}]
    if description and description != term.description:
        new.append((LocalText.Role.DESCRIPTION, description))
    # Others have no local text on this term: `_require_curator` has checked it.
    own = LocalText.objects.filter(kind=kind, term_id=term.pk).exclude(role=LocalText.Role.PATH)
    before = sorted(own.values_list("role", "text"))
    if before != sorted((str(role), text) for role, text in new):
        own.delete()
        LocalText.objects.bulk_create(
            LocalText(kind=kind, term_id=term.pk, role=role, text=text, project_ids=scope) for role, text in new
        )
        texts = [[str(role), text] for role, text in new]
        audit(viewer, f"{kind}_describe", term, before={"local": [*map(list, before)]}, after={"local": texts})
        corpus_bump()
    return {"description": term.description, "aliases": public}


@transaction.atomic
def relationship_describe(*, relationship: Relationship, fact: str, confidence: float | None, viewer: Viewer) -> None:
    """Set the sentence and the confidence (0 to 1, or none) of a relationship. Raises EditRefusedError."""
    _require_curator(viewer, "entity", [relationship.source_id, relationship.target_id])
    if confidence is not None and not 0 <= confidence <= 1:
        raise EditRefusedError("Confidence is a number from 0 to 1.", "confidence")
    given = texts_to_store({"fact": fact}, _refused_secret)
    _edit(relationship, {"fact": _text(given["fact"], "fact"), "confidence": confidence}, viewer)
    terms_refresh(RELATIONSHIPS, [relationship.pk])


def _refused_secret(field: str, reason: str) -> EditRefusedError:
    return EditRefusedError(f"{field}: {reason}", field)


def _require_curator(viewer: Viewer, kind: str, ids: Collection[int]) -> None:
    """Refuse viewers who may not curate the terms, and block curations until the transaction ends."""
    if "curate" not in viewer.scopes:
        raise EditRefusedError("Only curators can edit the vocabulary.")
    vocabulary_lock_shared()
    if used_by_others(kind, ids, viewer):
        raise EditRefusedError(OTHERS_USE_IT)


def _edit(row: Model, values: dict[str, Any], viewer: Viewer) -> None:
    # A distributed Postgres locks rows only by their id.
    stored = type(row)._default_manager.select_for_update().get(pk=row.pk)
    before = {name: getattr(stored, name) for name in values}
    for name, value in values.items():
        setattr(row, name, value)
    if before == values:
        return
    row.save(update_fields=list(values))
    audit(viewer, f"{row._meta.model_name}_describe", row, before=before, after=values)
    corpus_bump()


def _text(text: str, field: str) -> str:
    if reason := unstorable(text):
        raise EditRefusedError(reason.removeprefix("text: "), field)
    return text.strip()


def clean_aliases(aliases: Iterable[str], name: str) -> list[str]:
    """Aliases in their stored form: single lines, without the name itself and without repeats in another case."""
    cleaned: dict[str, str] = {}
    for alias in aliases:
        line = clean_name(_text(alias, "aliases"))
        if len(line) > MAX_ALIAS:
            reason = f"An alias has up to {MAX_ALIAS} characters; “{line[:40]}…” has {len(line)}."
            raise EditRefusedError(reason, "aliases")
        if line and line.lower() != name.lower():
            cleaned.setdefault(line.lower(), line)
    if len(cleaned) > MAX_ALIASES:
        raise EditRefusedError(f"Give at most {MAX_ALIASES:,} aliases.", "aliases")
    return list(cleaned.values())


def namesakes(kind: str, term_id: int, entity_type: str = "") -> QuerySet[Any]:
    """The other rows among which a name must be unique: concepts, or entities of a type. Paths identify categories."""
    if kind == "entity":
        return Entity.objects.filter(entity_type=entity_type).exclude(pk=term_id)
    return Concept.objects.exclude(pk=term_id) if kind == "concept" else Category.objects.none()


def refuse_taken_names(aliases: list[str], others: QuerySet[Any], is_visible: Callable[[int], bool]) -> None:
    """Refuse aliases that are the name of another visible row: names are looked up before aliases."""
    lowered = [alias.lower() for alias in aliases]
    rows = others.annotate(lower=Lower("name")).filter(Q(lower__in=lowered)) if lowered else ()
    named = next((row for row in rows if is_visible(row.pk)), None)
    if named is not None:
        raise EditRefusedError(f"“{named.name}” is already the name of {named} (#{named.pk}).", "aliases")
