"""`manage.py mcp`: serves the tools to an agent over standard input and output."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connection

from access.keys import KeyRefusedError, TooManyRequestsError, viewer_of_raw
from access.models import AuditEvent
from access.sign_in import owner_to_sign_in
from access.viewer import Viewer, viewer_of_user
from agent_tools.workflow import DEFAULT_PROFILE, PROFILE_NAMES
from memories import recalls
from web.command_line import local_command

KEY = "MNEMOSCOPE_KEY"


class Command(BaseCommand):
    help = f"Serve the agent tools over standard input and output, with the key in {KEY} or as the machine's owner."
    requires_system_checks: list[str] = []  # whatever is printed besides the protocol ends the connection

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--tools",
            choices=PROFILE_NAMES,
            default=DEFAULT_PROFILE,
            help="which tools are listed: all, only the core, or the pair that ChatGPT expects",
        )

        parser.add_argument(
            "--text-only",
            action="store_true",
            help="send replies as text alone, for clients that give a model the data in place of the shorter text",
        )

    def handle(self, *, tools: str, text_only: bool, **options: Any) -> None:
        with ThreadPoolExecutor(1) as pool:
            # The database may have to be started, which is mostly waiting.
            asked = pool.submit(identity)
            from agent_tools.server import Caller, serve_stdio

            try:
                who = asked.result()
            except DatabaseError as error:
                raise CommandError(f"The database cannot be read: {error}") from error
            finally:
                pool.submit(connection.close)
        self.stderr.write(f"Mnemoscope serves MCP over standard input and output, as {who}.", style_func=str)

        try:
            anyio.run(serve_stdio, viewer_of, prepare, Caller(tools, not text_only))
        finally:
            recalls.store_now()


def viewer_of(context: object) -> Viewer:
    """The viewer of a call. Raises ToolRefusedError with what the agent can do about it."""
    # A call may arrive before the handshake has ended.
    prepare()
    from agent_tools.calls import ToolRefusedError
    from web.responses import error_of

    # At every call, so that a revoked key is refused at once.
    try:
        return current_viewer()
    except (KeyRefusedError, CommandError) as error:
        raise ToolRefusedError(f"{error} Tell the user.") from error
    except TooManyRequestsError as error:
        raise ToolRefusedError(f"{error} Wait {error.seconds} seconds.") from error
    except DatabaseError as error:
        outage = error_of(error)
        raise ToolRefusedError(f"{outage.detail} {outage.suggestion}") from error


_preparing = threading.Lock()
_is_prepared = False


def prepare() -> None:
    """Import the tools, and find the model for queries: the running server's, or one of this process."""
    global _is_prepared
    with _preparing:
        if _is_prepared:
            return
        from agent_tools import answers as answers
        from memories.embedding import query
        from memories.embedding.shared import SharedQueries

        queries = SharedQueries()
        query.use(queries)
        queries.prepare()
        recalls.store_in_background()
        _is_prepared = True


def identity() -> str:
    """The identity of the client in words. Raises CommandError if there is none."""
    try:
        viewer = current_viewer()
    except KeyRefusedError as error:
        raise CommandError(
            f"{error} {KEY} takes a key: {local_command('create_api_key NAME --scopes read,write')}"
        ) from None
    return "the owner of this machine's own database" if viewer.api_key_id is None else "the key given"


def current_viewer() -> Viewer:
    """The viewer of the key in the environment, or without a key the owner, if the database belongs to this machine."""
    if raw := settings.MNEMOSCOPE_KEY:
        return viewer_of_raw(raw, AuditEvent.Door.MCP)
    if os.environ.get("DATABASE_URL"):
        raise CommandError(
            f"DATABASE_URL names a shared database, so a key is needed: set {KEY}. "
            f"Create one with: {local_command('create_api_key NAME --scopes read,write')}"
        )
    owner = owner_to_sign_in()
    if owner is None:
        raise CommandError(f"This database has no owner yet. Start Mnemoscope once with: {local_command('up')}")
    return viewer_of_user(owner, door=AuditEvent.Door.MCP)
