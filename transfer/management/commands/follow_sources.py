"""`manage.py follow_sources`: follows the sources that `import_memories --follow` or the pages have named."""

import os
import signal
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from transfer.follow.process import Follower

# Processes that answer requests have priority.
_NICE = 5


class Command(BaseCommand):
    help = "Follow sources until Ctrl-C: what changes in them is changed here. `up` starts it by itself."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--with-parent", type=int, metavar="PID", help="stop when this process ends")

    def handle(self, *, with_parent: int | None, **options: Any) -> None:
        requested = False

        def stop(number: int, frame: FrameType | None) -> None:
            nonlocal requested
            requested = True

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        if with_parent is not None:
            os.nice(_NICE)
        Follower(lambda: requested or (with_parent is not None and os.getppid() != with_parent)).follow()
