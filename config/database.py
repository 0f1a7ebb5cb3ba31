"""Which Postgres: DATABASE_URL, or the embedded one."""
import os
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit


def database_settings(home: Path) -> dict[str, Any]:
    parts = urlsplit(os.environ["DATABASE_URL"])
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/") or "postgres", "USER": unquote(parts.username or ""), "PASSWORD": unquote(parts.password or ""),
        "HOST": dict(parse_qsl(parts.query)).get("host") or parts.hostname or "", "PORT": parts.port or "",
        "OPTIONS": {"pool": {"min_size": 1, "max_size": 8, "timeout": 5}},
    }
