"""The purge: secrets that were stored are masked wherever they are, in one act that cannot be undone.

It is asked for by an entry of the audit trail, which has the hashes of the secrets and how far it is. The texts of the
database are masked in one transaction. The rest needs no secret any more, so that a purge that was killed goes on:
the search index, the vectors, and the files of Postgres are written again.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from access.models import AuditEvent
from access.viewer import Viewer, audit
from categories.models import Category
from categories.paths import slug
from categories.searched_terms import SEARCHED_KINDS, terms_refresh
from curation.facet_columns import read_tags, write_tags
from curation.models import Curation, CurationChange
from curation.services import exclude_writers
from home.found_secrets import Progress, SecretsLook, check_may_administer, hash_of, look_for_secrets
from home.purged_files import files_purge, index_rebuild, tables_rewrite
from home.stored_texts import TextRow, TextTable, text_rows, text_tables, with_texts_changed
from memories.models import Corpus
from memories.records import derived_title
from memories.snapshot import content_hash_of
from memories.storage import corpus_bump, outbox_stamp
from search.engines import segment_files
from text.secrets import bare_forms, is_unlike_words, mask_values
from web.sql import execute, fetch

VERB = "secrets_purge"
BEGUN, MASKED, DONE = "begun", "masked", "done"
_SHORTEST_COPY = 8
_LONG_STEP = 20
_BEGINNING, _BEGINS_ALIKE = 24, 52
_PIECE = re.compile(r"[A-Za-z0-9]{6,}")
# Alternatives in one regular expression of Postgres.
_PIECES_AT_ONCE = 100
_TERMS = {f"categories.{kind.capitalize()}": kind for kind in SEARCHED_KINDS}


@dataclass(slots=True)
class Purged:
    """The effects of a purge: numbers of rows by their words, and what is left, in sentences."""

    rows: dict[str, int] = field(default_factory=dict)
    memories: int = 0
    left: list[str] = field(default_factory=list)


@dataclass
class Known:
    """The secrets to purge: their hashes, their marks by text, and the rows in which they were seen."""

    hashes: frozenset[str]
    marks: dict[str, str] = field(default_factory=dict)
    rows: dict[str, set[Any]] = field(default_factory=dict)

    def see(self, table: TextTable, row: TextRow, known: str, mark: str, secret: str) -> None:
        if known in self.hashes:
            self.marks[secret] = mark
            self.rows.setdefault(table.label, set()).add(row.pk)

    @cached_property
    def copies(self) -> dict[str, str]:
        """The texts that are masked wherever they are, in lower case, the longest first, with their marks."""
        copies: dict[str, str] = {}
        for secret, mark in self.marks.items():
            for text in _variants(secret):
                if is_unlike_words(text):
                    copies.setdefault(text.lower(), mark)
        return dict(sorted(copies.items(), key=lambda pair: -len(pair[0])))

    @cached_property
    def pattern(self) -> "re.Pattern[str] | None":
        wholes = [re.escape(copy) for copy in self.copies]
        # A title may end within a long one.
        begun = [f"{re.escape(copy[:length])}{_REST}" for copy in self.copies if (length := _prefix_length(copy))]
        return re.compile("|".join([*wholes, *begun]), re.IGNORECASE) if wholes else None

    def mask_copies(self, text: str) -> str:
        """A text without copies of the secrets."""
        return self.pattern.sub(self._mark, text) if self.pattern else text

    def _mark(self, match: "re.Match[str]") -> str:
        found = match[0].lower()
        begins = (
            mark for copy, mark in self.copies.items() if found.startswith(copy[: _prefix_length(copy) or len(copy)])
        )
        return self.copies.get(found) or next(begins)


# The rest of a word that begins as a secret does.
_REST = r"[A-Za-z0-9_\-+/=.~]*…?"


def _variants(secret: str) -> Iterator[str]:
    """A secret in its other forms: in the path of a category, without the signs around it, or the password alone."""
    yield from bare_forms(secret)
    yield slug(secret)
    # The steps of a path, such as that of a category.
    yield from (step for step in secret.split("/") if len(step) >= _LONG_STEP and " " not in step)


def _prefix_length(copy: str) -> int:
    """The number of characters by which a long secret is known that is cut off; 0 for a short one."""
    length = _BEGINS_ALIKE if copy.startswith(("eyj", "-----")) else _BEGINNING
    return length if len(copy) > length + _SHORTEST_COPY else 0


# --- asking for one -------------------------------------------------------------------------------------------------


def purge_ask(*, hashes: Collection[str], viewer: Viewer) -> AuditEvent:
    """Ask for a purge of secrets, which begins with `purges_do`. Raises SecretsForbiddenError."""
    check_may_administer(viewer)
    corpus = Corpus.objects.get_or_create(pk=1)[0]
    return audit(viewer, VERB, corpus, after={"state": BEGUN, "hashes": sorted(hashes)})


def open_purges() -> list[AuditEvent]:
    """The purges that were asked for and are not done, the oldest first."""
    # auditevent_subject_idx
    asked = AuditEvent.objects.filter(subject_type="corpus", verb=VERB).exclude(after__state=DONE)
    return list(asked.order_by("pk"))


def purges() -> list[AuditEvent]:
    """All purges, the newest first."""
    return list(AuditEvent.objects.filter(subject_type="corpus", verb=VERB).select_related("user").order_by("-pk")[:20])


def purges_do(progress: Progress = lambda word, done, total: None) -> list[Purged]:
    """Do, or continue, the purges that were asked for. The caller holds `secrets_alone`."""
    return [_purge(event, progress) for event in open_purges()]


def _purge(event: AuditEvent, progress: Progress) -> Purged:
    after = event.after or {}
    purged = Purged(after.get("rows", {}), after.get("memories", 0), after.get("left", []))
    if after["state"] == BEGUN:
        known = Known(frozenset(after["hashes"]))
        look = look_for_secrets(progress=progress, seen=known.see)
        segment_files.reached("secrets known")
        purged.left += files_purge(known.mask_copies, list(known.copies))
        segment_files.reached("files purged")
        _texts_purge(event, known, look, purged)
        segment_files.reached("texts purged")
    progress("search index", 0, 1)
    purged.left += index_rebuild()
    segment_files.reached("index rebuilt")
    progress("files of Postgres", 0, 1)
    purged.left += tables_rewrite([table.model._meta.db_table for table in text_tables()])
    segment_files.reached("tables rewritten")
    _save_progress(event, purged, DONE)
    return purged


def _save_progress(event: AuditEvent, purged: Purged, state: str, **more: Any) -> None:
    values = {"state": state, "rows": purged.rows, "memories": purged.memories, "left": purged.left, **more}
    event.after = {**(event.after or {}), **values, f"{state}_at": timezone.now().isoformat()}
    event.save(update_fields=["after"])


# --- the texts of the database --------------------------------------------------------------------------------------


def _texts_purge(event: AuditEvent, known: Known, look: SecretsLook, purged: Purged) -> None:
    """Mask the secrets in all tables, and make again what depends on them, in one transaction."""
    with exclude_writers():
        for table in text_tables():
            if changed := _table_purge(table, known, purged):
                purged.rows[table.word] = len(changed)
                if refresh := _DEPENDENTS.get(table.label):
                    refresh(changed)
                if table.label in ("memories.Memory", "memories.MemoryLink"):
                    memory_ids = {pk[0] if isinstance(pk, tuple) else pk for pk in changed}
                    purged.memories += len(memory_ids) if table.label == "memories.Memory" else 0
                    write_tags(read_tags(memory_ids).items())
        marks = sorted({one.mark for one in look.found.values() if one.id in known.hashes})
        _save_progress(event, purged, MASKED, marks=marks)
        outbox_stamp()
        corpus_bump()


def _table_purge(table: TextTable, known: Known, purged: Purged) -> list[Any]:
    """Mask the secrets in the rows of a table. Returns the keys of those that changed."""
    rows = table.model._default_manager
    pks = sorted(known.rows.get(table.label, set()) | _rows_with_copies(table, known.copies))
    changed = []
    for start in range(0, len(pks), _PIECES_AT_ONCE):
        for row in list(text_rows(table, rows.filter(pk__in=pks[start : start + _PIECES_AT_ONCE]))):
            cleaned = cleaned_texts(row.texts, known)
            columns = {name: value for name, value in cleaned.items() if value != row.texts[name]}
            if fixed := table.fixed_columns & columns.keys():
                number = row.pk[-1] if isinstance(row.pk, tuple) else row.pk
                purged.left.append(f"{table.word} #{number}: {', '.join(sorted(fixed))} names it. Rename it yourself.")
                columns = {name: value for name, value in columns.items() if name not in fixed}
            if columns:
                _write_row(table, row, columns)
                changed.append(row.pk)
    return changed


def _write_row(table: TextTable, row: TextRow, columns: dict[str, Any]) -> None:
    if table.label == "memories.Memory":
        title, content = (columns.get(name, row.texts.get(name, "")) for name in ("title", "content"))
        columns["content_hash"] = content_hash_of(title, content)
    same = table.model._default_manager.filter(pk=row.pk)
    try:
        with transaction.atomic():
            same.update(**_cut_to_columns(table, columns))
    except IntegrityError:
        # Another row has the same mark where names are unique.
        number = row.pk[-1] if isinstance(row.pk, tuple) else row.pk
        same.update(**_cut_to_columns(table, columns, f" {number}"))


def _cut_to_columns(table: TextTable, columns: dict[str, Any], ending: str = "") -> dict[str, Any]:
    """Columns with texts that are not longer than they may be."""
    fitted = {}
    for name, value in columns.items():
        most = getattr(table.model._meta.get_field(name), "max_length", None)
        if isinstance(value, str) and not name.endswith("_hash"):
            value = f"{value[: most - len(ending)] if most else value}{ending}"
        fitted[name] = value
    return fitted


def _rows_with_copies(table: TextTable, copies: Iterable[str]) -> set[Any]:
    """The keys of rows that hold a piece of a secret: more than those that hold one, and found by the database."""
    # Long ones may be cut off: a piece of their beginning too.
    forms = [form for copy in copies for form in (copy, copy[: _prefix_length(copy)]) if form]
    runs = [_PIECE.findall(form) for form in forms]
    pieces = sorted({max(found, key=len) for found in runs if found})
    texts = " || ' ' || ".join(f"coalesce(\"{name}\"::text, '')" for name in _columns_of(table))
    keys = [str(field.column) for field in table.model._meta.pk_fields]
    rows: set[Any] = set()
    for start in range(0, len(pieces), _PIECES_AT_ONCE):
        pattern = "|".join(pieces[start : start + _PIECES_AT_ONCE])
        statement = f'SELECT {", ".join(keys)} FROM "{table.model._meta.db_table}" WHERE {texts} ~* %s'
        rows.update(row if len(keys) > 1 else row[0] for row in fetch(statement, [pattern]))
    return rows


def _columns_of(table: TextTable) -> list[str]:
    return [str(field.column) for field in table.model._meta.concrete_fields if field.name in table.columns]


def cleaned_texts(texts: Mapping[str, Any], known: Known) -> dict[str, Any]:
    """The texts of a row without the secrets: those that are seen there, and copies of all."""

    def change(text: str) -> str:
        return str(mask_values({"": text}, is_chosen)[0][""])

    def is_chosen(secret: str) -> bool:
        return hash_of(secret) in known.hashes

    read = with_texts_changed(texts, lambda text: known.mask_copies(change(text)))
    masked = mask_values(read, is_chosen)[0]
    cleaned: dict[str, Any] = _each_text(masked, known.mask_copies)
    return dict(texts) if cleaned == texts else _with_title(cleaned, texts)


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_each_text(one, change) for one in value]
    if isinstance(value, Mapping):
        # The words of a term are made again.
        words = {"terms": None} if isinstance(value.get("terms"), str) and "terms_hash" in value else {}
        return {change(key): _each_text(one, change) for key, one in value.items()} | words
    return value


def _with_title(cleaned: dict[str, Any], texts: Mapping[str, Any]) -> dict[str, Any]:
    """The texts with the title made again that comes from the content, and may end within a secret."""
    title, content = texts.get("title"), texts.get("content")
    if not isinstance(title, str) or not isinstance(content, str) or content == cleaned["content"]:
        return cleaned
    return {**cleaned, "title": derived_title(cleaned["content"])} if title == derived_title(content) else cleaned


# --- what depends on texts ------------------------------------------------------------------------------------------


def _refresh(kind: str) -> Callable[[list[Any]], None]:
    def refresh(ids: list[Any]) -> None:
        if kind == "category":
            _paths_rebuild(ids)
        terms_refresh(SEARCHED_KINDS[kind], ids)

    return refresh


def _paths_rebuild(ids: list[int]) -> None:
    """Make the paths of categories, and of those below them, from their names again."""
    for category in Category.objects.filter(pk__in=ids).order_by("depth"):
        before = category.path
        above = category.parent.path + "/" if category.parent else ""
        path = above + slug(category.name)
        if Category.objects.filter(path=path).exclude(pk=category.pk).exists():
            path = f"{path}-{category.pk}"
        execute(
            "UPDATE categories_category SET path = %s || substr(path, %s) WHERE path = %s OR starts_with(path, %s)",
            [path, len(before) + 1, before, f"{before}/"],
        )


def _forbid_undo(ids: list[Any]) -> None:
    """Mark the curations whose changes were purged, so that their undo is refused."""
    curations = set(CurationChange.objects.filter(pk__in=ids).values_list("curation_id", flat=True))
    for curation in Curation.objects.filter(pk__in=curations):
        curation.arguments = {**curation.arguments, "purged": True}
        curation.save(update_fields=["arguments"])


_DEPENDENTS: dict[str, Callable[[list[Any]], None]] = {
    **{label: _refresh(kind) for label, kind in _TERMS.items()},
    "curation.CurationChange": _forbid_undo,
}
