"""System checks of the database: whether it is reachable and fit for the schema. See `check --database default`."""

from collections.abc import Sequence
from typing import Any

import psycopg
from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import DatabaseError

from cluster import engine_problem
from memories.embedding.models import HASHED, dimensions_of, model_name
from memories.embedding.vectors import column_dimensions
from web.command_line import command

MIN_SERVER = 16
MIN_VECTOR = (0, 7)  # the first with halfvec

EXTENSIONS = """
SELECT e.name, e.default_version, e.installed_version, v.trusted, v.superuser
FROM pg_available_extensions e
LEFT JOIN pg_available_extension_versions v ON v.name = e.name AND v.version = e.default_version
WHERE e.name IN ('vector', 'pg_trgm', 'intarray')
"""
ROLE = """
SELECT current_user, rolsuper, has_database_privilege(current_database(), 'CREATE'), current_setting('server_encoding')
FROM pg_roles WHERE rolname = current_user
"""


def database_is_fit(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Registered under Tags.database: Django calls it for `check --database`, and before `migrate`."""
    messages: list[CheckMessage] = []
    for alias in databases or []:
        connection = connections[alias]
        if connection.vendor != "postgresql":
            messages.append(
                Error(
                    f"The database is {connection.display_name}; Mnemoscope requires PostgreSQL.",
                    hint="Set DATABASE_URL to a PostgreSQL server, or unset it to use the embedded one.",
                    id="memories.E002",
                )
            )
        elif trouble := cannot_connect(connection):
            messages.append(trouble)
        else:
            messages.extend(what_is_missing(connection) or engine_problem(alias))
    return messages


def model_fits(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Check that vectors of the configured model fit their column, if the model is on this machine."""
    source = settings.EMBEDDING_MODEL
    messages: list[CheckMessage] = []
    if source not in ("", HASHED) and settings.EMBEDDING_MIN_SIMILARITY is None:
        messages.append(
            checks.Warning(
                f"There is no known minimum similarity for EMBEDDING_MODEL={source}; 0.30 is used.",
                hint="Set EMBEDDING_MIN_SIMILARITY to a number from 0 to 1 that suits the model.",
                id="memories.W001",
            )
        )
    dimensions = dimensions_of(source)
    if DEFAULT_DB_ALIAS in (databases or ()) and dimensions is not None:
        try:
            column = column_dimensions()
        except DatabaseError:
            return messages  # the check of the database says why
        if column is not None and column != dimensions:
            messages.append(
                Error(
                    f"The vectors of {model_name(source)} have {dimensions} dimensions; the column has {column}.",
                    hint=(
                        f"Set EMBEDDING_MODEL to a model with {column}, or change the column, which removes all "
                        f"vectors: {command(f'embedding_dimensions {dimensions}')}"
                    ),
                    id="memories.E009",
                )
            )
    return messages


def cannot_connect(connection: BaseDatabaseWrapper) -> Error | None:
    """Try a connection without the pool, whose error would only be a timeout."""
    try:
        psycopg.connect(**connection.get_connection_params()).close()
    except (psycopg.Error, DatabaseError) as error:
        place = connection.settings_dict
        where = f"database {place['NAME']!r}"
        if place["HOST"] or place["PORT"]:
            where += f" on host {place['HOST'] or 'localhost'}, port {place['PORT'] or 5432}"
        return Error(
            f"The {where} cannot be reached: {str(error).strip()}",
            hint=(
                "Check that the server runs there, that the database exists, and that DATABASE_URL names them and the "
                "user correctly. Unset DATABASE_URL to use the embedded Postgres."
                if place["HOST"] or place["PORT"] or place["ENGINE"] != "config.embedded"
                else "The log of the embedded Postgres is postgres.log in MNEMOSCOPE_HOME (var/ unless it is set)."
            ),
            id="memories.E001",
        )
    return None


def what_is_missing(connection: BaseDatabaseWrapper) -> list[Error]:
    with connection.cursor() as cursor:
        cursor.execute(EXTENSIONS)
        extensions = {name: rest for name, *rest in cursor.fetchall()}
        cursor.execute(ROLE)
        role, is_superuser, may_create, encoding = cursor.fetchone()
    version = connection.pg_version  # type: ignore[attr-defined]
    errors = []
    if version < MIN_SERVER * 10000:
        errors.append(
            Error(
                f"The server is PostgreSQL {version // 10000}; Mnemoscope needs {MIN_SERVER} or later.",
                hint="Upgrade the server, point DATABASE_URL at a newer one, or unset it to use the embedded one.",
                id="memories.E003",
            )
        )
    if encoding != "UTF8":
        errors.append(
            Error(
                f"The encoding of the database is {encoding}, which cannot store every character.",
                hint="Create it again: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0.",
                id="memories.E004",
            )
        )
    for name, package in (
        ("vector", "the package pgvector"),
        ("pg_trgm", "the package of PostgreSQL's contrib modules"),
    ):
        if name not in extensions:
            errors.append(
                Error(
                    f"The extension {name} is not available on the server.",
                    hint=f"Install {package} where the server runs, or unset DATABASE_URL to use the embedded one.",
                    id="memories.E005",
                )
            )
            continue
        _, installed, trusted, needs_superuser = extensions[name]
        may_install = is_superuser or (may_create and (trusted or not needs_superuser))
        if installed is None and not may_install:
            errors.append(
                Error(
                    f"The extension {name} is not installed in this database, and the role {role} may not install it.",
                    hint=f"As a superuser, in this database: CREATE EXTENSION {name};",
                    id="memories.E006",
                )
            )
    if "vector" in extensions:
        errors.extend(vector_is_too_old(*extensions["vector"][:2]))
    if extensions.get("intarray", [None, None])[1]:
        errors.append(
            Error(
                "The extension intarray is installed in this database and hides the indexes on arrays of ids.",
                hint="DROP EXTENSION intarray; or give Mnemoscope a database of its own.",
                id="memories.E008",
            )
        )
    return errors


def vector_is_too_old(available: str, installed: str | None) -> list[Error]:
    if version_numbers(installed or available) >= MIN_VECTOR:
        return []
    minimum = ".".join(map(str, MIN_VECTOR))
    if installed and version_numbers(available) >= MIN_VECTOR:
        hint = "As its owner, in this database: ALTER EXTENSION vector UPDATE;"
    else:
        hint = f"Install pgvector {minimum} or later on the server's machine, or unset DATABASE_URL."
    return [
        Error(
            f"The extension vector is {installed or available}; Mnemoscope needs {minimum} or later, for half vectors.",
            hint=hint,
            id="memories.E007",
        )
    ]


def version_numbers(version: str) -> tuple[int, ...]:
    """'0.8.0' -> (0, 8, 0). What is not a number counts as nought."""
    return tuple(int(part) if part.isdigit() else 0 for part in version.split("."))
