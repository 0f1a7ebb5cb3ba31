import threading
from urllib.parse import quote, urlencode

import pytest
import uvicorn
from django.core.management import call_command
from django.db import connection, connections

from access.keys import make_key
from access.viewer import command_viewer
from agent_tools import asgi
from memories.embedding import query
from memories.invented_team import SAMPLE
from memories.models import Memory, Project
from tests.corpus import bring_in as bring_in_memories
from tests.database import fill
from tests.vectors import embed_everything
from web.cache import clear_caches
from web.serving import listen, server_config


def bring_in(folder):
    """The hand-written memories; their ids by the ids that they have there."""
    fill("memories", lambda: bring_in_memories(folder))
    return dict(Memory.objects.exclude(external_id="").values_list("external_id", "pk"))


@pytest.fixture
def ids(db, tmp_path):
    return bring_in(tmp_path)


@pytest.fixture
def shared_ids(transactional_db, tmp_path):
    """The same where other connections can see them, as those of a server."""
    yield bring_in(tmp_path)
    connections.close_all()


def fill_with_sample():
    """The sample with its vectors."""

    def build():
        call_command("import_memories", str(SAMPLE), verbosity=0)
        embed_everything()

    fill("sample with vectors", build)
    clear_caches()


def key_for(*slugs, scopes=("read", "write")):
    named = {"projects": Project.objects.filter(slug__in=slugs)} if slugs else {"every_project": True}
    return make_key(name="agent", scopes=scopes, viewer=command_viewer(), **named).raw


@pytest.fixture
def database_url(transactional_db):
    """The address of the database under test, for another process."""
    connection.ensure_connection()
    told = connection.connection.info
    who = quote(told.user) + (f":{quote(told.password)}" if told.password else "")
    return f"postgresql://{who}@/{told.dbname}?{urlencode({'host': told.host, 'port': told.port})}"


@pytest.fixture
def worker(site):
    """The address that claude-mem's readers ask."""
    return f"http://127.0.0.1:{asgi.worker_port}"


class QuietServer(uvicorn.Server):
    """One that a test runs in a thread, which signals are none of the business of."""

    def install_signal_handlers(self):
        pass


@pytest.fixture
def site(monkeypatch):
    """The address of the real ASGI application, served as `manage.py up` serves it, beside claude-mem's port."""
    own_model = query._queries
    with listen("127.0.0.1", 0) as listener, listen("127.0.0.1", 0) as extra:
        monkeypatch.setattr("agent_tools.asgi.worker_port", extra.getsockname()[1])
        config = server_config()
        config.backlog = 2048
        server = QuietServer(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener, extra]}, daemon=True)
        thread.start()
        while not server.started:
            thread.join(0.01)
            assert thread.is_alive()
        # The model is in this process, where a real server asks its worker.
        query.use(own_model)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join(10)
