"""The version in pyproject.toml, and that of the API."""

import tomllib

from django.conf import settings


def read_version() -> str:
    project = tomllib.loads((settings.BASE_DIR / "pyproject.toml").read_text())["project"]
    return str(project["version"])


VERSION = read_version()
# Rises with a change that may break a client; see "Stability" in docs/api.md.
API_VERSION = "1"
