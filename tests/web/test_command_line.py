import sys

from web import command_line
from web.command_line import command, local_command


def test_command_of_a_checkout_names_its_python_and_the_folder_of_the_data_in_a_terminal(monkeypatch, tmp_path):
    monkeypatch.setattr(command_line, "_SITE", tmp_path)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    monkeypatch.setenv("MNEMOSCOPE_HOME", "/srv/my notes")
    assert command("sign_in_link") == ".venv/bin/python manage.py sign_in_link"
    assert local_command("sign_in_link") == "MNEMOSCOPE_HOME='/srv/my notes' .venv/bin/python manage.py sign_in_link"
    monkeypatch.delenv("MNEMOSCOPE_HOME")
    assert local_command("sign_in_link") == ".venv/bin/python manage.py sign_in_link"


def test_command_of_a_package_is_its_own(monkeypatch, tmp_path):
    monkeypatch.setattr(command_line, "_SITE", tmp_path / "mnemoscope" / "site")
    assert command("backup FILE") == "mnemoscope backup FILE"


def test_command_of_a_package_leaves_out_the_home_that_it_has_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(command_line, "_SITE", tmp_path / "mnemoscope" / "site")
    monkeypatch.setenv("MNEMOSCOPE_HOME", "/home/ann/.local/share/mnemoscope")
    monkeypatch.setenv("MNEMOSCOPE_USUAL_HOME", "/home/ann/.local/share/mnemoscope")
    assert local_command("sign_in_link") == "mnemoscope sign_in_link"
    monkeypatch.setenv("MNEMOSCOPE_HOME", "/srv/notes")
    assert local_command("sign_in_link") == "MNEMOSCOPE_HOME=/srv/notes mnemoscope sign_in_link"
