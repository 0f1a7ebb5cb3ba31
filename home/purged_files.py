"""Files of this server that a purge changes: logs, uploads, the search index, and those of Postgres."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, connection

from cluster import is_distributed
from search.engines.index import follower, store
from search.engines.segment_files import DamagedError, NotReadableError
from transfer.jobs import JobStateError, job_forget_file, job_remove
from transfer.models import ImportJob

# Folders of the home whose files a purge makes again, or that hold nothing of memories.
_OTHERWISE = ("postgres", "index", "static", "static-bundles", "secret_rules", "backups")
# The key of this site, which no mark can replace.
_OWN_KEY = "secret_key"
_LARGEST = 256 * 1024**2
_ARCHIVES = (b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"(\xb5/\xfd")
_INDEX_SECONDS = 3600
_LOCK_SECONDS = 60
_MOST_SEGMENTS = 2_000


def files_purge(masked: Callable[[str], str], copies: Sequence[str]) -> list[str]:
    """Mask the secrets in the files of the home, and remove uploads that hold one. Returns what is left."""
    wanted = [copy.encode() for copy in copies]
    left: list[str] = []
    for path in _own_files():
        if path.stat().st_size > _LARGEST:
            left.append(f"{path} is too large to be looked through.")
            continue
        data = path.read_bytes()
        if "uploads" in path.relative_to(settings.HOME).parts and data.startswith(_ARCHIVES):
            left.append(f"The upload {path.name} is an archive, and may hold them: import it, or remove it.")
        lowered = data.lower()
        if not any(copy in lowered for copy in wanted):
            continue
        if path.name.startswith(_OWN_KEY):
            left.append(
                f"The key of this site, {path.name}, is one of them: stop the site and remove it. It makes another."
            )
        else:
            left += _file_purge(path, data, masked)
    return left + [f"The backup {path.name} may hold them: remove it, and make another one." for path in backup_files()]


def backup_files() -> list[Path]:
    """The files in the folder of backups, which keep what they have."""
    folder = Path(settings.BACKUP_FOLDER)
    return sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []


def _own_files() -> Iterator[Path]:
    home = Path(settings.HOME)
    for top in sorted(home.iterdir()):
        if top.name in _OTHERWISE:
            continue
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and not path.is_symlink():
                yield path


def _file_purge(path: Path, data: bytes, masked: Callable[[str], str]) -> list[str]:
    """Mask the secrets in a text, or remove the upload. Returns what is left."""
    if "uploads" in path.relative_to(settings.HOME).parts:
        return _upload_purge(path)
    text = masked(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    # In place, since a server may be writing to it.
    with path.open("r+b") as file:
        file.write(text)
        file.truncate()
    return []


def _upload_purge(path: Path) -> list[str]:
    for job in ImportJob.objects.filter(is_upload=True):
        if not path.is_relative_to(Path(job.path).parent):
            continue
        with suppress(JobStateError):
            job_remove(job=job)
            return [f"The upload {job.name} held some, and was removed."]
        if job.is_busy:
            return [f"The upload {job.name} is being imported: its file is removed after that."]
        job_forget_file(job)
    path.unlink(missing_ok=True)
    return []


# --- the search index -----------------------------------------------------------------------------------------------


def index_rebuild() -> list[str]:
    """Build the search index and the replica of the vectors again, without the old files. Returns what is left."""
    before = _generation()
    if before is None:
        return []
    try:
        follower.rebuild()
    except store.WriterElsewhereError:
        # The process that keeps it up to date builds it, and removes the old one.
        store.request_rebuild("secrets were purged")
        until = time.monotonic() + _INDEX_SECONDS
        while _generation() == before or len(_generations()) > 1:
            if time.monotonic() > until:
                return ["The search index is still being built again; its old files are removed after that."]
            time.sleep(0.2)
    return []


def _generation() -> str | None:
    with suppress(NotReadableError, DamagedError):
        return store.current_generation().name
    return None


def _generations() -> list[Path]:
    return list((Path(settings.HOME) / "index").glob("g-*"))


# --- Postgres ---------------------------------------------------------------------------------------------------------


def tables_rewrite(tables: Sequence[str]) -> list[str]:
    """Write tables again, so that no file holds their earlier rows, and let the log of changes begin after that.

    Returns what is left. Each table is locked while it is written.
    """
    if is_distributed():
        return ["A distributed Postgres keeps earlier rows until each server is vacuumed: VACUUM FULL there."]
    left = []
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = '{_LOCK_SECONDS}s'")
        cursor.execute("SET statement_timeout = 0")
        for table in (*tables, "django_session", "pg_catalog.pg_statistic"):
            name = table if "." in table else f'"{table}"'
            try:
                cursor.execute(f"VACUUM (FULL, ANALYZE) {name}")
            except DatabaseError as error:
                left.append(f"The table {table} was not written again, and may hold earlier rows: {error}".strip())
        try:
            _begin_log_again()
        except DatabaseError as error:
            left.append(f"The write-ahead log of Postgres keeps earlier changes for some time: {error}".strip())
        cursor.execute("RESET lock_timeout")
        cursor.execute("RESET statement_timeout")
    return left


def _begin_log_again() -> None:
    """Write on until no file of the write-ahead log is left that was there before."""
    with connection.cursor() as cursor, _log_not_recycled():
        cursor.execute("SELECT name FROM pg_ls_waldir()")
        before = {name for (name,) in cursor.fetchall()}
        for _ in range(_MOST_SEGMENTS):
            cursor.execute("SELECT pg_logical_emit_message(false, 'mnemoscope', 'purge')")
            cursor.execute("SELECT pg_switch_wal()")
            cursor.execute("CHECKPOINT")
            cursor.execute("SELECT name FROM pg_ls_waldir()")
            if before.isdisjoint(name for (name,) in cursor.fetchall()):
                return


@contextmanager
def _log_not_recycled() -> Iterator[None]:
    """Have Postgres remove files of its log instead of using them again, which leaves their ends as they are."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER SYSTEM SET wal_recycle = off")
        cursor.execute("SELECT pg_reload_conf()")
        try:
            # Those who write checkpoints read it in a moment.
            time.sleep(0.5)
            yield
        finally:
            cursor.execute("ALTER SYSTEM RESET wal_recycle")
            cursor.execute("SELECT pg_reload_conf()")
