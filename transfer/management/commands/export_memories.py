"""`manage.py export_memories`: memories and their vocabulary, to a file or to standard output."""

import contextlib
import gzip
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from django.core.management.base import BaseCommand, CommandError

from access.viewer import Viewer, command_viewer
from memories.models import Project
from memories.recalls import store_now
from search.listings import found_ids
from search.query import SearchQuery
from text.formatting import memories
from transfer.export import Selection, export_lines, one_state, record_export
from transfer.formats.export_registry import FORMATS
from web.exchange import begin, set_route
from web.params import QueryError


class Command(BaseCommand):
    requires_system_checks: list[str] = []  # `up` runs them; they load all pages, which takes seconds
    help = (
        "Write memories: as JSON lines with their vocabulary, which import_memories reads, as CSV, as Markdown, or for "
        "another memory system."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "file",
            nargs="?",
            default="-",
            help="The file to write, packed if it ends with .gz (default: the terminal).",
        )
        parser.add_argument(
            "--format",
            choices=FORMATS,
            default="jsonl",
            help="jsonl holds everything (default); csv is a table; markdown is a ZIP of notes; claude-mem and "
            "mcp-memory-service are their exports in JSON, mcp-memory is the memory file of the MCP reference server.",
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
        chosen = FORMATS[options["format"]]
        states = () if chosen.has_states or ids is not None else SearchQuery().default_states
        selection = Selection(viewer, options["project"], ids, states, chosen.has_rows, chosen.has_files)
        if options["file"] == "-" and not chosen.is_text:
            raise CommandError(f"--format {options['format']} writes a {chosen.suffix.upper()} file: name the file.")
        with _opened(options["file"], self.stdout) as write, one_state():
            for piece in chosen.write(lambda: export_lines(selection)):
                write(piece)
            count = sum(map(len, selection.blocks()))
        begin()
        set_route("export_memories")
        asked = [*(("project", name) for name in options["project"]), *parse_qsl(options["query"].removeprefix("?"))]
        record_export(selection, urlencode(asked))
        store_now()
        if options["file"] != "-":
            self.stderr.write(f"{options['file']}: {memories(count)} written.")


def _found(text: str, viewer: Viewer) -> list[int]:
    """The memories that a search finds."""
    try:
        query = SearchQuery.from_pairs(parse_qsl(text.removeprefix("?"), keep_blank_values=True))
    except QueryError as error:
        raise CommandError(f"--query: {error}") from None
    return found_ids(query, viewer)


@contextlib.contextmanager
def _opened(name: str, terminal: Any) -> Iterator[Callable[[bytes], object]]:
    """Writes to the file, which appears under its name only when it is complete."""
    if name == "-":
        yield lambda piece: terminal.write(piece.decode(), ending="")
        return
    path = Path(name).expanduser()
    partial = path.with_name(path.name + ".part")
    try:
        with contextlib.ExitStack() as stack:
            file: Any = stack.enter_context(partial.open("wb"))
            if path.suffix == ".gz":
                file = stack.enter_context(gzip.GzipFile("", "wb", 6, file))
            yield file.write
        partial.replace(path)
    except OSError as error:
        raise CommandError(f"{name}: cannot be written: {error.strerror}.") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
