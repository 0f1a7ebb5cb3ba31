"""`manage.py export_memories`: memories and their vocabulary as JSON lines, to a file or to standard output."""

import contextlib
import gzip
import io
import json
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qsl

from django.core.management.base import BaseCommand, CommandError
from django.db import connection, transaction

from access.viewer import Viewer, command_viewer
from memories.exporters.jsonl import Selection, export_lines
from memories.models import Project
from search.cursors import Continued, continued, cursor_after
from search.query import SearchQuery
from search.result import HitDetail
from search.run import run
from text.formatting import memories
from web.params import QueryError

_PAGE = 100


class Command(BaseCommand):
    help = "Write memories and their vocabulary as JSON lines, which import_memories reads."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "file",
            nargs="?",
            default="-",
            help="The file to write, packed if it ends with .gz (default: the terminal).",
        )
        parser.add_argument("--project", action="append", default=[], help="Only memories of this project; repeatable.")
        parser.add_argument(
            "--query", default="", help='Only what a search finds, as in the address of a page: "q=tea&tag=green".'
        )

    def handle(self, *args: Any, **options: Any) -> None:
        known = set(Project.objects.filter(slug__in=options["project"]).values_list("slug", flat=True))
        if missing := [slug for slug in options["project"] if slug not in known]:
            raise CommandError(f"There is no project {missing[0]!r}.")
        viewer = command_viewer()
        ids = _found(options["query"], viewer) if options["query"] else None
        selection = Selection(viewer, options["project"], ids)
        count = 0
        with _opened(options["file"], self.stdout) as file, _one_state():
            for line in export_lines(selection):
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
                count += "record" not in line
        if options["file"] != "-":
            self.stderr.write(f"{options['file']}: {memories(count)} written.")


def _found(text: str, viewer: Viewer) -> list[int]:
    """The memories that a search finds, page by page."""
    try:
        query = SearchQuery.from_pairs(parse_qsl(text.removeprefix("?"), keep_blank_values=True)).model_copy(
            update={"page_size": _PAGE, "page": 1, "offset": 0}
        )
        ids: list[int] = []
        here = Continued(query)
        while True:
            result = run(here.query, viewer, include_facets=False, detail=HitDetail.INDEX, after=here.after)
            ids += [hit.id for hit in result.hits]
            if (cursor := cursor_after(result)) is None:
                return ids
            here = continued(query, cursor, viewer)
    except QueryError as error:
        raise CommandError(f"--query: {error}") from None


@contextlib.contextmanager
def _one_state() -> Iterator[None]:
    """A transaction that sees the database as it is at its beginning."""
    with transaction.atomic():
        if not connection.in_atomic_block or len(connection.savepoint_ids) == 0:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield


@contextlib.contextmanager
def _opened(name: str, terminal: Any) -> Iterator[IO[str]]:
    """The file to write, which appears under its name only when it is complete."""
    if name == "-":
        yield terminal
        return
    path = Path(name).expanduser()
    partial = path.with_name(path.name + ".part")
    try:
        with contextlib.ExitStack() as stack:
            file: Any = stack.enter_context(partial.open("wb"))
            if path.suffix == ".gz":
                file = stack.enter_context(gzip.GzipFile("", "wb", 6, file))
            yield stack.enter_context(io.TextIOWrapper(file, encoding="utf-8"))
        partial.replace(path)
    except OSError as error:
        raise CommandError(f"{name}: cannot be written: {error.strerror}.") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
