#!/usr/bin/env python
"""The stock Django entry point, except that a wrong setting or a database that is down is reported in a sentence."""

import os
import sys

# Commands for the database of a site that was started before. They must not begin another, empty one.
OF_A_SITE = {
    "backup",
    "check_vocabulary",
    "create_api_key",
    "embedding_dimensions",
    "export_memories",
    "import_memories",
    "index",
    "list_api_keys",
    "mcp",
    "revoke_api_key",
    "rotate_api_key",
    "sign_in_link",
    "suggest",
    "worker",
}


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    try:
        import psycopg
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
        from django.db.utils import InterfaceError, OperationalError, ProgrammingError
    except ModuleNotFoundError as error:
        sys.exit(
            f"This Python ({sys.executable}) lacks the package {error.name}. "
            "Use the one that the packages are installed in: .venv/bin/python manage.py … after `make run`."
        )

    if sys.argv[1:] == ["--version"]:
        from web.version import read_version

        sys.stdout.write(f"{read_version()}\n")
        return
    try:
        if sys.argv[1:2] and sys.argv[1] in OF_A_SITE and "--help" not in sys.argv:
            refuse_without_site()
        execute_from_command_line(sys.argv)
    except ProgrammingError as error:
        if "--traceback" in sys.argv or not isinstance(error.__cause__, psycopg.errors.UndefinedTable):
            raise
        from web.command_line import local_command, start_command

        sys.exit(
            f"The database lacks tables of Mnemoscope. Start it ({start_command()}), or: {local_command('migrate')}"
        )
    except ImproperlyConfigured as error:
        if "--traceback" in sys.argv:
            raise
        sys.exit(f"A setting is wrong. {error}")
    except (OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError) as error:
        if "--traceback" in sys.argv:
            raise
        if "too many clients" in str(error) or "connection slots" in str(error):
            sys.exit(
                f"The database has no free connection: {error}\n"
                "End other programs that use it, or raise its max_connections, and try again."
            )
        from web.command_line import local_command

        sys.exit(f"The database does not answer: {error}\nTo see why: {local_command('check --database default')}")
    except Exception as error:
        if "--traceback" in sys.argv or "No space left on device" not in str(error):
            raise
        from django.conf import settings

        sys.exit(f"The disk that holds {settings.HOME} is full ({error}). Free some of it, and start this again.")
    except KeyboardInterrupt:
        sys.exit(130)


def refuse_without_site() -> None:
    """End the program if there is no embedded Postgres yet, where one is to be used."""
    from django.conf import settings

    from web.command_line import start_command

    embedded = settings.DATABASES["default"].get("EMBEDDED")
    if embedded and not (embedded["data"] / "PG_VERSION").exists():
        sys.exit(
            f"There is no Mnemoscope in {settings.HOME}. Start one there with: {start_command()}. "
            "If yours is in another folder, set MNEMOSCOPE_HOME to it, as for the server."
        )


if __name__ == "__main__":
    main()
