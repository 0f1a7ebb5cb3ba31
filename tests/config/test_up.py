"""`manage.py up` as a user meets it: a process of its own, a home of its own, signals, and a browser's requests."""

import contextlib
import http.cookiejar
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from datetime import timedelta
from pathlib import Path

import psutil
import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db.models.functions import Now

from access.keys import key_hash
from config.management.commands import up
from memories.models import Memory, OutboxEntry, Project
from search.engines.index import follower as indexer
from search.engines.index import outbox, store
from tests.config.conftest import folder_for_a_server
from web import serving

ROOT = Path(__file__).resolve().parent.parent.parent
LINK = re.compile(r"http://\S+/sign-in/\?token=\S+")


class Up:
    """One run of `manage.py up`."""

    def __init__(self, home, port, *arguments, **environment):
        self.home, self.port = home, port
        inherited = {k: v for k, v in os.environ.items() if k not in {"DATABASE_URL", "SECRET_KEY", "ALLOWED_HOSTS"}}
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "up", *arguments],
            cwd=ROOT,
            env={
                **inherited,
                "DJANGO_SETTINGS_MODULE": "config.settings",
                "MNEMOSCOPE_HOME": str(home),
                "PORT": str(port),
                "EMBEDDING_MODEL": "hashed-words",
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )
        self.output = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        # Closed meanwhile, where what a killed run has left behind still holds the other end.
        with contextlib.suppress(ValueError):
            for line in self.process.stdout:
                self.output += line

    def link(self):
        """The link it prints, once it has."""
        return self.wait_for(LINK).group()

    def wait_for(self, pattern, seconds=60):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if found := re.search(pattern, self.output):
                return found
            if self.process.poll() is not None and not self._reader.is_alive():
                break
            time.sleep(0.02)
        raise AssertionError(f"{pattern} was not printed:\n{self.output}")

    def helpers(self):
        """The child processes of the server, each with its parent's id."""
        return [process for process in psutil.Process(self.process.pid).children() if "--with-parent" in words(process)]

    def followers(self):
        """The processes that it started to keep the search index."""
        return [process for process in psutil.Process(self.process.pid).children() if is_follower(process)]

    def follower(self, other_than=None):
        """The one that keeps the search index, once it does."""
        return eventually(lambda: next((one for one in self.followers() if one != other_than), None))

    def index_state(self):
        """The server's status of its search index, for a key that is there from the first time on."""
        key = f"mnk_{'w' * 40}"
        query(
            self.home,
            "INSERT INTO access_apikey (name, prefix, key_hash, scopes, every_project, created_at) VALUES"
            f" ('watcher', '{key[:12]}', '{key_hash(key)}', ARRAY['read'], true, now()) ON CONFLICT DO NOTHING",
        )
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/api/health", headers={"X-API-Key": key})
        with urllib.request.build_opener().open(request, timeout=60) as response:
            return json.load(response)["index"]["state"]

    def total(self, key):
        """The number of memories that a search without words finds."""
        headers = {"Authorization": f"Bearer {key}"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/api/search", headers=headers)
        with urllib.request.build_opener().open(request, timeout=60) as response:
            return json.load(response)["total"]

    def end(self, number, seconds=60):
        """Send a signal, as the terminal does to the whole group, and wait for the end; returns the exit code."""
        if number == signal.SIGINT:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)
        code = self.process.wait(seconds)
        self._reader.join(5)
        # While something that a killed run has left behind holds the other end, this would wait for it.
        if not self._reader.is_alive():
            self.process.stdout.close()
        return code


@pytest.fixture
def home(server_folder):
    place = server_folder / "home"
    yield place
    for process in postgres_of(place):
        process.kill()


@pytest.fixture(scope="module")
def prepared():
    """A home that a run has prepared: its database with the sample, its static files and its index."""
    with folder_for_a_server() as folder:
        run = Up(folder / "home", free_port())
        try:
            run.link()
            eventually(lambda: run.index_state() == "ready")
        finally:
            run.end(signal.SIGTERM)
        yield run.home


@pytest.fixture
def prepared_home(home, prepared):
    # The files of the database have another owner.
    subprocess.run(["cp", "-a", str(prepared), str(home)], check=True)
    return home


@pytest.fixture
def runs(home):
    """Starts runs; what a failed test leaves of them is ended."""
    started = []
    # A run under nohup would pass this on, which some of these tests are about.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

    def start(port, *arguments, **environment):
        started.append(Up(home, port, *arguments, **environment))
        return started[-1]

    yield start
    for run in started:
        if run.process.poll() is None:
            run.end(signal.SIGKILL)
        with contextlib.suppress(OSError):
            run.process.stdout.close()


def postgres_of(home):
    found = []
    for process in psutil.process_iter(["name"]):
        try:
            if process.info["name"].startswith("postgres") and Path(process.cwd()) == home / "postgres":
                found.append(process)
        except psutil.Error:
            continue
    return found


def is_follower(process):
    return "--follow" in words(process)


def words(process):
    """Its command line; nothing of one that is gone."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def query(home, statement):
    """Ask the database of a home, which runs."""
    lines = (home / "postgres" / "postmaster.pid").read_text().splitlines()
    with psycopg.connect(host=lines[4], port=lines[3], user="postgres", dbname="mnemoscope") as asked:
        found = asked.execute(statement)
        return found.fetchone()[0] if found.description else None


def command(home, *arguments, fails=False, **environment):
    """The output of a command in a home, or the complaint of one that fails."""
    inherited = {name: value for name, value in os.environ.items() if name not in {"DATABASE_URL", "SECRET_KEY"}}
    told = {"DJANGO_SETTINGS_MODULE": "config.settings", "MNEMOSCOPE_HOME": str(home), **environment}
    run = subprocess.run(
        [sys.executable, "manage.py", *arguments], cwd=ROOT, env={**inherited, **told}, capture_output=True, text=True
    )
    assert (run.returncode != 0) == fails, run.stderr
    return run.stderr if fails else run.stdout


def open_to_others(home):
    """Paths that other users of the machine may read or write. Passing through a folder is allowed as root."""
    rights = 0o066 if os.geteuid() == 0 else 0o077
    return [
        path
        for path in (home, *home.rglob("*"))
        if not path.is_symlink() and path.stat().st_mode & (rights if path.is_dir() else 0o077)
    ]


def outbox_of(home):
    return query(home, "SELECT count(*) FROM memories_outbox")


def change_a_title(home):
    query(home, "UPDATE memories_memory SET title = title || '!' WHERE id = (SELECT min(id) FROM memories_memory)")


def eventually(look, seconds=30):
    """The first result of a look that is not empty."""
    until = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < until, "it never came"
        time.sleep(0.05)
    return found


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def open_in_browser(link):
    """Follow the link with cookies, as a browser does: the address it ends at, and the page."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    with browser.open(link, timeout=60) as response:
        return response.url, response.read().decode()


def test_from_an_empty_home_through_kills_to_a_clean_stop(runs, home):
    port = free_port()
    first = runs(port)
    link = first.link()
    assert link.startswith(f"http://127.0.0.1:{port}/")
    assert len(LINK.findall(first.output)) == 1
    address, _ = open_in_browser(link)
    assert address == f"http://127.0.0.1:{port}/"
    assert [path.read_text() for path in home.glob("address.*")] == [f"http://127.0.0.1:{port}"]
    assert command(home, "sign_in_link").startswith(f"http://127.0.0.1:{port}/sign-in/?token=")
    eventually(lambda: first.index_state() == "ready")

    # Somebody pulls the plug: of the server and what runs beside it, then of the database with all in it.
    head = int((home / "postgres" / "postmaster.pid").read_text().split()[0])
    helpers = eventually(lambda: first.helpers() if len(first.helpers()) == 2 else None)
    for helper in helpers:
        helper.suspend()
    assert first.end(signal.SIGKILL) == -signal.SIGKILL
    for helper in helpers:
        with contextlib.suppress(psutil.NoSuchProcess):  # what is suspended and orphaned may end by itself
            helper.kill()
    assert postgres_of(home)
    os.kill(head, signal.SIGKILL)
    # The address that it left behind is not that of a server.
    assert list(home.glob("address.*"))
    assert command(home, "sign_in_link", PORT="9").startswith("http://127.0.0.1:9/")

    second = runs(port)
    link_after = second.link()
    assert second.index_state() == "ready"
    assert "Collected" not in second.output
    assert "empty" not in second.output
    assert open_in_browser(link_after)[0] == f"http://127.0.0.1:{port}/"
    with pytest.raises(urllib.error.HTTPError, match="403"):
        open_in_browser(link)  # its one use was in the first run

    helpers = second.helpers()
    assert second.end(signal.SIGINT) == 0
    assert not any(helper.is_running() for helper in helpers)
    assert "Traceback" not in first.output + second.output
    assert second.output.endswith("Stopped.\n")
    assert postgres_of(home) == []
    assert list(home.glob("address*")) == []
    assert open_to_others(home) == []


@pytest.mark.release
def test_home_that_a_later_version_has_used_is_refused_with_what_to_do(prepared_home):
    later = "INSERT INTO django_migrations (app, name, applied) VALUES ('memories', '0999_of_tomorrow', now())"
    script = f"from django.db import connection; connection.cursor().execute({later!r})"
    command(prepared_home, "shell", "--command", script)
    complaint = command(prepared_home, "up", "--port", str(free_port()), fails=True)
    assert "A later Mnemoscope than this one" in complaint
    assert "memories.0999_of_tomorrow" in complaint
    assert "restore a backup that this version made" in complaint


@pytest.mark.release
def test_home_that_others_may_read_is_closed_to_them(prepared_home):
    """As an earlier version left it."""
    for path in (prepared_home, *prepared_home.rglob("*")):
        if path != prepared_home / "postgres" and prepared_home / "postgres" not in path.parents:
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert prepared_home / "index" / "lock" in open_to_others(prepared_home)
    command(prepared_home, "list_api_keys")
    assert open_to_others(prepared_home) == []
    assert postgres_of(prepared_home) == []


@pytest.mark.release
def test_two_servers_share_a_home_and_the_last_one_stops_the_database(runs, prepared_home):
    one, other = runs(free_port()), runs(free_port())
    one.link()
    other.link()
    # One of the two keeps the index for both; the other waits to take its place.
    # A server waits for it as long as a visitor would, and no longer: then the database answers until it is there.
    eventually(lambda: [one.index_state(), other.index_state()] == ["ready", "ready"])
    followers = [one.follower(), other.follower()]
    assert one.end(signal.SIGTERM) == 0
    assert open_in_browser(f"http://127.0.0.1:{other.port}/sign-in/")[0].endswith("/sign-in/")
    change_a_title(prepared_home)
    eventually(lambda: outbox_of(prepared_home) == 0)
    # An index that none of its own servers reads is left to the others.
    third = runs(free_port(), SEARCH_ENGINE="postgres")
    third.link()
    assert (third.index_state(), third.followers(), other.index_state()) == ("off", [], "ready")
    assert third.end(signal.SIGTERM) == 0
    change_a_title(prepared_home)
    eventually(lambda: outbox_of(prepared_home) == 0)
    assert other.end(signal.SIGHUP) == 0
    assert not any(follower.is_running() for follower in followers)
    assert postgres_of(prepared_home) == []
    assert "Traceback" not in one.output + other.output
    assert len(LINK.findall(one.output + other.output)) == 2


@pytest.mark.release
def test_index_is_kept_through_kills_and_left_with_the_server(runs, prepared_home):
    first = runs(free_port())
    first.link()
    eventually(lambda: first.index_state() == "ready")

    # A killed process is restarted, and continues where it was.
    killed = first.follower()
    killed.kill()
    second = first.follower(other_than=killed)
    change_a_title(prepared_home)
    eventually(lambda: outbox_of(prepared_home) == 0)
    assert first.index_state() == "ready"

    # No one is left behind by a server that had no time to end it, and the last one out stops the database.
    assert first.end(signal.SIGKILL) == -signal.SIGKILL
    second.wait(20)
    eventually(lambda: not postgres_of(prepared_home))

    # Without a reader the index is dropped, and nothing is recorded for it.
    third = runs(free_port(), SEARCH_ENGINE="postgres")
    third.link()
    assert (third.index_state(), third.followers()) == ("off", [])
    assert sorted(path.name for path in (prepared_home / "index").iterdir()) == ["lock"]
    change_a_title(prepared_home)
    assert outbox_of(prepared_home) == 0
    assert third.end(signal.SIGTERM) == 0
    assert "Traceback" not in first.output + third.output
    assert postgres_of(prepared_home) == []


@pytest.mark.release
def test_web_processes_share_a_port_and_one_model_and_killed_ones_are_replaced(runs, prepared_home):
    run = runs(free_port(), "--workers", "2")
    run.link()
    key = command(prepared_home, "create_api_key", "agent", "-v", "0").strip()

    def helper(name, other_than=None):
        return eventually(lambda: next((p for p in run.helpers() if name in words(p) and p != other_than), None))

    def answers(path):
        headers = {"Authorization": f"Bearer {key}"}
        request = urllib.request.Request(f"http://127.0.0.1:{run.port}/{path}", headers=headers)
        with urllib.request.build_opener().open(request, timeout=60) as response:
            return json.load(response)

    def searches_by_meaning():
        return answers("api/health")["embeddings"]["ready"]

    eventually(searches_by_meaning)
    # The worker alone has the model.
    worker = helper("worker")
    worker.kill()
    eventually(lambda: not searches_by_meaning())
    assert helper("worker", other_than=worker)
    eventually(searches_by_meaning)

    # Each of the two serves alone.
    web, main = helper("serve"), psutil.Process(run.process.pid)
    eventually(lambda: any(c.status == "LISTEN" for c in web.net_connections()))
    for one in (main, web):
        one.suspend()
        assert {answers("healthz")["status"] for _ in range(3)} == {"live"}
        one.resume()
    web.kill()
    assert {answers("readyz")["status"] for _ in range(10)} == {"ready"}
    successor = helper("serve", other_than=web)
    helpers = run.helpers()
    assert run.end(signal.SIGINT) == 0
    assert not successor.is_running()
    assert not any(one.is_running() for one in helpers)
    assert "Traceback" not in run.output
    assert postgres_of(prepared_home) == []


@pytest.mark.release
def test_what_was_stored_is_found_by_the_next_search_while_the_follower_restarts(runs, prepared_home):
    run = runs(free_port())
    run.link()
    eventually(lambda: run.index_state() == "ready")
    key = command(prepared_home, "create_api_key", "agent", "--scopes", "read,write", "-v", "0").strip()

    def call(path, body=None):
        data = body and json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{run.port}/api/{path}", data, headers)
        with urllib.request.build_opener().open(request, timeout=60) as response:
            return json.load(response)

    seen = []
    for word in ("samovar", "percolator", "cezve"):
        eventually(run.followers)[0].kill()
        call("memories", {"content": f"A {word} is on the stove.", "project": "kitchen"})
        found = call(f"search?q={word}&mode=keyword")
        seen.append((word, found["total"], found["engine"]))
    assert seen == [("samovar", 1, "postgres"), ("percolator", 1, "postgres"), ("cezve", 1, "postgres")]
    eventually(lambda: outbox_of(prepared_home) == 0)
    assert call("search?q=samovar&mode=keyword")["engine"] == "tantivy"
    assert run.end(signal.SIGTERM) == 0


@pytest.mark.release
def test_backup_of_a_running_server_is_restored_into_an_empty_home_and_no_other(runs, prepared_home, server_folder):
    run = runs(free_port(), BACKUP_EVERY_HOURS="1")
    run.link()
    (scheduled,) = eventually(lambda: list((prepared_home / "backups").glob("*.backup")), 60)
    key = command(prepared_home, "create_api_key", "agent", "-v", "0").strip()
    file = server_folder / "kitchen.backup"
    assert "memories" in command(prepared_home, "backup", str(file))
    assert "is whole" in command(prepared_home, "verify", str(scheduled))
    memories, found = query(prepared_home, "SELECT count(*) FROM memories_memory"), run.total(key)
    assert run.end(signal.SIGTERM) == 0
    with pytest.raises(AssertionError, match="an empty one only"):
        command(prepared_home, "restore", str(file))

    empty = server_folder / "empty"
    assert f"Restored {memories} memories" in command(empty, "restore", str(file))
    moved = Up(empty, free_port())
    try:
        moved.link()
        assert "loading the sample" not in moved.output
        eventually(lambda: moved.index_state() == "ready")
        assert moved.total(key) == found > 0
        assert open_to_others(empty) == []
    finally:
        moved.end(signal.SIGTERM)


@pytest.mark.release
def test_interruption_before_the_index_is_there_ends_in_order(runs, home):
    run = runs(free_port())
    run.wait_for("loading the sample")
    follower = run.follower()
    assert run.end(signal.SIGINT) == 0
    assert not follower.is_running()
    assert "Traceback" not in run.output
    assert postgres_of(home) == []


@pytest.mark.release
def test_port_in_use_is_told_with_another_one_before_anything_is_started(runs, home):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        run = runs(port)
        assert run.process.wait(60) == 1
    told = run.wait_for(rf"Port {port} on 127.0.0.1 is in use.* PORT=(\d+) make run")
    assert int(told.group(1)) != port
    assert "Traceback" not in run.output
    assert not (home / "postgres").exists()


@pytest.mark.release
def test_other_machines_are_not_let_in_without_key_and_names(runs, home):
    run = runs(free_port(), "--host", "0.0.0.0")  # noqa: S104
    assert run.process.wait(60) == 1
    run.wait_for("Set SECRET_KEY and PUBLIC_URL in the environment first")
    assert not (home / "postgres").exists()


@pytest.mark.release
def test_other_machines_are_not_let_in_before_somebody_has_a_password(runs, prepared_home):
    run = runs(free_port(), "--host", "0.0.0.0", SECRET_KEY="x" * 50, ALLOWED_HOSTS="memories.example")  # noqa: S104
    assert run.process.wait(60) == 1
    run.wait_for("nobody has a password yet.*createsuperuser")
    assert postgres_of(prepared_home) == []


# ── Its parts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.django_db
def test_index_that_nobody_reads_is_dropped_and_one_of_another_machine_is_left(settings, tmp_path):
    settings.SEARCH_INDEX = tmp_path / "index"
    outbox.start_following()
    Memory.objects.bulk_create([Memory(pk=1, project=Project.objects.create(slug="tea", name="Tea"), content="A.")])
    up.drop_unread_index()
    assert (outbox.is_followed(), outbox.backlog().changes) == (True, 1)
    OutboxEntry.objects.update(at=Now() - timedelta(hours=2))
    up.drop_unread_index()
    assert (outbox.is_followed(), outbox.backlog().changes) == (False, 0)

    indexer.rebuild()
    with store.writer_lock():
        up.drop_unread_index()
    assert outbox.is_followed()
    up.drop_unread_index()
    assert not outbox.is_followed()
    assert not (settings.SEARCH_INDEX / "current").exists()


@pytest.mark.django_db(transaction=True)
def test_preparing_takes_turns():
    order = []

    def other():
        with up.one_at_a_time():
            order.append("second")
        up.connections.close_all()

    thread = threading.Thread(target=other)
    with up.one_at_a_time():
        thread.start()
        time.sleep(0.3)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]


def test_static_files_are_collected_once_and_again_when_one_changes(settings, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "one.css").write_text("a { color: red }")
    settings.STATIC_ROOT = tmp_path / "collected"
    settings.STATICFILES_DIRS = [source]
    settings.STATICFILES_FINDERS = ["django.contrib.staticfiles.finders.FileSystemFinder"]
    assert up.collect_static() is True
    assert up.collect_static() is False
    (source / "one.css").write_text("a { color: blue; }")
    assert up.collect_static() is True
    assert "blue" in (tmp_path / "collected" / "one.css").read_text()


@pytest.mark.parametrize(
    ("host", "loopback", "address"),
    [
        pytest.param("127.0.0.1", True, "http://127.0.0.1:80", id="IPv4"),
        pytest.param("::1", True, "http://[::1]:80", id="IPv6"),
        pytest.param("localhost", True, "http://localhost:80", id="name"),
        pytest.param("0.0.0.0", False, "http://127.0.0.1:80", id="every interface"),  # noqa: S104
        pytest.param("::", False, "http://[::1]:80", id="every interface of IPv6"),
        pytest.param("memories.example", False, "http://memories.example:80", id="another name"),
    ],
)
def test_which_hosts_are_loopback_and_what_a_browser_opens(host, loopback, address):
    assert serving.is_loopback(host) is loopback
    assert serving.site_address(host, 80) == address


def test_address_that_is_not_of_this_machine_is_refused():
    with pytest.raises(serving.CannotListenError, match=r"Cannot listen on 192\.0\.2\.1"):
        serving.listen("192.0.2.1", free_port())


@pytest.mark.parametrize("workers", [0, 9])
def test_number_of_web_processes_that_is_none_is_refused(workers):
    with pytest.raises(CommandError, match="from 1 to 8"):
        call_command("up", workers=workers)


@pytest.mark.parametrize("port", [0, 65536, -1])
def test_port_that_is_none_is_refused(port):
    with pytest.raises(CommandError, match="from 1 to 65535"):
        call_command("up", port=port)
