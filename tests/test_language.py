"""Docstrings, comments and documentation avoid the words in BANNED, which hide the subject or have a standard term."""

import ast
import io
import re
import subprocess
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The banned word, and what to write instead.
BANNED = {
    r"told": "reported, or the name of the recipient with an active verb",
    r"said of": "about",
    r"what is said|is said|are said": "the text, the description",
    r"kept (?:up|under|right)": "updated, keyed by, kept current",
    r"tak(?:e|es|en|ing) in(?! addition)": "apply, read, accept",
    r"bor(?:ne|e) out|bears? (?:it |them |a link )?out": "supported by, evidence",
    r"so many": "this many, or the number itself",
    r"anew": "again",
    r"(?:may|must) know of": "visible to",
    r"stands? beside": "is next to",
    r"writ(?:es?|ten) down": "record, store",
    r"is of the same": "belongs to the same",
    r"at the door": "at the edge",
}
# A docstring that begins with one of these has no subject: begin with the noun that is described.
BANNED_STARTS = r"(?:What|Who|Whose|Of)\b"
# A source without any of these, be it in its code, need not be taken apart.
SUSPECT = re.compile(rf"\b(?:{'|'.join(BANNED)})\b|(?:#\s*|[\"'])\s*{BANNED_STARTS}", re.IGNORECASE)


def prose_of(path):
    """The docstrings and comments of a Python file, or the text of any other file."""
    source = path.read_text(encoding="utf-8")
    if not SUSPECT.search(source):
        return []
    if path.suffix != ".py":
        return [source]
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    docstrings = [text for node in nodes if (text := ast.get_docstring(node))]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return docstrings + [token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT]


def banned_in(path):
    """The banned words of a file, in the order of its text."""
    words = re.compile(rf"\b(?:{'|'.join(BANNED)})\b", re.IGNORECASE)
    found = []
    for text in prose_of(path):
        if path.suffix == ".py" and (start := re.match(BANNED_STARTS, text)):
            found.append(start[0])
        found += words.findall(text)
    return found


def files():
    """Every Python and Markdown file of the project, without migrations and this list of words."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.py", "*.md"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]
    return [name for name in names if "/migrations/" not in name and "vendor/" not in name and name != OWN_NAME]


OWN_NAME = "tests/test_language.py"


def test_no_file_uses_a_banned_word():
    found = {name: words for name in files() if (words := banned_in(ROOT / name))}
    assert not found, f"Write these in plain English (see BANNED for better words): {found}"


def test_a_banned_word_is_found(tmp_path):
    path = tmp_path / "example.py"
    path.write_text('"""What is told of it."""\n\nx = 1  # taken in anew\n', encoding="utf-8")
    assert banned_in(path) == ["What", "told", "taken in", "anew"]
