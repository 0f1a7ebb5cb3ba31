"""Names can be searched for: few definitions share a private name, a class has one meaning, functions are named by what
they do.

`names_to_change.txt` lists what was there before these rules, and only gets shorter: a line whose fault is mended fails
the test until it is removed. A new name never gets a line.
"""

import ast
import subprocess
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
LISTED = Path(__file__).with_name("names_to_change.txt")
MOST_OF_A_PRIVATE_NAME = 4
# Classes that Django, or an enclosing class, gives their meaning.
GIVEN_MEANING = {"Meta", "Command", "Media", "State", "Kind"}
IRREGULAR = {"brought", "found", "given", "kept", "known", "made", "said", "seen", "shown", "written"}


def definitions():
    """Every function and class outside tests and migrations, with its file."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.split():
        if not name.startswith(("tests/", "lab/")) and "/migrations/" not in name and (ROOT / name).exists():
            for node in ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    yield node, name


def is_participle(name):
    word = name.strip("_")
    return "_" not in word and (word in IRREGULAR or (len(word) > 4 and word.endswith(("ed", "ing"))))


def faults():
    private, classes, participles = Counter(), Counter(), set()
    for node, _ in definitions():
        if node.name.startswith("_") and not node.name.startswith("__"):
            private[node.name] += 1
        if isinstance(node, ast.ClassDef):
            classes[node.name] += node.name not in GIVEN_MEANING
        elif is_participle(node.name):
            participles.add(node.name)
    yield from (f"{n} definitions: {name}" for name, n in private.items() if n > MOST_OF_A_PRIVATE_NAME)
    yield from (f"{n} meanings of a class: {name}" for name, n in classes.items() if n > 1)
    yield from (f"a participle alone: {name}" for name in participles)


def test_names_can_be_searched_for():
    listed = LISTED.read_text(encoding="utf-8").splitlines()
    found = set(faults())
    assert sorted(found - set(listed)) == [], "give these another name (docs/contributing.md, Language and style)"
    assert sorted(set(listed) - found) == [], "mended: remove or lower these lines of tests/names_to_change.txt"
