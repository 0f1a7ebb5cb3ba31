"""The readers of the environment: a wrong value is refused with its name, the value and what is allowed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from config.settings import env_bool, env_choice, env_int, env_list, env_zone

ROOT = Path(__file__).resolve().parent.parent.parent
READERS = {
    "switch": lambda: env_bool("A_SETTING", False),
    "number": lambda: env_int("A_SETTING", 8000, low=1, high=65535),
    "choice": lambda: env_choice("A_SETTING", "WARNING", ["INFO", "WARNING"]),
    "zone": lambda: env_zone("A_SETTING", "UTC"),
    "list": lambda: env_list("A_SETTING", ["localhost"]),
}


def settings_of(home, *names, **chosen):
    """Settings as a server with this home has them."""
    program = f"import json; from config import settings; print(json.dumps([getattr(settings, n) for n in {names}]))"
    environment = {**os.environ, "MNEMOSCOPE_HOME": str(home), **chosen}
    environment.pop("SECRET_KEY", None)
    asked = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True)
    return json.loads(asked.stdout)


def test_two_installations_on_one_machine_do_not_share_cookies(tmp_path):
    names = ("SESSION_COOKIE_NAME", "CSRF_COOKIE_NAME")
    first, second = (settings_of(tmp_path / home, *names) for home in ("first", "second"))
    assert len({*first, *second}) == 4
    assert settings_of(tmp_path / "first", *names) == first


def test_proxy_that_terminates_tls_is_believed_only_if_there_is_one(tmp_path):
    names = ("SECURE_PROXY_SSL_HEADER", "SECURE_HSTS_SECONDS", "SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE")
    assert settings_of(tmp_path, *names) == [None, 0, False, False]
    behind = settings_of(tmp_path, *names, BEHIND_TLS_PROXY="1", HSTS_SECONDS="3600")
    assert behind == [["HTTP_X_FORWARDED_PROTO", "https"], 3600, True, True]


@pytest.mark.parametrize(
    ("reader", "text", "value"),
    [
        pytest.param("switch", "Yes", True, id="switch on"),
        pytest.param("switch", "0", False, id="switch off"),
        pytest.param("switch", "", False, id="switch unset"),
        pytest.param("number", " 9000 ", 9000, id="number"),
        pytest.param("number", "", 8000, id="number unset"),
        pytest.param("choice", "info", "INFO", id="choice in any case"),
        pytest.param("choice", "", "WARNING", id="choice unset"),
        pytest.param("zone", "Europe/Berlin", "Europe/Berlin", id="zone"),
        pytest.param("zone", "", "UTC", id="zone unset"),
        pytest.param("list", "a.example, b.example,", ["a.example", "b.example"], id="list"),
        pytest.param("list", " , ", ["localhost"], id="list of nothing"),
    ],
)
def test_value_is_read(monkeypatch, reader, text, value):
    monkeypatch.setenv("A_SETTING", text)
    assert READERS[reader]() == value


@pytest.mark.parametrize(
    ("reader", "text", "allowed"),
    [
        pytest.param("switch", "maybe", "write 1 or 0", id="switch"),
        pytest.param("number", "eight", "from 1 to 65535", id="not a number"),
        pytest.param("number", "0", "from 1 to 65535", id="too small"),
        pytest.param("number", "-1", "from 1 to 65535", id="negative"),
        pytest.param("number", "65536", "from 1 to 65535", id="too large"),
        pytest.param("choice", "LOUD", "INFO, WARNING", id="choice"),
        pytest.param("zone", "Berlin", "such as Europe/Berlin", id="zone"),
        pytest.param("zone", "../etc/passwd", "such as Europe/Berlin", id="zone outside"),
        pytest.param("zone", "Europe", "such as Europe/Berlin", id="folder of zones"),
    ],
)
def test_wrong_value_is_refused(monkeypatch, reader, text, allowed):
    monkeypatch.setenv("A_SETTING", text)
    with pytest.raises(ImproperlyConfigured) as refused:
        READERS[reader]()
    for part in ("A_SETTING", text.upper() if reader == "choice" else text, allowed):
        assert part in str(refused.value)
