"""Memories of other systems in their usual places on this machine. Reads them, and writes nothing."""

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from memories.timestamps import parse_moment
from memories.vocabulary_records import is_vocabulary
from transfer.formats import claude_code, codex, gemini_cli
from transfer.formats.base import ImportFailedError, Options, SourceRecord
from transfer.formats.importer import Importer
from transfer.formats.registry import importer_for

_AGENT_FILES = ("CLAUDE.md", "AGENTS.md", "GEMINI.md", ".cursor/rules", ".github/copilot-instructions.md")
# Enough to decide by; the rest is not counted.
_COUNTED = 200_000


@dataclass(frozen=True, slots=True)
class Discovery:
    """A source that can be imported: its memories, and the dates of the first and the last."""

    path: Path
    importer: Importer
    memories: int
    is_complete: bool
    """Whether all memories were counted."""
    refused: int
    first: datetime | None
    last: datetime | None
    days: Mapping[date, int]
    """The number of memories by day."""


def places(home: Path, environment: Mapping[str, str]) -> list[Path]:
    """The existing places of other systems: their defaults, or those that the environment names. Each once."""
    data = [home / ".local/share", home / "Library/Application Support"]
    if local := environment.get("LOCALAPPDATA"):
        data.append(Path(local))
    claude = Path(environment.get("CLAUDE_CONFIG_DIR", home / ".claude"))
    found = [
        Path(environment.get("CLAUDE_MEM_DATA_DIR", home / ".claude-mem")) / "claude-mem.db",
        *(folder / "mcp-memory" / "sqlite_vec.db" for folder in data),
        *(Path(environment[name]) for name in ("MCP_MEMORY_SQLITE_PATH", "MEMORY_FILE_PATH") if environment.get(name)),
        *_basic_memory(home, environment),
        claude / "projects",
        *sorted(folder for folder in claude.glob("projects/*/memory") if any(folder.glob("*.md"))),
        claude / "CLAUDE.md",
        *_sessions(home, environment),
        *_agent_files(claude / "projects"),
    ]
    return [path for path in dict.fromkeys(found) if path.exists()]


def _sessions(home: Path, environment: Mapping[str, str]) -> list[Path]:
    """The folders of sessions of Codex and of Gemini CLI that have some."""
    folders = {
        codex.FORMAT: Path(environment.get("CODEX_HOME", home / ".codex")) / "sessions",
        gemini_cli.FORMAT: home / ".gemini" / "tmp",
    }
    return [folder for kind, folder in folders.items() if folder.is_dir() and kind.files(folder)]


def _agent_files(projects: Path) -> list[Path]:
    """The files for agents in the repositories that Claude Code has worked in."""
    with suppress(OSError):
        worked_in = [claude_code.working_folder(folder) for folder in sorted(projects.iterdir()) if folder.is_dir()]
        repositories = dict.fromkeys(Path(folder) for folder in worked_in if folder)
        return [repository / name for repository in repositories for name in _AGENT_FILES]
    return []


def _basic_memory(home: Path, environment: Mapping[str, str]) -> list[Path]:
    """The folders of basic-memory's projects, as its configuration names them.

    A folder within another one is left out: the outer one has its notes too.
    """
    config: Any = {}
    with suppress(OSError, ValueError, RecursionError):
        folder = Path(environment.get("BASIC_MEMORY_CONFIG_DIR", home / ".basic-memory"))
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    projects = config.get("projects") if isinstance(config, dict) else None
    paths: list[Any] = list(projects.values()) if isinstance(projects, dict) else [str(home / "basic-memory")]
    paths = [one.get("path") if isinstance(one, dict) else one for one in paths]
    folders = [Path(one).expanduser() for one in paths if isinstance(one, str) and one]
    return [folder for folder in folders if not any(other in folder.parents for other in folders)]


def discoveries(home: Path | None = None, environment: Mapping[str, str] | None = None) -> Iterator[Discovery | str]:
    """The sources on this machine, one at a time; a sentence for one that cannot be read."""
    for path in places(home or Path.home(), os.environ if environment is None else environment):
        try:
            yield _discovery(path)
        except ImportFailedError as error:
            yield str(error)


def _discovery(path: Path) -> Discovery:
    importer = importer_for(path)
    memories = refused = 0
    first: datetime | None = None
    last: datetime | None = None
    is_complete = True
    days: Counter[date] = Counter()
    with closing(importer.read(path, Options(keep_going=True)).records) as records:
        for record in records:
            if not isinstance(record, SourceRecord):
                refused += 1
                continue
            if is_vocabulary(record.data):
                continue
            memories += 1
            with suppress(ValueError):
                if moment := parse_moment(record.data.get("created_at")):
                    first, last = min(first or moment, moment), max(last or moment, moment)
                    days[moment.date()] += 1
            if memories == _COUNTED:
                is_complete = False
                break
    return Discovery(path, importer, memories, is_complete, refused, first, last, days)
