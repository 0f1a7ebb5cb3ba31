"""Makes .venv beside this file and installs what the project needs into it. The standard library is all it uses.

`python3 bootstrap.py` installs what running takes, `python3 bootstrap.py dev` also what testing and linting take,
`python3 bootstrap.py bench` what the benchmarks compare with. It does nothing, quickly, when nothing has changed since.

Search by meaning takes torch. What pip would install as that may be gigabytes, for graphics cards: then a smaller one
is looked for, and none is installed without being asked for.
"""

# Old Pythons must get as far as the message that they are too old: no syntax here that is younger than 3.7.
from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LEAST = (3, 11)
NEWEST_TO_TRY = 15
# The first of these that pip would install without what only graphics cards need.
TORCH = ("torch==2.13.0", "torch")


def main(arguments: list[str]) -> None:
    if arguments not in ([], ["dev"], ["bench"]):
        sys.exit("usage: python3 bootstrap.py [dev|bench]")
    if os.name == "nt":
        sys.exit("This creates a Unix layout. On Windows use WSL, or see 'Without make' in README.md.")
    make_environment()
    install(arguments[0] if arguments else "")


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


def install(extra: str) -> None:
    """Run pip, unless pyproject.toml is what it was when pip last succeeded. Any extra covers running too."""
    words_only = switched_on("WITHOUT_EMBEDDINGS")
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest() + (" words" if words_only else "")
    covering = [extra] if extra else ["run", "dev", "bench"]
    stamps = [VENV / f"installed-{name}" for name in covering]
    if any(stamp.exists() and stamp.read_text() == wanted for stamp in stamps):
        return
    print("Installing the packages that pyproject.toml names; the first time this takes a minute ...", flush=True)
    if not words_only:
        install_torch()
    extras = ",".join(([] if words_only else ["embeddings"]) + ([extra] if extra else []))
    if subprocess.call(pip("--editable", f"{ROOT}[{extras}]" if extras else str(ROOT))) != 0:
        sys.exit(
            "pip could not install the packages; its output is above. This step needs the network (PyPI, or the index "
            "that pip is configured for). Run it again when the network works; downloads are not repeated."
        )
    (VENV / f"installed-{extra or 'run'}").write_text(wanted)


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
    if switched_on("ALLOW_CUDA_TORCH"):
        if subprocess.call(pip("torch")) == 0:
            return
    else:
        for candidate in TORCH:
            if is_small(candidate) and subprocess.call(pip(candidate)) == 0:
                return
        # uv knows where torch for the processor alone is to be had.
        uv = [str(PYTHON), "-m", "uv", "pip", "install", "--quiet", "--python", str(PYTHON), "--torch-backend=cpu"]
        if subprocess.call(pip("uv")) == 0 and subprocess.call([*uv, "torch"]) == 0:
            return
    sys.exit(
        "torch, which search by meaning needs, could not be installed for the CPU only (a download of about 200 MB). "
        "The output above shows what was tried. Either install torch into .venv yourself and run this again; or allow "
        "the torch that pip finds, on Linux about 3 GB to download and 7 GB on disk: ALLOW_CUDA_TORCH=1 make run; or "
        "search by words only: WITHOUT_EMBEDDINGS=1 make run"
    )


def is_small(candidate: str) -> bool:
    """Whether pip would install it, and without the libraries for graphics cards. Asks, and installs nothing."""
    asked = subprocess.run(pip("--dry-run", "--report", "-", candidate), capture_output=True)
    if asked.returncode != 0:
        return False
    try:
        names = [str(one["metadata"]["name"]).lower() for one in json.loads(asked.stdout)["install"]]
    except (ValueError, KeyError, TypeError):  # a pip that is older than its reports
        return False
    return not any(name.startswith("nvidia") or "cuda" in name for name in names)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
