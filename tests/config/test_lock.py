"""The lock files: they satisfy pyproject.toml, and nothing is installed that differs from them."""

import hashlib
import re
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import bootstrap

ROOT = Path(bootstrap.__file__).resolve().parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WANTED = {"base": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
TEXTS = {path.stem: path.read_text() for path in (ROOT / "requirements").glob("*.txt")}
PINNED = re.compile(r"^([a-z0-9][a-z0-9.-]*)==([^\s;]+)", re.MULTILINE)


def versions(*names):
    return dict(pair for name in names for pair in PINNED.findall(TEXTS[name]))


@pytest.mark.parametrize("extra", sorted(WANTED))
def test_lock_satisfies_the_bounds_of_the_project(extra):
    locked = versions("base", extra, "torch")
    for text in WANTED[extra]:
        wanted = Requirement(text)
        name = canonicalize_name(wanted.name)
        assert name in locked, f"{text} is not in the lock: run make lock"
        assert wanted.specifier.contains(locked[name]), f"{text} is locked as {locked[name]}: run make lock"


def test_build_backend_is_locked():
    (backend,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert Requirement(backend).specifier.contains(versions("release")["hatchling"])


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_every_version_has_hashes_and_nothing_says_where_it_comes_from(name):
    for block in re.split(r"^(?=[a-z0-9])", TEXTS[name], flags=re.MULTILINE)[1:]:
        assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", block)) >= 1, block
    assert not re.search(r"://|--index|--find-links|\.whl|/home/|/opt/", TEXTS[name])


def test_nothing_that_only_graphics_cards_take_is_locked():
    named = {name for text in TEXTS.values() for name, _ in PINNED.findall(text)}
    assert not {name for name in named if name.startswith(("nvidia", "cuda", "triton"))}
    assert {name for name, text in TEXTS.items() if re.search(r"^torch==", text, re.MULTILINE)} == {"torch"}


# --- what is installed --------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project that needs one package, which lies in a folder; pip installs into another one, without a network."""
    wheel = tmp_path / "wheels" / "small-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("small.py", "")
        archive.writestr("small-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n")
        archive.writestr("small-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("small-1.0.dist-info/RECORD", "")
    (tmp_path / ".venv").mkdir()
    (tmp_path / "requirements").mkdir()
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    for name, value in (("ROOT", tmp_path), ("VENV", tmp_path / ".venv"), ("PYTHON", Path(sys.executable))):
        monkeypatch.setattr(bootstrap, name, value)
    options = {
        "CONFIG_FILE": "/dev/null",
        "FIND_LINKS": str(wheel.parent),
        "NO_CACHE_DIR": "1",
        "NO_INDEX": "1",
        "TARGET": str(tmp_path / "installed"),
    }
    for name, value in options.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("WITHOUT_EMBEDDINGS", "1")
    monkeypatch.delenv("WITHOUT_LOCK", raising=False)

    def lock(digest):
        (tmp_path / "requirements" / "base.txt").write_text(f"small==1.0 \\\n    --hash=sha256:{digest}\n")

    lock(hashlib.sha256(wheel.read_bytes()).hexdigest())
    return tmp_path, lock


def test_file_that_the_lock_names_is_installed(project):
    folder, _ = project
    bootstrap.install("")
    assert (folder / "installed" / "small.py").exists()


def test_file_that_differs_from_the_lock_is_refused(project, capfd):
    folder, lock = project
    lock("0" * 64)
    with pytest.raises(SystemExit, match=r"not the one that the lock file.*Nothing was installed.*WITHOUT_LOCK=1"):
        bootstrap.install("")
    assert "small==1.0" in capfd.readouterr().err
    assert not (folder / "installed").exists()
    assert not (folder / ".venv" / "installed-run").exists()


def test_package_has_the_same_version_in_all_files():
    pairs = {pair for text in TEXTS.values() for pair in PINNED.findall(text)}
    assert len(pairs) == len({name for name, _ in pairs})
