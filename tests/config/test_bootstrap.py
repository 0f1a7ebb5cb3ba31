"""The bootstrap: installs when something has changed, says in words what is missing."""

import fcntl
import itertools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import bootstrap

KNOWN, UNKNOWN = "a" * 64, "b" * 64


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A project folder whose virtual environment works, and a record of what would have been run."""
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "torch.txt").write_text(f"torch==2.13.0 \\\n    --hash=sha256:{KNOWN}\n")
    environment = tmp_path / ".venv"
    (environment / "bin").mkdir(parents=True)
    python = environment / "bin" / "python"
    python.symlink_to(sys.executable)
    for name, value in (("ROOT", tmp_path), ("VENV", environment), ("PYTHON", python)):
        monkeypatch.setattr(bootstrap, name, value)
    return tmp_path


@pytest.fixture(autouse=True)
def _no_switches(monkeypatch):
    for name in ("WITHOUT_EMBEDDINGS", "WITHOUT_LOCK", "ALLOW_CUDA_TORCH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def calls(monkeypatch):
    """The commands of the bootstrap.

    `calls.code` is their exit code, `calls.model_code` that of the program for the model, `calls.report` what pip says
    that it would install.
    """

    class Calls(list):
        code = model_code = models = 0
        has_torch = True
        report = None

        @property
        def installed(self):
            """The lock files, or the last word where there are none."""
            return [word for command in self for word in files_of(command) or command[-1:]]

    seen = Calls()

    def call(command, **options):
        if command[1] == "-c":  # does the environment work? It does.
            return 0 if seen.has_torch or "torch" not in command[2] else 1
        if command[-1] == str(bootstrap.MODEL):
            seen.models += 1
            return seen.model_code
        seen.append(command)
        if "venv" in command and seen.code == 0:
            bootstrap.VENV.mkdir()
        return seen.code

    def run(command, **options):
        if "--dry-run" in command:
            code = 1 if seen.report is None else 0
            return subprocess.CompletedProcess(command, code, json.dumps({"install": seen.report}).encode(), b"")
        return subprocess.CompletedProcess(command, call(command), "", "")

    monkeypatch.setattr(subprocess, "call", call)
    monkeypatch.setattr(subprocess, "run", run)
    return seen


def files_of(command):
    return [Path(word).stem for option, word in itertools.pairwise(command) if option == "--requirement"]


def test_pip_runs_once_and_again_when_the_project_or_the_lock_changes(place, calls):
    bootstrap.main(["embeddings"])
    bootstrap.main(["embeddings"])
    assert calls.installed == ["base", "embeddings"]
    assert {"--require-hashes", "--no-deps", "--only-binary=:all:"} <= set(calls[0])
    (place / "pyproject.toml").write_text("[project]\ndependencies = []\n")
    bootstrap.main(["embeddings"])
    (place / "requirements" / "base.txt").write_text("small==1.0\n")
    bootstrap.main(["embeddings"])
    assert len(calls) == 3


def test_pages_are_installed_first_and_search_by_meaning_alone_adds_to_them(place, calls):
    calls.has_torch = False
    bootstrap.main([])
    bootstrap.main([])
    assert calls.installed == ["base"]
    assert calls.models == 0
    calls.has_torch = True
    bootstrap.main(["embeddings"])
    bootstrap.main(["embeddings"])
    bootstrap.main([])
    assert calls.installed == ["base", "base", "embeddings"]


@pytest.mark.parametrize("extra", ["dev", "bench"])
def test_what_covers_running_and_meaning_is_not_installed_again(place, calls, extra):
    bootstrap.main([extra])
    bootstrap.main([])
    bootstrap.main(["embeddings"])
    assert calls.installed == ["base", "embeddings", extra]


def test_a_second_installation_waits_for_the_first(place, calls, capsys):
    folder = os.open(bootstrap.VENV, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    threading.Timer(0.3, os.close, [folder]).start()
    bootstrap.main([])
    assert "Waiting until another installation" in capsys.readouterr().out
    assert calls.installed == ["base"]


def test_without_the_lock_the_bounds_of_the_project_decide(place, calls, monkeypatch):
    monkeypatch.setenv("WITHOUT_LOCK", "1")
    bootstrap.main(["embeddings"])
    bootstrap.main(["dev"])
    assert [command[-1] for command in calls] == [f"{place}[embeddings]", f"{place}[embeddings,dev]"]
    monkeypatch.delenv("WITHOUT_LOCK")
    bootstrap.main(["embeddings"])
    assert calls.installed[-2:] == ["base", "embeddings"]


# --- torch ----------------------------------------------------------------------------------------------------------


def package(name, digest=UNKNOWN):
    return {"metadata": {"name": name}, "download_info": {"archive_info": {"hashes": {"sha256": digest}}}}


@pytest.mark.parametrize(
    ("report", "installed", "shown"),
    [
        pytest.param([package("torch", KNOWN), package("sympy")], ["torch"], "", id="the file of the lock"),
        pytest.param([package("torch")], ["torch==2.13.0"], UNKNOWN, id="another build, and small"),
        pytest.param([package("torch"), package("nvidia-cublas")], ["lock", "torch==2.13.0"], "own index", id="large"),
        pytest.param(None, ["lock", "torch==2.13.0"], "own index", id="none"),
    ],
)
def test_small_torch_is_installed_before_what_needs_it(place, calls, capsys, report, installed, shown):
    calls.has_torch, calls.report = False, report
    bootstrap.main(["embeddings"])
    assert calls.installed == [*installed, "base", "embeddings"]
    assert all("--no-deps" in command for command in calls)
    assert shown in capsys.readouterr().out
    assert ("--torch-backend=cpu" in calls[1]) == ("lock" in installed)


def test_torch_of_gigabytes_is_not_installed_unasked(place, calls, monkeypatch):
    calls.has_torch, calls.report, calls.code = False, [package("torch"), package("nvidia-cublas")], 1
    with pytest.raises(
        SystemExit, match=r"about 3 GB to download.*ALLOW_CUDA_TORCH=1 make run.*WITHOUT_EMBEDDINGS=1 make run"
    ):
        bootstrap.main(["embeddings"])
    assert calls.installed == ["lock"]
    calls.code = 0
    calls.clear()
    monkeypatch.setenv("ALLOW_CUDA_TORCH", "1")
    bootstrap.main(["embeddings"])
    assert calls.installed == ["torch==2.13.0", "base", "embeddings"]


def test_without_search_by_meaning_nothing_of_it_is_installed(place, calls, monkeypatch):
    calls.has_torch = False
    monkeypatch.setenv("WITHOUT_EMBEDDINGS", "1")
    bootstrap.main(["embeddings"])
    bootstrap.main(["dev"])
    assert calls.installed == ["base", "base", "dev"]
    monkeypatch.delenv("WITHOUT_EMBEDDINGS")
    calls.has_torch = True
    bootstrap.main(["embeddings"])
    assert calls.installed[-2:] == ["base", "embeddings"]


@pytest.mark.parametrize(("switch", "times"), [pytest.param("", 1, id="meaning"), pytest.param("1", 0, id="words")])
def test_model_is_fetched_and_its_weights_compared_once(place, calls, monkeypatch, switch, times):
    monkeypatch.setenv("WITHOUT_EMBEDDINGS", switch)
    bootstrap.main(["embeddings"])
    bootstrap.main(["embeddings"])
    assert calls.models == times
    assert bootstrap.MODEL.exists()


# --- what goes wrong ------------------------------------------------------------------------------------------------


def test_bootstrap_needs_nothing_but_the_standard_library():
    alone = [sys.executable, "-I", "-S", "-c", f"import runpy; runpy.run_path({bootstrap.__file__!r})"]
    done = subprocess.run(alone, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
