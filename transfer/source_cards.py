"""The products that memories come from: what is read of each, and how to get the file. Pure: no database, no request.

Only products whose formats are read; `formats` are the names of importers in `transfer/formats/registry.py`.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceCard:
    """A product: the part of it that is read, and the steps to the file that is uploaded, if one is."""

    key: str
    name: str
    reads: str
    formats: tuple[str, ...]
    steps: tuple[str, ...]
    upload: str = ""
    """The file or folder to choose; empty if it is not uploaded."""
    is_found: bool = False
    """Whether it is found in its usual places on the machine of the site."""
    command: str = ""
    """The arguments of `import_memories`, where neither an upload nor a search finds it."""


@dataclass(frozen=True, slots=True)
class CardGroup:
    title: str
    cards: tuple[SourceCard, ...]


_NOTES = ("markdown", "documents")

_OBSIDIAN = SourceCard(
    "obsidian",
    "Obsidian",
    "Notes with their properties, tags, aliases, links and embeds. Folders become categories.",
    _NOTES,
    (
        "In Obsidian open the list of vaults (the name of the vault, at the bottom left), and choose Manage vaults.",
        "Its menu ⋮ has Reveal vault in Finder, in Explorer or in the file manager: this folder is the vault.",
        "Drop the whole folder here, or a ZIP of it. It has a folder .obsidian in it, which is not read.",
    ),
    upload="The folder of the vault, or a ZIP of it",
)
_NOTION = SourceCard(
    "notion",
    "Notion",
    "Pages with their properties and the links between them. The rows of databases are pages too.",
    (*_NOTES, "csv", "files"),
    (
        "For all: Settings, then General, then Export all workspace content. For one page: its menu ••• and Export.",
        "Export format: Markdown & CSV. Include subpages: on.",
        "Upload the ZIP as it is, without unpacking it. Of a large workspace there are several: upload them together.",
    ),
    upload="The ZIP of the export (Markdown & CSV)",
)
_DOCUMENTS = SourceCard(
    "documents",
    "Markdown, PDF, HTML, text",
    "Documents with their headings, dates and links; of Markdown the front matter too. Folders become categories.",
    _NOTES,
    ("Drop files, a folder, or a ZIP of them. Office documents have to be saved as PDF, HTML or text first.",),
    upload="Files, a folder, or a ZIP of them",
)
_BASIC_MEMORY = SourceCard(
    "basic-memory",
    "basic-memory",
    "Notes with their observations and typed relations.",
    _NOTES,
    (
        "Its notes are in the folder basic-memory of your home, or where ~/.basic-memory/config.json says.",
        "Drop that folder here, or a ZIP of it. Its database is only an index, and not read.",
    ),
    upload="The folder of the notes, or a ZIP of it",
    is_found=True,
)
_CHATGPT = SourceCard(
    "chatgpt",
    "ChatGPT",
    "One memory for each conversation, with its date and both sides of it.",
    ("conversations",),
    (
        "In ChatGPT: your profile, Settings, Data controls, Export data, Confirm export.",
        "A message with a link comes within minutes or days. The link works for 24 hours.",
        "Upload the ZIP as it is, or conversations.json out of it. The file chat.html has no dates: do not use it.",
    ),
    upload="The ZIP, or conversations.json",
)
_CLAUDE = SourceCard(
    "claude",
    "Claude",
    "One memory for each conversation; the documents of projects; and what Claude remembers.",
    ("conversations",),
    (
        "In Claude, in a browser or on the desktop: your initials, Settings, Privacy, Export data.",
        "A link comes by mail, and works for 24 hours.",
        "Upload the ZIP as it is, or conversations.json, projects.json and memories.json out of it.",
    ),
    upload="The ZIP, or its JSON files",
)
_CLAUDE_CODE = SourceCard(
    "claude-code",
    "Claude Code",
    "Sessions with questions and answers, its own memory (memory/*.md), and CLAUDE.md, by project.",
    ("claude-code", "markdown"),
    (
        "Everything is in the folder .claude of your home: sessions in .claude/projects, and CLAUDE.md.",
        "If this site runs on your machine, let it look there: it can also keep up with them.",
        "Otherwise drop the folder .claude/projects here, or a ZIP of it. Folders that begin with a dot are hidden: in"
        " a file dialog, Ctrl+H (Linux) or Cmd+Shift+. (Mac) shows them.",
    ),
    upload="The folder projects, or a ZIP of it",
    is_found=True,
)
_CODEX = SourceCard(
    "codex",
    "Codex",
    "Sessions with questions and answers, and the instructions in AGENTS.md, by project.",
    ("codex", "markdown"),
    (
        "Sessions are in .codex/sessions of your home; AGENTS.md is in the folder of each repository.",
        "If this site runs on your machine, let it look there: it can also keep up with them.",
        "Otherwise drop the folder .codex/sessions here, or a ZIP of it.",
    ),
    upload="The folder sessions, a ZIP of it, or AGENTS.md",
    is_found=True,
)
_GEMINI = SourceCard(
    "gemini-cli",
    "Gemini CLI",
    "Sessions with questions and answers, and the instructions in GEMINI.md, by project.",
    ("gemini-cli", "markdown"),
    (
        "Sessions are in .gemini/tmp of your home; GEMINI.md is in the folder of each repository.",
        "If this site runs on your machine, let it look there: it can also keep up with them.",
        "Otherwise drop the folder .gemini/tmp here, or a ZIP of it.",
    ),
    upload="The folder tmp, a ZIP of it, or GEMINI.md",
    is_found=True,
)
_RULES = SourceCard(
    "cursor",
    "Cursor, Copilot",
    "Rules for the agent: .cursor/rules/*.mdc, and .github/copilot-instructions.md.",
    ("markdown",),
    (
        "Both are in the folder of the repository.",
        "Where Claude Code worked in the same repositories, a look at this machine finds their files too.",
    ),
    upload="The folder .cursor/rules, or copilot-instructions.md",
    is_found=True,
)
_CLAUDE_MEM = SourceCard(
    "claude-mem",
    "claude-mem",
    "Observations and session summaries, with their types, files and concepts.",
    ("claude-mem",),
    (
        "If this site runs on your machine, let it look: it can also keep up with the database.",
        "Otherwise upload .claude-mem/claude-mem.db of your home, or claude-mem's export in JSON.",
    ),
    upload="claude-mem.db, or the export in JSON",
    is_found=True,
)
_MEM0 = SourceCard(
    "mem0",
    "mem0, OpenMemory",
    "Memories with their users, agents, categories and dates.",
    ("mem0",),
    (
        'mem0: write what get_all() gives into a file, such as json.dump(memory.get_all(user_id="ada"), file).',
        "OpenMemory: the page Settings of its dashboard has Export, which gives a ZIP.",
    ),
    upload="The JSON file, or the ZIP of OpenMemory",
)
_MEMORY_SERVICE = SourceCard(
    "mcp-memory-service",
    "mcp-memory-service",
    "Memories with their tags, types and dates.",
    ("mcp-memory-service",),
    (
        "If this site runs on your machine, let it look: it can also keep up with the database.",
        "Otherwise upload sqlite_vec.db: in .local/share/mcp-memory of your home (Linux), Library/Application"
        " Support/mcp-memory (Mac), or AppData\\Local\\mcp-memory (Windows). Its export or backup in JSON is read too.",
    ),
    upload="sqlite_vec.db, or the export in JSON",
    is_found=True,
)
_MCP_MEMORY = SourceCard(
    "mcp-memory",
    "MCP memory (reference server)",
    "Entities with their observations, and the relations between them.",
    ("mcp-memory",),
    (
        "The file is where MEMORY_FILE_PATH says, in the configuration of the agent that starts the server.",
        "Without it, it is memory.jsonl (older: memory.json) beside the program. What read_graph gives is read too.",
    ),
    upload="memory.jsonl",
    is_found=True,
)
_OTHERS = SourceCard(
    "others",
    "Letta, Zep, Graphiti, hindsight",
    "Agent files of Letta, graphs of Zep and Graphiti, archives of hindsight, and tables of concept-rag.",
    ("letta", "graphiti", "hindsight", "concept-rag"),
    (
        "Letta: Export agent gives a file .af. Passages of its archives are read as its API lists them.",
        "Zep, Graphiti: write episodes, entities and facts as JSON. hindsight: the archive (ZIP) of a bank.",
    ),
    upload="The file .af, JSON, or the ZIP",
)
_TABLE = SourceCard(
    "table",
    "CSV, spreadsheet",
    "One memory for each row. You choose which column is the text, the date or the type, and see the result first.",
    ("csv",),
    (
        "Excel: File, Save as, CSV UTF-8. Google Sheets: File, Download, Comma-separated values."
        " LibreOffice: File, Save as, Text CSV, in UTF-8.",
        "The first line has to name the columns.",
    ),
    upload="The file .csv or .tsv",
)
_RECORDS = SourceCard(
    "json",
    "JSON Lines, another Mnemoscope",
    "One memory for each line: everything that an export of this site has, or objects with at least a content.",
    ("jsonl",),
    ('Each line is an object, such as {"content": "…", "title": "…", "created_at": "2026-08-05", "tags": ["a"]}.',),
    upload="The file .jsonl, plain or gzip",
)
_GIT = SourceCard(
    "git",
    "git",
    "Commits with their messages, authors, dates and files.",
    ("git",),
    ("A repository is read where it is: run this command on the machine of the site.",),
    command="--follow path/to/repository",
)

GROUPS = (
    CardGroup("Notes and documents", (_OBSIDIAN, _NOTION, _DOCUMENTS, _BASIC_MEMORY)),
    CardGroup("Chats", (_CHATGPT, _CLAUDE)),
    CardGroup("Coding agents", (_CLAUDE_CODE, _CODEX, _GEMINI, _RULES)),
    CardGroup("Memory of agents", (_CLAUDE_MEM, _MEM0, _MEMORY_SERVICE, _MCP_MEMORY, _OTHERS)),
    CardGroup("Tables and other data", (_TABLE, _RECORDS, _GIT)),
)
CARDS = {card.key: card for group in GROUPS for card in group.cards}


def unexpected_format(key: str, found: Iterable[str]) -> SourceCard | None:
    """The product that an upload was chosen as, if nothing of it has a format of that product."""
    card = CARDS.get(key)
    formats = {name for name in found if name}
    return card if card and formats and not formats.intersection(card.formats) else None
