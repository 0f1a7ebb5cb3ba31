"""The settings under test: the real ones in a home of their own, with a quick Postgres unless DATABASE_URL is set."""

import os
from pathlib import Path
from types import MethodType

# Set before the real settings are read. A server that somebody runs from var/ is left alone.
TEST_HOME = Path(__file__).resolve().parent.parent / "var" / "test"
os.environ["MNEMOSCOPE_HOME"] = str(TEST_HOME)
# The environment of a developer's own server does not apply to tests.
OF_A_SERVER = (
    "API_REQUESTS_PER_MINUTE",
    "ALLOWED_HOSTS",
    "CSRF_TRUSTED_ORIGINS",
    "DEBUG",
    "EMBEDDING_MIN_SIMILARITY",
    "EMBEDDING_MODEL",
    "LOG_FORMAT",
    "LOG_LEVEL",
    "OIDC_ISSUER",
    "PORT",
    "POSTGRES_BIN",
    "PUBLIC_URL",
    "RECALLS",
    "RERANK_CANDIDATES",
    "RERANK_MODEL",
    "RERANK_TIMEOUT_MS",
    "SEARCH_ENGINE",
    "SEARCH_FACET_TIMEOUT_MS",
    "WITHOUT_EMBEDDINGS",
)
for name in (*OF_A_SERVER, "SECRET_KEY", "SECURE_COOKIES", "TZ_DEFAULT"):
    os.environ.pop(name, None)
# The tests run on a cluster if one is named; see tests/cluster.py.
if cluster := os.environ.get("CLUSTER_DATABASE_URL"):
    os.environ["DATABASE_URL"] = cluster
# A name that is no folder is looked for in the cache alone: the network is not there, and is tried for a minute.
os.environ["HF_HUB_OFFLINE"] = "1"

from jinja2 import StrictUndefined  # noqa: E402

from config.database import database_settings  # noqa: E402
from config.settings import *  # noqa: E402, F403
from config.settings import STORAGES as REAL_STORAGES  # noqa: E402

# The engine that needs nothing but the database, unless a test asks for the other.
SEARCH_ENGINE = "postgres"

# Small, deterministic and loaded at once; tests of a real model name it.
EMBEDDING_MODEL = "hashed-words"


def _refuse_methods(value):
    """In a template of a page, a method that is not called would be shown as an object of Python."""
    if isinstance(value, MethodType):
        raise TypeError(f"{value.__qualname__} is not called")
    return value


# A misspelt name in a template of a page is an error, and so is a method without its call.
TEMPLATES[0]["OPTIONS"] |= {"undefined": StrictUndefined, "finalize": _refuse_methods}  # noqa: F405

# Tests may lose their data in a crash of the machine; they need not wait for the disk.
DATABASES = {"default": database_settings(TEST_HOME, durable=False)}

# Static files come from where they lie, found when asked for: no test depends on what was collected when, and a test
# client does not list them all first.
STORAGES = {**REAL_STORAGES, "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}
STATIC_ROOT = None
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = True

# Hashing a password is slow on purpose, and no test is about that.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
