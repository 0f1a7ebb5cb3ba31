"""Makes .venv beside this file and installs what the project needs into it. The standard library is all it uses.

`python3 bootstrap.py` installs what running takes but for search by meaning, which `python3 bootstrap.py embeddings`
adds: a server that was started without it calls that, while people look around. `python3 bootstrap.py dev` installs all
of it and what testing and linting take, and likewise for the other extras of pyproject.toml. It does nothing, quickly,
when nothing has changed since.

The versions, and the hashes of all files, are those in requirements/. Search by meaning takes torch. What pip would
install as that may be gigabytes, for graphics cards: then a smaller one is looked for, and none is installed without
being asked for. It has the version of requirements/torch.txt; the smaller one for Linux is not on PyPI, so its hash is
shown instead of checked.
"""

# Old Pythons must get as far as the message that they are too old: no syntax here that is younger than 3.7.
from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
# Downloads the model where its own home can be reached, and compares its weights with those that are published.
MODEL = ROOT / "memories" / "embedding" / "published.py"
LEAST = (3, 11)
NEWEST_TO_TRY = 15
EXTRAS = ("embeddings", "dev", "bench", "release", "lock")
# Neither the pages nor a wheel nor a lock file need torch.
BY_WORDS = ("", "release", "lock")


def main(arguments: list[str]) -> None:
    if len(arguments) > 1 or not set(arguments) <= set(EXTRAS):
        sys.exit(f"usage: python3 bootstrap.py [{'|'.join(EXTRAS)}]")
    if os.name == "nt":
        sys.exit("This creates a Unix layout. On Windows use WSL, or see 'Without make' in README.md.")
    make_environment()
    extra = arguments[0] if arguments else ""
    if not is_installed(extra):
        with alone():
            install(extra)


@contextmanager
def alone() -> Iterator[None]:
    """Wait until nobody else installs into this environment: a server does in the background."""
    import fcntl  # not on Windows

    folder = os.open(VENV, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Waiting until another installation into .venv has ended ...", flush=True)
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def make_environment() -> None:
    if PYTHON.exists() and environment_works():
        return
    python = python_to_use()
    if VENV.exists():
        print("The .venv no longer works (moved, or its Python is gone): creating it again.", flush=True)
        shutil.rmtree(VENV)
    print(f"Creating a virtual environment in {VENV.name} with {python} ...", flush=True)
    if subprocess.call([python, "-m", "venv", str(VENV)]) != 0:
        shutil.rmtree(VENV, ignore_errors=True)
        sys.exit(
            f"{python} could not make a virtual environment. On Debian and Ubuntu its parts come in a package of their "
            "own: apt-get install python3-venv. Then run this again."
        )


def environment_works() -> bool:
    test = f"import sys, pip; sys.exit(sys.version_info < {LEAST})"
    return subprocess.call([str(PYTHON), "-c", test], stderr=subprocess.DEVNULL) == 0


def python_to_use() -> str:
    """The Python that runs this, or a newer one on the PATH when this one is too old."""
    if sys.version_info >= LEAST:
        return sys.executable
    for minor in range(NEWEST_TO_TRY, LEAST[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        if found:
            return found
    sys.exit(
        f"Mnemoscope needs Python {LEAST[0]}.{LEAST[1]} or later; this is {sys.version.split()[0]}, and no newer one "
        "is on the PATH. Install one (python.org, apt-get install python3.11, brew install python@3.13), or name it: "
        "make run PYTHON=/path/to/python3.11"
    )


def is_by_words(extra: str) -> bool:
    return extra in BY_WORDS or switched_on("WITHOUT_EMBEDDINGS")


def wanted_state() -> str:
    """The text of the stamp of an installation with search by meaning, as the project is now."""
    return digest_of_requirements() + (" unlocked" if switched_on("WITHOUT_LOCK") else "")


def is_installed(extra: str) -> bool:
    """Whether pip last succeeded with what its input is now. Any extra covers running too."""
    whole = wanted_state()
    enough = {whole, f"{whole} words"} if is_by_words(extra) else {whole}
    covering = {"": ("run", *EXTRAS), "embeddings": ("embeddings", "dev", "bench")}.get(extra, (extra,))
    stamps = [VENV / f"installed-{name}" for name in covering]
    return any(stamp.exists() and stamp.read_text() in enough for stamp in stamps)


def install(extra: str) -> None:
    """Run pip, unless somebody else has done it meanwhile."""
    if is_installed(extra):
        return
    words_only, unlocked = is_by_words(extra), switched_on("WITHOUT_LOCK")
    print("Installing the packages; the first time this takes a minute ...", flush=True)
    if not words_only:
        install_torch()
    extras = ([] if words_only else ["embeddings"]) + ([extra] if extra and extra != "embeddings" else [])
    if unlocked:
        install_packages("--editable", f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT))
    else:
        install_packages(*locked("base", *extras))
    if not words_only:
        print("Looking for the model of search by meaning ...", flush=True)
        if subprocess.call([str(PYTHON), "-P", str(MODEL)]) != 0:
            sys.exit("The model of search by meaning is not installed; the reason is above.")
    (VENV / f"installed-{extra or 'run'}").write_text(wanted_state() + (" words" if words_only else ""))


def digest_of_requirements() -> str:
    digest = hashlib.sha256()
    for path in (ROOT / "pyproject.toml", *sorted((ROOT / "requirements").glob("*.txt"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def locked(*names: str) -> list[str]:
    """The arguments of pip for lock files. They are complete: pip need not look for dependencies."""
    files = [str(ROOT / "requirements" / f"{name}.txt") for name in names]
    return [
        "--no-deps",
        "--require-hashes",
        "--only-binary=:all:",
        *(word for file in files for word in ("--requirement", file)),
    ]


def install_packages(*arguments: str) -> None:
    done = subprocess.run(pip(*arguments), stderr=subprocess.PIPE, text=True)
    sys.stderr.write(done.stderr)
    if "DO NOT MATCH THE HASHES" in done.stderr:
        sys.exit(
            "A file is not the one that the lock file in requirements/ names; pip shows above which. Nothing was "
            "installed. Either it was changed on its way, or the index that pip is configured for has a build of its "
            "own. If you trust that index, install by the versions in pyproject.toml: WITHOUT_LOCK=1 make run"
        )
    if done.returncode != 0:
        sys.exit(
            "pip could not install the packages; its output is above. This step needs the network (PyPI, or the index "
            "that pip is configured for). Run it again when the network works; downloads are not repeated. If there "
            "is no such version for this machine or this Python: WITHOUT_LOCK=1 make run"
        )


def switched_on(name: str) -> bool:
    value = os.environ.get(name, "").strip().lower()
    if value not in {"", "0", "1", "true", "false", "yes", "no", "on", "off"}:
        sys.exit(f"{name}={value!r} is not a boolean: write 1 or 0.")
    return value in {"1", "true", "yes", "on"}


def pip(*arguments: str) -> list[str]:
    return [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]


def install_torch() -> None:
    """A torch for the processor, where one is to be had; none of several gigabytes unless that is asked for."""
    there = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    if subprocess.call([str(PYTHON), "-c", there]) == 0:
        return
    print("Installing torch, for search by meaning ...", flush=True)
    lock = (ROOT / "requirements" / "torch.txt").read_text()
    pinned = re.search(r"^torch==[^\s;]+", lock, re.MULTILINE)
    assert pinned is not None  # noqa: S101  # the tests hold the file against pyproject.toml
    if switched_on("ALLOW_CUDA_TORCH"):
        # With its libraries, of which it names the exact versions.
        if subprocess.call(pip(pinned[0])) == 0:
            return
    else:
        found = hash_of_small(pinned[0])
        if found and found in lock:
            if subprocess.call(pip(*locked("torch"))) == 0:
                return
        elif found is not None and subprocess.call(pip("--no-deps", pinned[0])) == 0:
            print(f"The lock file does not know this build of {pinned[0]}: SHA-256 {found or 'not known'}.", flush=True)
            return
        # uv knows where torch for the processor alone is to be had.
        uv = [str(PYTHON), "-m", "uv", "pip", "install", "--quiet", "--python", str(PYTHON), "--torch-backend=cpu"]
        if subprocess.call(pip(*locked("lock"))) == 0 and subprocess.call([*uv, "--no-deps", pinned[0]]) == 0:
            print(f"The lock file does not know this build of {pinned[0]}, from torch's own index.", flush=True)
            return
    sys.exit(
        "torch, which search by meaning needs, could not be installed for the CPU only (a download of about 200 MB). "
        "The output above shows what was tried. Either install torch into .venv yourself and run this again; or allow "
        "the torch that pip finds, on Linux about 3 GB to download and 7 GB on disk: ALLOW_CUDA_TORCH=1 make run; or "
        "search by words only: WITHOUT_EMBEDDINGS=1 make run"
    )


def hash_of_small(candidate: str) -> str | None:
    """The SHA-256 of the file that pip would install, empty if it is not known; None if there is no such file, or if it
    needs the libraries for graphics cards. Asks, and installs nothing.
    """
    asked = subprocess.run(pip("--dry-run", "--report", "-", candidate), capture_output=True)
    if asked.returncode != 0:
        return None
    try:
        files = {str(one["metadata"]["name"]).lower(): one for one in json.loads(asked.stdout)["install"]}
        if any(name.startswith("nvidia") or "cuda" in name for name in files):
            return None
        archive = files["torch"]["download_info"].get("archive_info", {})
        return str(archive.get("hashes", {}).get("sha256", ""))
    except (ValueError, KeyError, TypeError, AttributeError):  # a pip that is older than its reports
        return None


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
