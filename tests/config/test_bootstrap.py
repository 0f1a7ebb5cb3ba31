"""The bootstrap: installs when something has changed, says in words what is missing."""

import json
import subprocess
import sys

import pytest

import bootstrap


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A project folder whose virtual environment works, and a record of what would have been run."""
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    environment = tmp_path / ".venv"
    (environment / "bin").mkdir(parents=True)
    python = environment / "bin" / "python"
    python.symlink_to(sys.executable)
    for name, value in (("ROOT", tmp_path), ("VENV", environment), ("PYTHON", python)):
        monkeypatch.setattr(bootstrap, name, value)
    return tmp_path


@pytest.fixture(autouse=True)
def _no_switches(monkeypatch):
    for name in ("WITHOUT_EMBEDDINGS", "ALLOW_CUDA_TORCH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def calls(monkeypatch):
    """The commands of the bootstrap, by their last words; `calls.code` is their exit code."""

    class Calls(list):
        code = 0
        has_torch = True

    seen = Calls()

    def call(command, **options):
        if command[1] == "-c":  # does the environment work? It does.
            return 0 if seen.has_torch or "torch" not in command[2] else 1
        seen.append(command)
        if "venv" in command and seen.code == 0:
            bootstrap.VENV.mkdir()
        return seen.code

    monkeypatch.setattr(subprocess, "call", call)
    return seen


def test_pip_runs_once_and_again_when_the_project_changes(place, calls):
    bootstrap.main([])
    bootstrap.main([])
    assert [command[-1] for command in calls] == [f"{place}[embeddings]"]
    (place / "pyproject.toml").write_text("[project]\ndependencies = []\n")
    bootstrap.main([])
    assert len(calls) == 2


def test_what_testing_takes_covers_running_and_not_the_other_way(place, calls):
    bootstrap.main([])
    bootstrap.main(["dev"])
    bootstrap.main([])
    bootstrap.main(["dev"])
    assert [command[-1] for command in calls] == [f"{place}[embeddings]", f"{place}[embeddings,dev]"]


def test_what_benchmarks_take_covers_running_and_is_installed_beside_what_testing_takes(place, calls):
    bootstrap.main(["dev"])
    bootstrap.main(["bench"])
    for arguments in (["bench"], ["dev"], []):
        bootstrap.main(arguments)
    assert [command[-1] for command in calls] == [f"{place}[embeddings,dev]", f"{place}[embeddings,bench]"]


# --- torch ----------------------------------------------------------------------------------------------------------


def reports(monkeypatch, **packages):
    """The packages that pip would install, by requirement; an error for None."""

    def run(command, **options):
        assert "--dry-run" in command
        names = packages[command[-1].replace("==2.13.0", "_2_13_0")]
        report = {"install": [{"metadata": {"name": name}} for name in names or ()]}
        return subprocess.CompletedProcess(command, 1 if names is None else 0, json.dumps(report).encode(), b"")

    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.parametrize(
    ("packages", "installed"),
    [
        pytest.param({"torch_2_13_0": ["torch", "sympy"]}, ["torch==2.13.0"], id="the first one is small"),
        pytest.param({"torch_2_13_0": None, "torch": ["torch"]}, ["torch"], id="there is no such one"),
        pytest.param(
            {"torch_2_13_0": ["torch", "nvidia-cublas"], "torch": ["torch", "cuda-bindings"]},
            ["uv", "torch"],
            id="both come with what graphics cards need",
        ),
    ],
)
def test_smallest_torch_is_installed_before_what_needs_it(place, calls, monkeypatch, packages, installed):
    calls.has_torch = False
    reports(monkeypatch, **packages)
    bootstrap.main([])
    assert [command[-1] for command in calls] == [*installed, f"{place}[embeddings]"]
    if "uv" in installed:
        assert "--torch-backend=cpu" in calls[1]


def test_torch_of_gigabytes_is_not_installed_unasked(place, calls, monkeypatch):
    calls.has_torch = False
    calls.code = 1
    reports(monkeypatch, torch_2_13_0=["torch", "nvidia-cublas"], torch=["torch", "nvidia-cublas"])
    with pytest.raises(
        SystemExit, match=r"about 3 GB to download.*ALLOW_CUDA_TORCH=1 make run.*WITHOUT_EMBEDDINGS=1 make run"
    ):
        bootstrap.main([])
    assert [command[-1] for command in calls] == ["uv"]
    calls.code = 0
    calls.clear()
    monkeypatch.setenv("ALLOW_CUDA_TORCH", "1")
    bootstrap.main([])
    assert [command[-1] for command in calls] == ["torch", f"{place}[embeddings]"]


def test_without_search_by_meaning_nothing_of_it_is_installed(place, calls, monkeypatch):
    calls.has_torch = False
    monkeypatch.setenv("WITHOUT_EMBEDDINGS", "1")
    bootstrap.main([])
    bootstrap.main(["dev"])
    assert [command[-1] for command in calls] == [str(place), f"{place}[dev]"]
    monkeypatch.delenv("WITHOUT_EMBEDDINGS")
    calls.has_torch = True
    bootstrap.main([])
    assert calls[-1][-1] == f"{place}[embeddings]"


def test_switch_that_is_none_is_told(place, calls, monkeypatch):
    monkeypatch.setenv("WITHOUT_EMBEDDINGS", "maybe")
    with pytest.raises(SystemExit, match="WITHOUT_EMBEDDINGS='maybe' is not a boolean: write 1 or 0"):
        bootstrap.main([])


# --- what goes wrong ------------------------------------------------------------------------------------------------


def test_failed_install_is_told_and_tried_again(place, calls):
    calls.code = 1
    for _ in range(2):
        with pytest.raises(SystemExit, match="pip could not install the packages"):
            bootstrap.main([])
    assert len(calls) == 2


def test_environment_whose_python_is_gone_is_made_anew(place, calls, capsys):
    bootstrap.PYTHON.unlink()
    bootstrap.main([])
    assert calls[0][1:] == ["-m", "venv", str(place / ".venv")]
    assert "creating it again" in capsys.readouterr().out


def test_missing_venv_module_is_told_with_the_package_to_install(place, calls):
    bootstrap.PYTHON.unlink()
    calls.code = 1
    with pytest.raises(SystemExit, match="apt-get install python3-venv"):
        bootstrap.main([])
    assert not (place / ".venv").exists()


def test_old_python_gives_way_to_a_newer_one_on_the_path(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(bootstrap.shutil, "which", lambda name: f"/somewhere/{name}" if name == "python3.12" else None)
    assert bootstrap.python_to_use() == "/somewhere/python3.12"


def test_old_python_alone_is_told_what_to_do(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(bootstrap.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match=r"needs Python 3\.11 or later.*make run PYTHON="):
        bootstrap.python_to_use()


def test_bootstrap_needs_nothing_but_the_standard_library():
    alone = [sys.executable, "-I", "-S", "-c", f"import runpy; runpy.run_path({bootstrap.__file__!r})"]
    done = subprocess.run(alone, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_unknown_argument_shows_the_usage():
    with pytest.raises(SystemExit, match="usage"):
        bootstrap.main(["everything"])
