"""Secrets that were stored before the scanner was there, or while it was off: of what kinds, where, and how often read.

A secret is known by a hash with the key of this site. Of the secret itself only the last two characters are stored,
shown or logged. A look reads all texts of the database, a hundred rows at a time.
"""

import contextlib
import fcntl
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils import timezone

from access.models import AuditEvent
from access.viewer import Viewer, audit
from home.stored_texts import TextRow, TextTable, opened, text_rows, text_tables
from memories.models import Corpus, Memory, Project, Recall
from memories.reads import readers_of, reads_of
from search.engines.segment_files import replace_file
from text.secrets import secrets_in
from web.errors import Refusal
from web.processes import start_once

ALLOW, DISALLOW = "secret_allow", "secret_disallow"
_PLACES_NAMED = 20
_MEMORIES_OF_ONE = 1_000
_MOST_FOUND = 100_000
_MOST_STORED = 2_000
# Readers of a secret that are named.
_READERS = 10
_SHOW_SECONDS = 1.0
_HASH_LENGTH = 16

Progress = Callable[[str, int, int], None]


class SecretsForbiddenError(Refusal):
    """Only those who administer every project see where secrets are."""

    status = 403
    code = "forbidden"
    message = "Only administrators of every project see and purge secrets."
    suggestion = "Ask an administrator of this site."


class SecretsBusyError(Refusal):
    """Another process looks for secrets, or purges some."""

    status = 409
    code = "busy"
    message = "Another process looks for secrets or purges some."
    suggestion = "Try again when it has ended."


@dataclass(frozen=True, slots=True)
class SecretPlace:
    """A row that holds a secret: the word for it, its number, its columns, and the memory that it is about."""

    word: str
    id: str
    columns: tuple[str, ...]
    memory_id: int | None = None
    project: str = ""


@dataclass(slots=True)
class FoundSecret:
    """A secret, wherever it is stored. `id` is its hash, `mark` its kind and its last characters."""

    id: str
    kind: str
    mark: str
    rows: int = 0
    since: str = ""
    places: list[SecretPlace] = field(default_factory=list)
    reads: int = 0
    reads_by_agents: int = 0
    last_read: str = ""
    readers: list[str] = field(default_factory=list)
    """Whoever the log of reads names, the last reader first."""
    memory_ids: set[int] = field(default_factory=set)

    def as_json(self) -> dict[str, Any]:
        values = asdict(self)
        values["memory_ids"] = sorted(self.memory_ids)
        return values


@dataclass(slots=True)
class SecretsLook:
    """All that one look has found. `rows` are those that were read; those of `more` secrets are not listed."""

    at: str
    project: str = ""
    rows: int = 0
    more: int = 0
    allowed: int = 0
    found: dict[str, FoundSecret] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        listed = sorted(self.found.values(), key=lambda one: (-one.rows, one.mark, one.id))
        return {
            "at": self.at,
            "project": self.project,
            "rows": self.rows,
            "allowed": self.allowed,
            "more": self.more + max(len(listed) - _MOST_STORED, 0),
            "secrets": [one.as_json() for one in listed[:_MOST_STORED]],
        }


Seen = Callable[[TextTable, TextRow, str, str, str], None]
"""Is given each secret with its row: the hash, the mark and the secret itself."""


def hash_of(secret: str) -> str:
    """The hash by which a secret is known on this site, whatever its case: tags have others."""
    digest = hmac.new(settings.SECRET_KEY.encode(), b"secret:" + secret.lower().encode(), hashlib.sha256)
    return digest.hexdigest()[:_HASH_LENGTH]


def check_may_administer(viewer: Viewer) -> None:
    if viewer.project_ids is not None or "admin" not in viewer.scopes:
        raise SecretsForbiddenError


def look_for_secrets(
    *, project: str = "", progress: Progress = lambda word, done, total: None, seen: Seen | None = None
) -> SecretsLook:
    """Read all texts, or those about one project, and list the secrets in them that are not allowed."""
    look = SecretsLook(timezone.now().isoformat(), project)
    allowed, slugs = allowed_hashes(), dict(Project.objects.values_list("pk", "slug"))
    chosen = Project.objects.get(slug=project).pk if project else None
    known_allowed: set[str] = set()
    for table in text_tables():
        rows = None if chosen is None else table.of_project(chosen)
        if chosen is not None and rows is None:
            continue
        for row in _rows_with_progress(table, text_rows(table, rows), look, progress):
            for kind, mark, secret in secrets_in(opened(row.texts)):
                known = hash_of(secret)
                if known in allowed:
                    known_allowed.add(known)
                    continue
                _add_found(look, table, row, FoundSecret(known, kind, mark))
                if seen is not None:
                    seen(table, row, known, mark, secret)
    look.allowed = len(known_allowed)
    _add_projects(look, slugs)
    _add_reads(look)
    return look


def _rows_with_progress(
    table: TextTable, rows: Iterator[TextRow], look: SecretsLook, progress: Progress
) -> Iterator[TextRow]:
    """The rows, with their progress reported from time to time."""
    total, shown = 0, time.monotonic()
    for done, row in enumerate(rows, start=1):
        yield row
        look.rows += 1
        if time.monotonic() - shown > _SHOW_SECONDS:
            total = total or table.model._default_manager.count()
            progress(table.word, done, total)
            shown = time.monotonic()


def _add_found(look: SecretsLook, table: TextTable, row: TextRow, one: FoundSecret) -> None:
    if one.id not in look.found and len(look.found) >= _MOST_FOUND:
        look.more += 1
        return
    known = look.found.setdefault(one.id, one)
    number = str(row.pk[-1] if isinstance(row.pk, tuple) else row.pk)
    place = (table.word, number, row.memory_id)
    if known.places and (known.places[-1].word, known.places[-1].id, known.places[-1].memory_id) == place:
        return
    known.rows += 1
    if row.memory_id is not None and len(known.memory_ids) < _MEMORIES_OF_ONE:
        known.memory_ids.add(row.memory_id)
    if row.at is not None:
        at = row.at.isoformat()
        known.since = min(known.since or at, at)
    if len(known.places) < _PLACES_NAMED:
        columns = tuple(name for name, value in row.texts.items() if _holds(name, value, known.id))
        known.places.append(SecretPlace(table.word, number, columns, row.memory_id))


def _holds(name: str, value: Any, known: str) -> bool:
    return any(hash_of(secret) == known for _, _, secret in secrets_in(opened({name: value})))


def _add_projects(look: SecretsLook, slugs: dict[int, str]) -> None:
    """Name the projects of the memories in whose rows secrets are."""
    ids = {place.memory_id for one in look.found.values() for place in one.places if place.memory_id is not None}
    projects = dict(Memory.objects.filter(pk__in=ids).values_list("pk", "project_id"))
    for one in look.found.values():
        one.places = [
            SecretPlace(
                place.word, place.id, place.columns, place.memory_id, slugs.get(projects.get(place.memory_id, 0), "")
            )
            if place.memory_id is not None
            else place
            for place in one.places
        ]


def _add_reads(look: SecretsLook) -> None:
    """Count how often memories with a secret were read back, and when last; and name who read them."""
    ids = set().union(*(one.memory_ids for one in look.found.values()))
    recalls = Recall.objects.in_bulk(ids) if ids else {}
    for one in look.found.values():
        for recall in (recalls[pk] for pk in one.memory_ids if pk in recalls):
            one.reads += recall.total
            one.reads_by_agents += recall.by_agents
            one.last_read = max(one.last_read, recall.last_at.isoformat())
    for one in list(look.found.values())[:_MOST_STORED]:
        if one.memory_ids:
            # Those that certainly gave it: of a large export, not every id is stored.
            reads = reads_of(one.memory_ids).filter(memory_ids__overlap=list(one.memory_ids))
            one.readers = [reader.name for reader in readers_of(reads)[:_READERS]]


# --- false marks --------------------------------------------------------------------------------------------------


def allowed_hashes() -> set[str]:
    """The hashes of what is no secret, such as a credential in an example. The audit trail has who said so."""
    allowed: set[str] = set()
    # auditevent_subject_idx
    said = AuditEvent.objects.filter(subject_type="corpus", verb__in=(ALLOW, DISALLOW)).order_by("pk")
    for event in said:
        hashes = (event.after or {}).get("hashes", ())
        allowed = allowed.union(hashes) if event.verb == ALLOW else allowed.difference(hashes)
    return allowed


def secrets_allow(*, hashes: Collection[str], viewer: Viewer, again: bool = False) -> None:
    """List some marks no longer, since they are false; or `again`. Only hashes are stored."""
    check_may_administer(viewer)
    if hashes:
        corpus = Corpus.objects.get_or_create(pk=1)[0]
        audit(viewer, DISALLOW if again else ALLOW, corpus, after={"hashes": sorted(hashes)})


# --- the last look --------------------------------------------------------------------------------------------------


def _stored_look() -> Path:
    return Path(settings.HOME) / "secrets-found.json"


def store_look(look: SecretsLook) -> None:
    """Keep what a look has found, for the page. There is no secret in it."""
    replace_file(_stored_look(), json.dumps(look.as_json()))


def read_look() -> dict[str, Any] | None:
    """The last look that was stored, without what was allowed since; None if there is none."""
    try:
        stored: dict[str, Any] = json.loads(_stored_look().read_text())
    except (OSError, ValueError):
        return None
    allowed = allowed_hashes()
    stored["secrets"] = [one for one in stored["secrets"] if one["id"] not in allowed]
    return stored


def store_progress(word: str, done: int, total: int) -> None:
    """Keep how far the look is that runs, for the page."""
    values = {"word": word, "done": done, "total": total, "at": datetime.now(UTC).isoformat()}
    replace_file(Path(settings.HOME) / "secrets-progress.json", json.dumps(values))


def read_progress() -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((Path(settings.HOME) / "secrets-progress.json").read_text())
    except (OSError, ValueError):
        return {}
    return found


@contextlib.contextmanager
def secrets_alone() -> Iterator[None]:
    """Hold the lock of the only process that looks for secrets or purges some. Raises SecretsBusyError."""
    with (Path(settings.HOME) / "secrets.lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SecretsBusyError from None
        yield


def is_looking() -> bool:
    """Whether a process looks for secrets or purges some."""
    try:
        with secrets_alone():
            return False
    except SecretsBusyError:
        return True


def look_start() -> None:
    """Start the process that does what was asked for on the page, unless it runs: purges first, then a look."""
    if not is_looking():
        start_once(["find_secrets", "--asked"])
