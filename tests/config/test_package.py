"""The installed package: all of the site in one package of its own, and a command with the data of the user."""

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling import build as hatchling_build

import mnemoscope

ROOT = Path(mnemoscope.__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TOOL, VERSION = PROJECT["tool"], PROJECT["project"]["version"]
WHEEL = TOOL["hatch"]["build"]["targets"]["wheel"]


def run(*arguments, folder, **environment):
    inherited = {name: value for name, value in os.environ.items() if name != "MNEMOSCOPE_HOME"}
    command = [sys.executable, "-m", "mnemoscope", *arguments]
    done = subprocess.run(
        command, cwd=folder, env={**inherited, **environment}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_whole_site_is_in_the_wheel_and_nothing_of_it_at_its_top():
    site = {*TOOL["importlinter"]["root_packages"], "static", "templates"}
    assert set(WHEEL["only-include"]) == site | {"mnemoscope"}
    assert WHEEL["sources"] == {name: f"mnemoscope/site/{name}" for name in site}
    assert set(WHEEL["force-include"].values()) == {
        "mnemoscope/site/docs",
        "mnemoscope/site/manage.py",
        "mnemoscope/site/pyproject.toml",
    }


@pytest.mark.release
def test_wheel_and_source_have_everything_that_running_takes(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    wheel = tmp_path / hatchling_build.build_wheel(str(tmp_path))
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    assert {name.partition("/")[0].partition("-")[0] for name in inside} == {"mnemoscope"}
    for part in (
        "manage.py",
        "pyproject.toml",
        "config/settings.py",
        "docs/operating.md",
        "memories/migrations/0001_initial.py",
        "memories/sample/team.jsonl",
        "static/css/outage.css",
        "templates/base.html",
    ):
        assert f"mnemoscope/site/{part}" in inside
    assert not [name for name in inside if name.endswith(".pyc") or "/tests/" in name or "/var/" in name]
    with tarfile.open(tmp_path / hatchling_build.build_sdist(str(tmp_path))) as archive:
        source = {name.partition("/")[2] for name in archive.getnames()}
    assert {"bootstrap.py", "requirements/base.txt", "tests/conftest.py", "mnemoscope/__init__.py"} <= source


@pytest.mark.release
def test_checkout_can_be_installed_in_place(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    with zipfile.ZipFile(tmp_path / hatchling_build.build_editable(str(tmp_path))) as archive:
        assert archive.read("_mnemoscope.pth").decode().strip() == str(ROOT)


@pytest.mark.release
def test_installed_command_runs_the_site_beside_it_with_the_data_of_the_user(tmp_path):
    package = tmp_path / "lib" / "mnemoscope"
    shutil.copytree(mnemoscope.HERE, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "site").mkdir()
    shows = "import os, sys\ndef main():\n    print(os.environ['MNEMOSCOPE_HOME'], sys.argv[1:], sys.path[0])\n"
    (package / "site" / "manage.py").write_text(shows)
    # Without it, the data of root is in a folder that the account of Postgres can enter.
    (tmp_path / "data" / "mnemoscope").mkdir(parents=True)
    user = {"PYTHONPATH": str(tmp_path / "lib"), "XDG_DATA_HOME": str(tmp_path / "data"), "HOME": str(tmp_path)}
    home, words, first = run("up", folder=tmp_path, **user).split()
    assert Path(home).name == "mnemoscope"
    assert Path(home).is_relative_to(tmp_path)
    assert (words, Path(first)) == ("['up']", package / "site")
    assert run("up", folder=tmp_path, **user, MNEMOSCOPE_HOME="/srv/m").startswith("/srv/m ")


def test_command_of_a_checkout_has_the_verbs_of_manage_py(tmp_path):
    verbs = run("help", "--commands", folder=tmp_path, PYTHONPATH=str(ROOT), MNEMOSCOPE_HOME=str(tmp_path)).split()
    assert {"up", "backup", "import_memories", "create_api_key", "mcp", "worker"} <= set(verbs)


def test_changelog_begins_with_this_version_and_what_to_do_for_it():
    newest = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1]
    assert newest.startswith(f"{VERSION}\n")
    assert "### Upgrading" in newest


def test_version_of_the_command_is_that_of_the_project(tmp_path):
    said = run("--version", folder=tmp_path, PYTHONPATH=str(ROOT), MNEMOSCOPE_HOME=str(tmp_path))
    assert said == f"{VERSION}\n"
