"""The version in pyproject.toml."""

import tomllib

from django.conf import settings


def read_version() -> str:
    project = tomllib.loads((settings.BASE_DIR / "pyproject.toml").read_text())["project"]
    return str(project["version"])


VERSION = read_version()
