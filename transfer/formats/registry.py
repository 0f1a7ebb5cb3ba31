"""The formats that can be imported, and which a path holds. Decided by content, never by the name of a file alone."""

from pathlib import Path

from transfer.formats import (
    bundles,
    claude_code,
    claude_mem,
    codex,
    concept_rag,
    conversations,
    csv_table,
    documents,
    gemini_cli,
    git,
    graphiti,
    hindsight,
    jsonl,
    letta,
    markdown,
    mem0,
    memory_graph,
    memory_service,
)
from transfer.formats.base import NotReadableError
from transfer.formats.importer import Importer
from transfer.formats.sources import Source
from transfer.formats.unknown import what_it_is

# In the order of their tests: a repository is also a folder of files, and many exports are lines of JSON.
_FORMATS = (
    git.IMPORTER,
    claude_mem.IMPORTER,
    memory_service.IMPORTER,
    memory_graph.IMPORTER,
    hindsight.IMPORTER,
    letta.IMPORTER,
    graphiti.IMPORTER,
    concept_rag.IMPORTER,
    mem0.IMPORTER,
    conversations.IMPORTER,
    claude_code.IMPORTER,
    codex.IMPORTER,
    gemini_cli.IMPORTER,
    documents.IMPORTER,
    markdown.IMPORTER,
    jsonl.IMPORTER,
    csv_table.IMPORTER,
)
# Several files that were uploaded together, or a ZIP archive of files in these formats.
# Exports of Notion have archives inside, which have no further ones.
BUNDLE = bundles.bundle_importer(_FORMATS, bundles.bundle_importer(_FORMATS))
IMPORTERS = (*_FORMATS, BUNDLE)


def importer_named(name: str) -> Importer:
    for importer in IMPORTERS:
        if importer.name == name:
            return importer
    raise NotReadableError(f"{name!r} is not a format: write one of {', '.join(i.name for i in IMPORTERS)}.")


def importer_for(path: Path) -> Importer:
    """The importer that knows what a path holds."""
    try:
        if not path.exists():
            raise NotReadableError(f"{path}: there is no such file or folder.")
        source = Source(path)
        for importer in IMPORTERS:
            if importer.knows(source):
                return importer
        what = what_it_is(source)
    except PermissionError as error:
        raise NotReadableError(f"{error.filename or path}: cannot be read by this user.") from None
    except OSError as error:
        raise NotReadableError(f"{path}: cannot be read: {error.strerror}.") from None
    if what:
        raise NotReadableError(f"{path}: this is {what}.")
    shapes = "; ".join(f"{importer.name}: {importer.looks_like}" for importer in IMPORTERS)
    raise NotReadableError(f"{path}: nothing that can be imported. Supported: {shapes}.")
