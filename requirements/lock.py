"""Writes the lock files beside this file, from the lower bounds in pyproject.toml. `make lock` runs it.

`base.txt` has what every installation takes; each other file what one extra adds to it. All have exact versions with
the hashes of their files, for every platform. Versions stay as they are unless pyproject.toml demands others;
`--upgrade` looks for newer ones.

torch is a file of its own, and what only its builds for graphics cards take is in none: bootstrap.py installs a build
for the processor.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent / "pyproject.toml"
FOR_GRAPHICS_CARDS = re.compile(r"(nvidia|cuda)-|triton$")
HEADER = "# Written by `make lock`; see docs/operating.md.\n"
# A requirement with its hashes, and the comment that says what takes it.
_BLOCK = re.compile(r"^(?P<name>[a-z0-9][a-z0-9.-]*)==(?P<version>\S+)[^\n]*\\\n(?:    [^\n]*\n?)+", re.MULTILINE)

Blocks = dict[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upgrade", action="store_true", help="look for newer versions")
    upgrade = parser.parse_args().upgrade
    extras = sorted(tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"])
    with tempfile.TemporaryDirectory() as folder:
        known = Path(folder) / "known.txt"
        if not upgrade:
            known.write_text("".join(path.read_text() for path in sorted(HERE.glob("*.txt"))))
        everything = resolve("--all-extras", known=known)
        # The same versions, whichever extras are installed together.
        known.write_text("".join(everything.values()))
        base = resolve(known=known)
        write("base", base)
        for extra in extras:
            write(
                extra,
                {name: block for name, block in resolve("--extra", extra, known=known).items() if name not in base},
            )
        write("torch", {"torch": everything["torch"]})


def resolve(*options: str, known: Path) -> Blocks:
    """The requirements, with versions of a file of known ones where they do."""
    command = [
        *(sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--generate-hashes", "--no-header"),
        *(
            "--python-version",
            "3.11",
            "--annotation-style",
            "line",
            "--output-file",
            str(known.with_name("locked.txt")),
        ),
        *(str(PROJECT.name), *options),
    ]
    locked = known.with_name("locked.txt")
    # uv prefers the versions of the file that it replaces.
    locked.write_text(known.read_text() if known.exists() else "")
    done = subprocess.run(command, cwd=PROJECT.parent)
    if done.returncode != 0:
        sys.exit("uv could not resolve the requirements; its output is above. The lock files are as they were.")
    blocks = {found["name"]: found.group() for found in _BLOCK.finditer(locked.read_text())}
    return {name: block for name, block in blocks.items() if not FOR_GRAPHICS_CARDS.match(name)}


def write(name: str, blocks: Blocks) -> None:
    chosen = [block for package, block in sorted(blocks.items()) if package != "torch" or name == "torch"]
    (HERE / f"{name}.txt").write_text(HEADER + "".join(chosen))


if __name__ == "__main__":
    main()
