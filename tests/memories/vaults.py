"""Made vaults: folders, links of all forms, odd front matter, encodings; and which of their links are dead."""

import io
import posixpath
import re
import unicodedata
import zipfile
from random import Random
from urllib.parse import quote, unquote

from access.viewer import command_viewer
from transfer.export import Selection, export_lines
from transfer.formats.export_registry import FORMATS

_NAMES = (
    *(
        "Oolong",
        "oolong",
        "Green Tea",
        "Caf\u00e9",
        "Cafe\u0301 notes",
        "2026-01-20",
        "ADR-0003 Kettle",
        "茶",
        "a.b",
        "Über uns",
    ),
    *("Kiln (old)", "50% off", "it's", "Tea & Milk", "Index", "x" * 60, "01 First", "Q&A", "What now", "Ofen #2"),
)
_FOLDERS = ("", "", "Decisions/", "People/Team A/", "Daily notes/", "Täglich/2026/", "a/b/c/d/")
_MATTER = (
    "title: {title}",
    "title: '{title}'",
    "tags: [tea, Green Tea]",
    "tags:\n  - tea\n  - 'water/hot'",
    "tags:\n- one\n- two",
    "tags: tea, milk",
    "tag: single",
    "aliases: [{title} alias, other]",
    "aliases:\n  - Former {title}",
    "status: accepted",
    "status: Superseded",
    "status: draft",
    "state: archived",
    "date: 2026-01-20",
    "created: 2026-01-20 10:30",
    "updated: 2026-02-01T08:00:00Z",
    "type: decision",
    "author: Ann",
    "deciders: [Ann, Ben]",
    "category: Kitchen/Oven",
    "cssclass: wide  # a comment",
    "# only a comment",
    "",
    "rating: 3.10",
    "nested:\n  deep:\n    - 1\n    - {{a: b}}",
    "broken: [unclosed",
    "twice: 1\ntwice: 2",
    "text: |\n  several\n\n  lines",
    "up: '[[{link}]]'",
    "supersedes: '[[{link}]]'",
    "importance: 0.5",
    '"quoted key": 1',
    "summary: >-\n  folded\n  text",
)
_LINES = (
    *("[[{link}]]", "[[{link}|shown]]", "[[{path}#Heading]]", "![[{link}]]", "![[picture.png]]", "[text]({relative})"),
    *(
        "[text](<{plain}>)",
        "[gone](gone.md)",
        "[[Nowhere]]",
        "[site](https://example.org/a.md)",
        "#inline tag",
        "## Heading",
    ),
    *(
        "- [ ] a task",
        "- relates-to [[{link}]]",
        "```\n[[code]]\n```",
        "| a | b |\n|---|---|\n| 1 | [[{link}\\|x]] |",
        "text",
    ),
    *("  indented", "\ttab", "trailing  ", "---", "> quoted", "% $ \\ {{template}}", "Ünï", "\u00a0space", ""),
)


def made_vault(random, count=12):
    """The files of a vault: bytes by path."""
    paths = list(dict.fromkeys(f"{random.choice(_FOLDERS)}{random.choice(_NAMES)}.md" for _ in range(count)))
    return {path: _made_note(random, path, paths) for path in paths}


def _made_note(random: Random, path: str, paths: list[str]) -> bytes:
    kind = random.random()
    if kind < 0.05:
        return random.choice((b"", b"\n", b"  \n\n", b"\xff\xfe", b"caf\xe9 in another encoding\n"))
    text = _matter(random, path, paths) + _body(random, path, paths)
    if kind < 0.1:
        text = text.replace("\n", "\r\n", random.randrange(1, 4))
    elif kind < 0.25:
        text = text.replace("\n", "\r\n")
    elif kind < 0.28:
        text = text.replace("\n", "\r")
    elif kind < 0.3:
        text = text + "a NUL: \0\n"
    if kind > 0.97:
        return text.encode("utf-16")
    if kind > 0.94:
        return b"\xfe\xff" + text.encode("utf-16-be")
    return (b"\xef\xbb\xbf" if kind > 0.88 else b"") + text.encode()


def _filled(random: Random, text: str, path: str, paths: list[str]) -> str:
    other = random.choice(paths)
    bare = other.removesuffix(".md")
    plain = posixpath.relpath(other, posixpath.dirname(path) or ".")
    values = {
        "link": random.choice((posixpath.basename(bare), bare)),
        "path": bare,
        "plain": plain,
        "relative": quote(plain),
        "title": posixpath.basename(path).removesuffix(".md").replace(":", " ").replace("'", " ").strip("% "),
    }
    return text.format(**values)


def _matter(random: Random, path: str, paths: list[str]) -> str:
    if random.random() < 0.3:
        return random.choice(("", "", "\n\n"))
    if random.random() < 0.1:
        title = posixpath.basename(path).removesuffix(".md")
        return f'+++\ntitle = "{title}"\ntags = ["tea"]\ndate = 2026-01-20\n\n[extra]\na = 1\n+++\n\n'
    lines = [_filled(random, one, path, paths) for one in random.sample(_MATTER, random.randrange(0, 7))]
    end = random.choice(("---\n", "---\n\n", "---  \n", "...\n", "---\n\n\n"))
    return "---\n" + "".join(f"{line}\n" for line in lines) + end


def _body(random: Random, path: str, paths: list[str]) -> str:
    lines = [_filled(random, one, path, paths) for one in random.choices(_LINES, k=random.randrange(0, 9))]
    heading = [f"# {posixpath.basename(path)}"] if random.random() < 0.4 else []
    return "\n".join([*heading, *lines]) + random.choice(("", "\n", "\n", "\n\n\n", "  \n"))


def write_vault(root, files):
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def exported_vault(folder, viewer=None, **selection):
    """The files of an export below a folder: bytes by path."""
    form = FORMATS["markdown"]
    chosen = Selection(viewer or command_viewer(), with_files=True, **selection)
    archive = zipfile.ZipFile(io.BytesIO(b"".join(form.write(lambda: export_lines(chosen)))))
    return {
        name.removeprefix(f"{folder}/"): archive.read(name)
        for name in archive.namelist()
        if name.startswith(f"{folder}/")
    }


_WIKI = re.compile(r"\[\[([^\[\]|#\n]+)")
_LINK = re.compile(r"\]\((<[^<>\n]*>|[^()\s]+)\)")


def dead_links(files):
    """The links of notes that lead to no file, by a reading of their own: (note, target)."""
    known = set()
    for path in files:
        steps = _folded(path).removesuffix(".md").split("/")
        known |= {"/".join(steps[at:]) for at in range(len(steps))}
    dead = set()
    for path, data in files.items():
        encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
        text = data.decode(encoding, errors="replace")
        for target in _WIKI.findall(text):
            if _folded(target.strip().rstrip("\\").removesuffix(".md").lstrip("/")) not in known:
                dead.add((path, target))
        for found in _LINK.findall(text):
            target = posixpath.normpath(posixpath.join(posixpath.dirname(path), unquote(found.strip("<>"))))
            if target.endswith(".md") and "://" not in found and target not in files:
                dead.add((path, target))
    return dead


def _folded(text):
    return unicodedata.normalize("NFC", text).casefold()
