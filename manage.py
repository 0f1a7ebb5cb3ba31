#!/usr/bin/env python
"""The stock Django entry point, except that a wrong setting or a database that is down is reported in a sentence."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    import psycopg
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line
    from django.db.utils import InterfaceError, OperationalError

    try:
        execute_from_command_line(sys.argv)
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
        command = "mnemoscope" if os.path.basename(sys.argv[0]) == "mnemoscope" else "python manage.py"  # noqa: PTH119
        sys.exit(f"The database does not answer: {error}\nTo see why: {command} check --database default")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
