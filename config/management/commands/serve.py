"""`manage.py serve`: a further web process of `manage.py up --workers`, on the socket that `up` has opened."""

import signal
import socket
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from config.management.commands.up import leave_database, warm_up
from web.serving import serve, stop_signals


class Command(BaseCommand):
    help = "Serve the connections of an inherited socket. `manage.py up --workers` runs this."
    requires_system_checks: list[str] = []  # `up` has run them

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--listener", type=int, required=True, metavar="NUMBER", help="the inherited socket")
        parser.add_argument(
            "--with-parent", type=int, required=True, metavar="PID", help="exit with the parent process"
        )

    def handle(self, *, listener: int, with_parent: int, verbosity: int, **options: Any) -> None:
        with stop_signals():
            try:
                serve([socket.socket(fileno=listener)], warm_up, access_log=verbosity >= 2, parent=with_parent)
            except KeyboardInterrupt:
                pass
            finally:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                leave_database()
