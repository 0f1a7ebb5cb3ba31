"""The installed package: all of the site in one package of its own, and a command with the data of the user."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import mnemoscope

ROOT = Path(mnemoscope.__file__).resolve().parent.parent
TOOL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
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
    site = {*TOOL["importlinter"]["root_packages"], "bench", "static", "templates"}
    assert set(WHEEL["only-include"]) == site | {"mnemoscope"}
    assert WHEEL["sources"] == {name: f"mnemoscope/site/{name}" for name in site}
    assert set(WHEEL["force-include"].values()) == {"mnemoscope/site/manage.py", "mnemoscope/site/pyproject.toml"}


def test_installed_command_runs_the_site_beside_it_with_the_data_of_the_user(tmp_path):
    package = tmp_path / "lib" / "mnemoscope"
    shutil.copytree(mnemoscope.HERE, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "site").mkdir()
    shows = "import os, sys\ndef main():\n    print(os.environ['MNEMOSCOPE_HOME'], sys.argv[1:], sys.path[0])\n"
    (package / "site" / "manage.py").write_text(shows)
    user = {"PYTHONPATH": str(tmp_path / "lib"), "XDG_DATA_HOME": str(tmp_path / "data"), "HOME": str(tmp_path)}
    home, words, first = run("up", folder=tmp_path, **user).split()
    assert Path(home).name == "mnemoscope"
    assert Path(home).is_relative_to(tmp_path)
    assert (words, Path(first)) == ("['up']", package / "site")
    assert run("up", folder=tmp_path, **user, MNEMOSCOPE_HOME="/srv/m").startswith("/srv/m ")


def test_command_of_a_checkout_has_the_verbs_of_manage_py(tmp_path):
    verbs = run("help", "--commands", folder=tmp_path, PYTHONPATH=str(ROOT), MNEMOSCOPE_HOME=str(tmp_path)).split()
    assert {"up", "backup", "import_memories", "create_api_key", "mcp", "worker"} <= set(verbs)
