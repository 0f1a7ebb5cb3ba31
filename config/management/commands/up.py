"""`manage.py up`: prepares everything from an empty folder and serves the site. `make run` calls it."""

import contextlib
import hashlib
import logging
import os
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import psutil
from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connection, connections
from django.db.migrations.executor import MigrationExecutor
from django.urls import get_resolver

from access.sign_in import owner_ensure, owner_to_sign_in, sign_in_link, superuser_with_password_exists
from agent_tools import asgi
from agent_tools.claude_mem import worker
from categories.searched_terms import terms_refresh_all
from config.backup import unknown_migrations
from config.backup_schedule import scheduled_backups
from home.found_secrets import look_start
from home.purge import open_purges
from memories import recalls
from memories.embedding.installation import can_install
from memories.embedding.models import missing_packages
from memories.invented_team import SAMPLE
from memories.marks import is_marking_due
from memories.models import Memory, Project
from search.engines.index import follower as indexer
from search.engines.index import store
from search.engines.index.follower import follower_process, wait_until_readable
from search.engines.index.outbox import backlog
from search.warmup import answer_once
from transfer.follow.process import follower_started
from web.command_line import documentation, local_command
from web.processes import SupervisedProcess, limit_heaps, start_once, supervise
from web.serving import CannotListenError, address_file, is_loopback, listen, serve, site_address, stop_signals
from web.version import VERSION

logger = logging.getLogger("mnemoscope.up")

# Seconds that the first page waits for the search index; without it the database answers.
INDEX_SECONDS = 5.0
# An index that is followed lags by a second, or by minutes after very many changes.
ABANDONED_SECONDS = 3600
MOST_WORKERS = 8
SETTING_UP = 4_711_001  # the key of the advisory lock


class Command(BaseCommand):
    help = "Prepare the database and the static files, and serve Mnemoscope until Ctrl-C."
    requires_system_checks: list[str] = []  # they are run below, with those of the database
    stop_requested = threading.Event()
    claude_mem_port: int | None = None

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)")
        parser.add_argument("--port", type=int, default=settings.PORT, help="the port (default: $PORT, or 8000)")
        parser.add_argument(
            "--workers",
            type=int,
            default=settings.WORKERS,
            help="the number of web processes (default: $WORKERS, or 1); more than the machine has cores are of no use",
        )
        parser.add_argument(
            "--claude-mem-port",
            type=int,
            help="also serve claude-mem clients on this port: without a key, for this machine, storing only corpora",
        )
        parser.add_argument(
            "--claude-mem-project",
            action="append",
            metavar="SLUG",
            help="answer claude-mem clients about this project only (may be repeated)",
        )

    def handle(
        self,
        *,
        host: str,
        port: int,
        workers: int = 1,
        claude_mem_port: int | None = None,
        claude_mem_project: list[str] | None = None,
        verbosity: int,
        **options: Any,
    ) -> None:
        for option, number in (("--port", port), ("--claude-mem-port", claude_mem_port)):
            if number is not None and not 1 <= number <= 65535:
                raise CommandError(f"{option} {number} is not a port: give a number from 1 to 65535.")
        if port == claude_mem_port:
            raise CommandError("--claude-mem-port must be another port than --port.")
        if claude_mem_project and claude_mem_port is None:
            raise CommandError("--claude-mem-project needs --claude-mem-port.")
        if not 1 <= workers <= MOST_WORKERS:
            raise CommandError(f"--workers {workers}: give a number from 1 to {MOST_WORKERS}.")
        self.claude_mem_port = claude_mem_port
        worker.projects = tuple(claude_mem_project or ())
        limit_heaps()
        with stop_signals() as self.stop_requested:
            try:
                self.up(host, port, workers, verbosity)
            except KeyboardInterrupt:
                pass
            finally:
                # A second Ctrl-C must not interrupt the shutdown of the database.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                leave_database()
        # From here Ctrl-C ends the process at once, in case it hangs.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        self.say("Stopped.")

    def up(self, host: str, port: int, workers: int, verbosity: int) -> None:
        if not is_loopback(host):
            refuse_open_doors_without_environment(host)
        try:
            listener = listen(host, port)
        except CannotListenError as error:
            raise CommandError(str(error)) from None
        with listener, self.worker_listener() as extra:
            self.check(databases=[DEFAULT_DB_ALIAS])
            with one_at_a_time():
                self.prepare()
            if unknown := set(worker.projects).difference(Project.objects.values_list("slug", flat=True)):
                raise CommandError(f"--claude-mem-project: there is no project {', '.join(sorted(unknown))}.")
            if not is_loopback(host) and not superuser_with_password_exists():
                raise CommandError(
                    f"Listening on {host} gives other machines access, and nobody has a password yet. "
                    f"Create an account first: {local_command('createsuperuser')} (or: changepassword owner)."
                )
            site = site_address(host, port)
            shown = settings.PUBLIC_URL or site
            with (
                shared_metrics(),
                supervise() as start,
                address_file(site),
                scheduled_backups(),
                follower_started(start),
            ):
                self.start_helpers(start)
                for _ in range(workers - 1):
                    # This process is the first.
                    start(web_process(listener, verbosity))
                serve(
                    [listener, *extra],
                    lambda: self.welcome(host, shown),
                    access_log=verbosity >= 2,
                )

    @contextlib.contextmanager
    def worker_listener(self) -> Iterator[list[socket.socket]]:
        """The listening socket for claude-mem's clients, if requested, on this machine only."""
        if self.claude_mem_port is None:
            yield []
            return
        try:
            listener = listen("127.0.0.1", self.claude_mem_port)
        except CannotListenError as error:
            raise CommandError(f"--claude-mem-port: {error}") from None
        with listener:
            asgi.worker_port = self.claude_mem_port
            yield [listener]

    def start_helpers(self, start: Callable[[SupervisedProcess], None]) -> None:
        """Start the processes of the server: the index follower, if the index is used, and the worker."""
        if settings.SEARCH_ENGINE == "tantivy":
            start(follower_process())
            # Only the index is waited for, not the embedding.
            wait_until_readable(INDEX_SECONDS)
        else:
            drop_unread_index()
        missing = missing_packages(settings.EMBEDDING_MODEL)
        if missing and not can_install():
            where = documentation("embeddings.md")
            self.say(f"Searching by words only: {missing}. {where} explains how to search by meaning too.")
        else:
            if missing:
                self.say("Search by meaning is being installed meanwhile; until it is there, words find.")
            start(SupervisedProcess(["worker", "--skip-checks"], "Nothing is embedded"))
        if open_purges():
            # It was interrupted.
            look_start()

        if is_marking_due():
            start_once(["mark_memories"])

    def prepare(self) -> None:
        executor = MigrationExecutor(connection)
        if unknown := unknown_migrations(executor.loader.applied_migrations):
            raise CommandError(
                f"A later Mnemoscope than this one ({VERSION}) has used this database, and changed it in ways that "
                f"this one does not know ({', '.join(sorted(unknown)[:3])}). Start that version or a later one; to go "
                "back, restore a backup that this version made into another MNEMOSCOPE_HOME."
            )
        if pending := executor.migration_plan(executor.loader.graph.leaf_nodes()):
            self.say(f"Bringing the database up to date ({len(pending)} migrations) …")
            call_command("migrate", interactive=False, verbosity=0)
            # A migration may have added columns of search terms, which only a worker would fill.
            terms_refresh_all()
        if collect_static():
            self.say("Collected the static files.")
        if not Memory.objects.exists():
            self.say("The database is empty: loading the sample …")
            self.load_sample()
        owner_ensure()

    def load_sample(self) -> None:
        try:
            # Its report is a table.
            call_command("import_memories", str(SAMPLE), stdout=StringIO() if settings.LOG_FORMAT == "json" else None)
        except Exception as error:  # whatever it is, an empty explorer is better than none
            if self.stop_requested.is_set():
                raise KeyboardInterrupt from None
            self.stderr.write(
                self.style.WARNING(
                    f"The sample could not be loaded: {error}\n"
                    f"Mnemoscope works without it. To try again: {local_command(f'import_memories {SAMPLE}')}"
                )
            )

    def welcome(self, host: str, site: str) -> None:
        warm_up()
        user = owner_to_sign_in()
        # A sign-in link must not appear in the logs of a server that others can reach, nor where logs are collected.
        if not is_loopback(host) or user is None or settings.LOG_FORMAT == "json":
            self.say(f"\nMnemoscope is ready at {site}/\nStop it with Ctrl-C.")
            if user is None:
                self.say(f"There is no superuser. Create one: {local_command('createsuperuser')}")
        else:
            self.say(
                "\nMnemoscope is ready. This link signs you in once, within an hour:\n\n"
                f"    {sign_in_link(user=user, site=site)}\n\n"
                f"Stop it with Ctrl-C. For another link: {local_command('sign_in_link')}"
            )
        connections.close_all()

    def say(self, text: str) -> None:
        if settings.LOG_FORMAT == "json":
            logger.info("%s", text.strip())
            return
        self.stdout.write(text)
        self.stdout.flush()  # readers of a pipe wait for the link


def leave_database() -> None:
    """Store what waits, close all connections, and stop the embedded Postgres if no other process uses it."""
    recalls.store_now()
    connections.close_all()
    # Not at exit of the interpreter: it waits for the threads of requests, which wait for the database.
    if leave := getattr(getattr(connection, "server", None), "leave", None):
        leave()


def web_process(listener: socket.socket, verbosity: int) -> SupervisedProcess:
    """A further process that serves the connections of a listener."""
    arguments = ["serve", "--listener", str(listener.fileno()), "--verbosity", str(verbosity)]
    return SupervisedProcess(arguments, "A web process is missing", inherits=[listener])


def warm_up() -> None:
    """Load the code and data of the first page before it is requested."""
    with contextlib.suppress(DatabaseError):
        get_resolver().url_patterns  # noqa: B018 - reading them imports every view
        answer_once()


def drop_unread_index() -> None:
    """Drop an index that nothing follows: its outbox would grow, and its contents become stale.

    The index of another server, of this HOME or another machine, is left alone.
    """
    if (store.index_dir() / "current").exists() or backlog(1).seconds > ABANDONED_SECONDS:
        with contextlib.suppress(store.WriterElsewhereError):
            indexer.drop()


def refuse_open_doors_without_environment(host: str) -> None:
    missing = [] if os.environ.get("SECRET_KEY") else ["SECRET_KEY"]
    missing += [] if os.environ.get("PUBLIC_URL") or os.environ.get("ALLOWED_HOSTS") else ["PUBLIC_URL"]
    if missing:
        raise CommandError(
            f"Listening on {host} gives other machines access. Set {' and '.join(missing)} in the environment first: "
            "SECRET_KEY is a long random text, PUBLIC_URL the address of the site, such as https://memories.example. "
            f"A superuser with a password is also needed: {local_command('createsuperuser')}. "
            "For this machine alone leave --host out."
        )


@contextlib.contextmanager
def shared_metrics() -> Iterator[None]:
    """A folder in which the processes of this server add up their metrics, if these are on.

    Its name is the id of this process, so that the folder of a server that was killed is removed by the next one.
    """
    if not settings.METRICS_TOKEN:
        yield
        return
    folder = Path(settings.HOME) / "metrics" / str(os.getpid())
    for left in folder.parent.glob("*"):
        if left == folder or (left.name.isdigit() and not psutil.pid_exists(int(left.name))):
            shutil.rmtree(left, ignore_errors=True)
    folder.mkdir(parents=True)
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Serialise servers that migrate and load the sample.

    The lock belongs to a transaction on its own connection, so that it also works behind a transaction pooler.
    """
    gate = connections.create_connection(DEFAULT_DB_ALIAS)
    try:
        gate.set_autocommit(False)
        with gate.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [SETTING_UP])
        yield
    finally:
        gate.rollback()
        gate.close()


def collect_static() -> bool:
    """Collect, hash and compress the static files, if they have changed. Returns whether they had."""
    if settings.DEBUG:  # they are served from where they lie
        return False
    stamp = Path(settings.STATIC_ROOT) / ".collected"
    state = static_files_state()
    if stamp.exists() and stamp.read_text() == state:
        return False
    stamp.unlink(missing_ok=True)
    # Clear the folder first: collectstatic would keep files that look newer than their sources.
    call_command("collectstatic", interactive=False, clear=True, verbosity=0)
    stamp.write_text(state)
    return True


def static_files_state() -> str:
    """A digest of names, sizes and times, which changes with the files or the packages that contain them."""
    digest = hashlib.sha256(settings.STORAGES["staticfiles"]["BACKEND"].encode())
    for finder in get_finders():
        for name, storage in finder.list([]):
            found = Path(storage.path(name)).stat()
            digest.update(f"{name}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    return digest.hexdigest()
