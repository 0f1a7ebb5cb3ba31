"""Processes that are killed at a crash point, as if the power failed.

They are forked from a process that has set Django up and has no connection yet, which saves each of them a second.
"""

import multiprocessing
import os
import signal
import traceback

import django
from django.apps import apps

if not apps.ready:  # in the process that the others are forked from
    django.setup()

from django.conf import settings
from django.db import connection

from search.engines import segment_files
from search.engines.index import follower  # noqa: F401
from search.engines.vectors import writer  # noqa: F401
from transfer.management.commands import import_memories  # noqa: F401 - so that no fork has to

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload([__name__])
SECONDS = 120


def run_until(step, call, *arguments):
    """Call a function in another process, on the database and the index of this test, and kill it at a crash point.
    Return whether it came to that.
    """
    receiver, sender = FORKED.Pipe(duplex=False)
    own = (connection.settings_dict["NAME"], settings.SEARCH_ENGINE, settings.SEARCH_INDEX)
    process = FORKED.Process(target=_run, args=(sender, own, step, call, arguments))
    process.start()
    sender.close()
    process.join(SECONDS)
    with receiver:
        assert process.exitcode in {0, -signal.SIGKILL}, receiver.recv() if receiver.poll() else process.exitcode
    return process.exitcode == -signal.SIGKILL


def _run(sender, own, step, call, arguments):
    connection.settings_dict["NAME"], settings.SEARCH_ENGINE, settings.SEARCH_INDEX = own
    segment_files.reached = lambda at: at == step and os.kill(os.getpid(), signal.SIGKILL)
    try:
        call(*arguments)
    except BaseException:
        sender.send(traceback.format_exc())
        os._exit(1)
