"""The database: the one in DATABASE_URL, or the embedded Postgres, started on first use.

Nothing here opens a connection or starts a server, so that settings can be imported for any purpose.
"""

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from django.core.exceptions import ImproperlyConfigured
from psycopg.conninfo import conninfo_to_dict

EMBEDDED_ENGINE = "config.embedded"
EMBEDDED_DATABASE = "mnemoscope"
EXAMPLE = "postgresql://user:password@host:5432/name?sslmode=require"

# Connections of a process besides those of its requests: six for the legs of unified search, and two for threads that
# count in the background.
BACKGROUND_CONNECTIONS = 8
# A request that gets no connection within five seconds fails. Pauses between attempts to connect would double for five
# minutes: after two seconds the pool gives up, and the next request begins again, so that the site is back as soon as
# the database is. Each connection is a process of the server: idle ones are closed, four a minute.
POOL = {"min_size": 1, "timeout": 5, "reconnect_timeout": 2, "max_idle": 15}


def database_settings(home: Path, *, requests: int = 8, durable: bool = True) -> dict[str, Any]:
    """The value of DATABASES["default"], for a process that answers as many requests at once.

    `durable=False`, for tests, risks the data if the machine crashes.
    """
    url = os.environ.get("DATABASE_URL", "").strip()
    chosen = _named(url) if url else _embedded(home, durable)
    chosen["OPTIONS"]["pool"] = {**POOL, "max_size": requests + BACKGROUND_CONNECTIONS}
    # The pool checks connections before handing them out, so a restart of the server fails no request.
    return {**chosen, "CONN_HEALTH_CHECKS": True}


def _embedded(home: Path, durable: bool) -> dict[str, Any]:
    return {
        "ENGINE": EMBEDDED_ENGINE,
        "NAME": EMBEDDED_DATABASE,
        "OPTIONS": {},
        "EMBEDDED": {"data": home / "postgres", "durable": durable},
    }


def _named(url: str) -> dict[str, Any]:
    scheme = url.partition("://")[0]
    if "://" not in url or scheme not in {"postgres", "postgresql"}:
        raise ImproperlyConfigured(
            f"DATABASE_URL starts with {scheme[:20]!r}; it must start with postgresql:// (or postgres://). "
            f"Write it like {EXAMPLE}, or unset it to use the embedded Postgres."
        )
    try:
        # libpq's own parser knows every option and rejects others.
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise ImproperlyConfigured(
            f"DATABASE_URL cannot be parsed: {_without_password(url, str(error).strip())}. Write it like {EXAMPLE}; "
            "special characters in the password are percent-encoded (@ is %40, / is %2F, % is %25)."
        ) from None
    host, port = str(parts.pop("host", "")), str(parts.pop("port", ""))
    if not all(not one or (one.isdigit() and 0 < int(one) < 65536) for one in port.split(",")):
        raise ImproperlyConfigured(
            "DATABASE_URL has a port that is not a number from 1 to 65535. Write it like "
            f"{EXAMPLE}; a / or # in the password is written %2F or %23."
        )
    if "@" in host:
        raise ImproperlyConfigured("DATABASE_URL has two @: an @ in the user name or the password is written %40.")
    name = str(parts.pop("dbname", ""))
    if not name and "service" not in parts:
        raise ImproperlyConfigured(f"DATABASE_URL names no database: add its name after the host, like {EXAMPLE}.")
    user, password = str(parts.pop("user", "")), str(parts.pop("password", ""))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": user,
        "PASSWORD": password,
        "HOST": host,
        "PORT": port,
        # An unreachable host must not block a thread for minutes.
        "OPTIONS": {"connect_timeout": 10, **parts},
    }


def _without_password(url: str, message: str) -> str:
    """libpq quotes the invalid part, which may be the password."""
    password = urlsplit(url).password or ""
    return message.replace(password, "…") if password else message
