"""The one settings file. What a user may change is an environment variable, read by a reader that fails loudly."""

import hashlib
import logging
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from django.core.exceptions import ImproperlyConfigured

from config.database import database_settings
from config.home import create_home, private_home

BASE_DIR = Path(__file__).resolve().parent.parent


def env_bool(name: str, default: bool) -> bool:
    """Read a switch: 1/0, true/false, yes/no, on/off."""
    value = os.environ.get(name, "").strip().lower()
    if not value:
        return default
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off"}:
        return False
    raise ImproperlyConfigured(f"{name}={value!r} is not a boolean: write 1 or 0.")


def env_int(name: str, default: int, *, low: int, high: int) -> int:
    """Read a whole number between two bounds."""
    value = os.environ.get(name, "").strip()
    if not value:
        return default
    if not value.isdigit() or not low <= int(value) <= high:
        raise ImproperlyConfigured(f"{name}={value!r} is not a whole number from {low} to {high}.")
    return int(value)


def env_share(name: str, default: float) -> float:
    """Read a number from 0 to 1."""
    value = os.environ.get(name, "").strip()
    try:
        share = float(value) if value else default
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ImproperlyConfigured(f"{name}={value!r} is not a number from 0 to 1.")
    return share


def env_shares(name: str, default: dict[str, float], *, others: bool) -> dict[str, float]:
    """Read names with a number from 0 to 1 each, such as `quality=0.1,recency=0`; other names keep their defaults."""
    found = dict(default)
    for part in env_list(name, []):
        key, _, value = (piece.strip() for piece in part.partition("="))
        if not others and key not in default:
            raise ImproperlyConfigured(f"{name}: {key!r} is not one of {', '.join(default)}.")
        try:
            found[key] = float(value)
        except ValueError:
            found[key] = -1.0
        if not key or not 0 <= found[key] <= 1:
            raise ImproperlyConfigured(f"{name}: {part!r} is not a name and a number from 0 to 1, as in quality=0.1.")
    return found


def env_list(name: str, default: list[str]) -> list[str]:
    """Read a comma list."""
    value = os.environ.get(name, "")
    return [part.strip() for part in value.split(",") if part.strip()] or default


def env_address(name: str) -> str:
    """Read the address of a site, perhaps with a path, without a slash at its end; empty if there is none."""
    value = os.environ.get(name, "").strip().rstrip("/")
    if value and not re.fullmatch(
        r"https?://([\w.-]+|\[[\da-fA-F:]+\])(:\d+)?(/[a-zA-Z\d_~-][\w.~-]*)*", value, re.ASCII
    ):
        raise ImproperlyConfigured(
            f"{name}={value!r} is not the address of a site, such as https://memories.example or "
            "https://host.example/memories."
        )
    return value


def env_choice(name: str, default: str, choices: list[str]) -> str:
    """Read one of a few words, in any case."""
    value = os.environ.get(name, "").strip().upper()
    if value and value not in choices:
        raise ImproperlyConfigured(f"{name}={value!r} is not one of {', '.join(choices)}.")
    return value or default


def env_secret(name: str, *, least: int) -> str:
    """Read a text that is hard to guess, empty if there is none."""
    value = os.environ.get(name, "").strip()
    if value and (len(value) < least or not value.isascii()):
        raise ImproperlyConfigured(f"{name} is no random text of at least {least} ASCII characters.")
    return value


def env_zone(name: str, default: str) -> str:
    """Read the name of a time zone."""
    value = os.environ.get(name, "").strip() or default
    try:
        ZoneInfo(value)
    except (KeyError, ValueError, OSError) as error:  # none found, a path outside, a folder of them
        raise ImproperlyConfigured(
            f"{name}={value!r} is not a time zone: write a name such as Europe/Berlin."
        ) from error
    return value


def env_roles(name: str) -> list[tuple[str, str, str, str]]:
    """Read rules such as `groups:leads=admin@*`: the claim, its value, the role, and the project or * for every one."""
    rules = []
    for part in env_list(name, []):
        found = re.fullmatch(r"([^:=]+):([^=]+)=(reader|writer|curator|admin)@([\w-]+|\*)", part)
        if found is None:
            raise ImproperlyConfigured(
                f"{name}: {part!r} is not a rule: write claim:value=role@project, with one of the roles reader, writer,"
                " curator and admin, and a project or *."
            )
        claim, value, role, project = found.groups()
        rules.append((claim.strip(), value.strip(), role, project))
    return rules


# Data: the embedded Postgres, collected static files, the secret key of a local installation.
HOME = private_home(Path(os.environ.get("MNEMOSCOPE_HOME") or BASE_DIR / "var").expanduser().resolve())

DEBUG = env_bool("DEBUG", False)
LOOPBACK_HOSTS = ["localhost", "127.0.0.1", "[::1]"]
# The address by which people and agents reach the site, for links to give away.
PUBLIC_URL = env_address("PUBLIC_URL")
_PUBLIC = urlsplit(PUBLIC_URL)
_PUBLIC_HOST = [re.sub(r":\d+$", "", _PUBLIC.netloc)] if PUBLIC_URL else []
# The path below which every address of the site lies, whether a proxy takes it off or not. Django's FORCE_SCRIPT_NAME
# holds in the threads of views alone.
SITE_PATH = _PUBLIC.path
ALLOWED_HOSTS = [*env_list("ALLOWED_HOSTS", LOOPBACK_HOSTS), *_PUBLIC_HOST]
CSRF_TRUSTED_ORIGINS = env_list("CSRF_TRUSTED_ORIGINS", [])


LEAST_KEY = 32


def secret_key() -> str:
    """The SECRET_KEY of the environment, or one generated once and stored under HOME, readable by its owner only."""
    if key := os.environ.get("SECRET_KEY"):
        return key
    path = HOME / "secret_key"
    if path.exists() and not path.stat().st_size:
        # A crash or a full disk has left it so. No page works with it, so that nobody loses anything by another.
        logging.getLogger("mnemoscope").warning("%s was empty: there is a new key, and everybody signs in again.", path)
        path.unlink()
    if not path.exists():
        from django.core.management.utils import get_random_secret_key

        try:
            create_home(HOME)
            # Two processes may start at once: the first link wins, and both read the same key.
            draft = path.with_name(f"secret_key.{os.getpid()}")
            draft.touch(mode=0o600)
            draft.write_text(get_random_secret_key())
            try:
                os.link(draft, path)
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        except OSError as error:
            raise ImproperlyConfigured(
                f"Data cannot be stored in {HOME}: {error}. Set MNEMOSCOPE_HOME to a writable folder."
            ) from error
    try:
        key = path.read_text().strip()
    except OSError as error:
        raise ImproperlyConfigured(f"{path} cannot be read: {error}. Run this as the user who created it.") from error
    except UnicodeDecodeError:
        key = ""
    if len(key) < LEAST_KEY:
        raise ImproperlyConfigured(
            f"{path} holds no key of at least {LEAST_KEY} characters. Restore the file, or remove it for a new key, "
            "with which everybody signs in again."
        )
    return key


SECRET_KEY = secret_key()

INSTALLED_APPS = [
    "web.admin_site.AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "django.contrib.humanize",  # the count of a list in the admin
    "ninja",  # for the files of its API page, which it would otherwise fetch from another host
    "django_htmx",
    "access",
    "categories",
    "memories",
    "search",
    "explorer",
    "curation",
    "transfer",
    "home",
    "agent_tools",
    "config",  # for the command `up`
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "web.middleware.StaticFiles",
    "web.middleware.policy_headers",
    "web.middleware.compress_pages",
    "web.middleware.refuse_absolute_names",
    "web.middleware.database_outage",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    # Last, and synchronous: Django's own middleware then runs in the view's thread without switches.
    "web.middleware.sign_in_redirect_for_htmx",
    "web.middleware.keep_what_was_sent",
]

# The port and the number of web processes of `up`.
PORT = env_int("PORT", 8000, low=1, high=65535)
WORKERS = env_int("WORKERS", 1, low=1, high=8)

ROOT_URLCONF = "config.urls"
ASGI_APPLICATION = "config.asgi.application"

_CONTEXT_PROCESSORS = [
    "django.template.context_processors.request",
    "django.contrib.auth.context_processors.auth",
    "django.contrib.messages.context_processors.messages",
]
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.jinja2.Jinja2",
        "DIRS": [BASE_DIR / "templates"],
        "OPTIONS": {
            "environment": "web.templates.environment",
            "context_processors": [
                *_CONTEXT_PROCESSORS[1:],
                "explorer.http.menu",
                "curation.suggestions.menu.open_questions",
            ],
        },
    },
    # The pages of the admin, which are Django's own.
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates" / "django"],
        "APP_DIRS": True,
        "OPTIONS": {"context_processors": _CONTEXT_PROCESSORS, "builtins": ["web.templates"]},
    },
]

# Requests that a process answers at once; the others wait for their turn, up to this number, and more are refused.
REQUESTS_AT_ONCE = env_int("REQUESTS_AT_ONCE", 4, low=1, high=64)
REQUESTS_WAITING = env_int("REQUESTS_WAITING", 500, low=0, high=100_000)
# Static files and the health of the site, which do not wait for the others.
LIGHT_REQUESTS_AT_ONCE = 2

DATABASES = {"default": database_settings(HOME, requests=REQUESTS_AT_ONCE + LIGHT_REQUESTS_AT_ONCE)}

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "access:sign_in"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "access:sign_in"

LANGUAGE_CODE = "en-us"
TIME_ZONE = env_zone("TZ_DEFAULT", "UTC")
USE_I18N = False
USE_TZ = True
# In the admin, as on all other pages.
FORMAT_MODULE_PATH = "web.formats"

STATIC_URL = f"{SITE_PATH}/static/"
STATIC_ROOT = HOME / "static"
FILE_UPLOAD_PERMISSIONS = 0o600
FILE_UPLOAD_DIRECTORY_PERMISSIONS = 0o700
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "web.bundles.AppFinder",
    "web.bundles.BundleFinder",
]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage" if DEBUG else "web.bundles.ModuleStorage"
    },
}

# Browsers send the cookies of a host to all of its ports. Servers with the same key share their sessions.
_SITE = hashlib.sha256(f"cookies {SECRET_KEY}".encode()).hexdigest()[:8]
SESSION_COOKIE_NAME = f"sessionid_{_SITE}"
CSRF_COOKIE_NAME = f"csrftoken_{_SITE}"
SESSION_COOKIE_PATH = CSRF_COOKIE_PATH = f"{SITE_PATH}/"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
# A proxy terminates TLS, and overwrites this header of clients.
BEHIND_TLS_PROXY = env_bool("BEHIND_TLS_PROXY", False)
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if BEHIND_TLS_PROXY else None
SECURE_HSTS_SECONDS = env_int("HSTS_SECONDS", 0, low=0, high=63_072_000)
SECURE_COOKIES = env_bool("SECURE_COOKIES", BEHIND_TLS_PROXY)
SESSION_COOKIE_SECURE = SECURE_COOKIES
CSRF_COOKIE_SECURE = SECURE_COOKIES
CSRF_FAILURE_VIEW = "web.middleware.refuse_forged_form"
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 10 * 1024 * 1024

# Signing in through an OpenID Connect provider, by django-allauth; empty for links and passwords alone.
OIDC_ISSUER = os.environ.get("OIDC_ISSUER", "").strip().rstrip("/")
OIDC_NAME = os.environ.get("OIDC_NAME", "").strip() or "single sign-on"
OIDC_ALLOWED_DOMAINS = [domain.lower() for domain in env_list("OIDC_ALLOWED_DOMAINS", [])]
OIDC_ROLES = env_roles("OIDC_ROLES")
if OIDC_ISSUER:
    _OIDC_APP = {
        "provider_id": "oidc",
        "name": OIDC_NAME,
        "client_id": os.environ.get("OIDC_CLIENT_ID", "").strip(),
        "secret": os.environ.get("OIDC_CLIENT_SECRET", "").strip(),
        "settings": {"server_url": OIDC_ISSUER},
    }
    # Nobody on the way may change the answers of the provider.
    if not re.match(r"https://|http://(localhost|127\.0\.0\.1|\[::1])[:/]", OIDC_ISSUER):
        raise ImproperlyConfigured(f"OIDC_ISSUER={OIDC_ISSUER!r} does not begin with https://.")
    if not _OIDC_APP["client_id"] or not _OIDC_APP["secret"]:
        raise ImproperlyConfigured("OIDC_ISSUER needs OIDC_CLIENT_ID and OIDC_CLIENT_SECRET next to it.")
    INSTALLED_APPS += ["allauth.account", "allauth.socialaccount", "allauth.socialaccount.providers.openid_connect"]
    MIDDLEWARE.insert(-1, "allauth.account.middleware.AccountMiddleware")
    SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"APPS": [_OIDC_APP], "OAUTH_PKCE_ENABLED": True}}
    SOCIALACCOUNT_ADAPTER, ACCOUNT_ADAPTER = "access.oidc.Adapter", "access.oidc.AccountAdapter"
    SOCIALACCOUNT_ONLY = SOCIALACCOUNT_LOGIN_ON_GET = True
    # People are recognised by the provider's id for them, never by an address.
    ACCOUNT_EMAIL_VERIFICATION, ACCOUNT_UNIQUE_EMAIL = "none", False

# No process loads a model, even if the packages are there.
WITHOUT_EMBEDDINGS = env_bool("WITHOUT_EMBEDDINGS", False)
# Empty: the packaged all-MiniLM-L6-v2. Otherwise a folder, or a name that sentence-transformers knows.
EMBEDDING_MODEL = os.environ.get("EMBEDDING_MODEL", "").strip()
# The lowest similarity to a query that counts as a semantic match; it depends on the model.
EMBEDDING_MIN_SIMILARITY = (
    env_share("EMBEDDING_MIN_SIMILARITY", 0.0) if os.environ.get("EMBEDDING_MIN_SIMILARITY") else None
)

# Secrets in memories that come in: `mask` them, `refuse` the memory, or leave them (`off`).
SECRETS = env_choice("SECRETS", "MASK", ["MASK", "REFUSE", "OFF"]).lower()
# The rules by which they are found are kept as compiled, which takes ten seconds.
os.environ.setdefault("KF_RULE_CACHE_DIR", str(HOME / "secret_rules"))

# `tantivy` answers from an index under HOME that follows the database; `postgres` from the database alone.
SEARCH_ENGINE = env_choice("SEARCH_ENGINE", "TANTIVY", ["TANTIVY", "POSTGRES"]).lower()
SEARCH_INDEX = HOME / "index"
# The limit of semantic matches, and the weight of semantic against keyword relevance (0 to 1).
SEARCH_SEMANTIC_LIMIT = env_int("SEARCH_SEMANTIC_LIMIT", 1_000, low=10, high=10_000)
SEARCH_SEMANTIC_WEIGHT = env_share("SEARCH_SEMANTIC_WEIGHT", 0.6)
# The weight of the relevance of the results that one resembles, against its own.
SEARCH_NEIGHBOUR_WEIGHT = env_share("SEARCH_NEIGHBOUR_WEIGHT", 0.6)
# Weights of the sum that ranks the best hits, and weights of sources (1 by default); see docs/ranking.md.
SEARCH_WEIGHTS = env_shares(
    "SEARCH_WEIGHTS", {"relevance": 1.0, "quality": 0.05, "recency": 0.05, "source": 0.05}, others=False
)
SEARCH_SOURCE_WEIGHTS = env_shares("SEARCH_SOURCE_WEIGHTS", {}, others=True)
# Results at least this similar are collapsed into a single group.
SEARCH_DEDUP_SIMILARITY = env_share("SEARCH_DEDUP_SIMILARITY", 0.95)
# A CrossEncoder that reads the first candidates again: a folder, or a name that sentence-transformers knows.
RERANK_MODEL = os.environ.get("RERANK_MODEL", "").strip()
# Its number of candidates, and its timeout in milliseconds; after that the order stays, and the response says so.
RERANK_CANDIDATES = env_int("RERANK_CANDIDATES", 50, low=1, high=200)
RERANK_TIMEOUT_MS = env_int("RERANK_TIMEOUT_MS", 300, low=10, high=60_000)
# Unified search: the timeout and the result limit of each of its six legs, the weight of each kind of result, and the
# share of common terms at which two results are collapsed; see docs/unified.md.
UNIFIED_LEG_TIMEOUT_MS = env_int("UNIFIED_LEG_TIMEOUT_MS", 2_000, low=20, high=60_000)
UNIFIED_LEG_LIMIT = env_int("UNIFIED_LEG_LIMIT", 100, low=10, high=1_000)
UNIFIED_WEIGHTS = env_shares(
    "UNIFIED_WEIGHTS",
    {"memory": 1.0, "entity": 0.8, "concept": 0.8, "category": 0.7, "relationship": 0.7},
    others=False,
)
UNIFIED_DEDUP_SIMILARITY = env_share("UNIFIED_DEDUP_SIMILARITY", 0.85)
# Slower facets are reported as unavailable; the hits are returned all the same.
SEARCH_FACET_TIMEOUT_MS = env_int("SEARCH_FACET_TIMEOUT_MS", 5_000, low=50, high=600_000)

# Backups that `up` makes: where, how often (0: never), and how many of them stay.
BACKUP_FOLDER = Path(os.environ.get("BACKUP_FOLDER") or HOME / "backups").expanduser().resolve()
# Why the last backup failed, for the status page.
BACKUP_FAILURE = HOME / "backup-failed"
# In the folder of backups; whoever makes one holds it.
BACKUP_LOCK = ".lock"
BACKUP_EVERY_HOURS = env_int("BACKUP_EVERY_HOURS", 0, low=0, high=8760)
BACKUP_KEEP = env_int("BACKUP_KEEP", 7, low=1, high=10_000)

# The token by which Prometheus reads /metrics; without one there is no such address.
METRICS_TOKEN = env_secret("METRICS_TOKEN", least=16)

# The key of `manage.py mcp`.
MNEMOSCOPE_KEY = os.environ.get("MNEMOSCOPE_KEY", "").strip()
# The limit of keys without their own.
API_REQUESTS_PER_MINUTE = env_int("API_REQUESTS_PER_MINUTE", 1_200, low=1, high=1_000_000)
# The categories, concepts, entities and tags that one memory may add, except in imports with all rights.
MAX_NEW_NAMES = env_int("MAX_NEW_NAMES", 50, low=1, high=100_000)
# The days that the log of reads goes back; 0 for no log.
READS_DAYS = env_int("READS_DAYS", 90, low=0, high=36_500)
# Whether it is counted how often memories are recalled.
RECALLS = env_bool("RECALLS", True)

LOG_LEVEL = env_choice("LOG_LEVEL", "WARNING", ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"])
LOG_FORMAT = env_choice("LOG_FORMAT", "TEXT", ["TEXT", "JSON"]).lower()
_CALM = LOG_LEVEL not in {"DEBUG", "INFO"}


LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {
        "our_fault": {"()": "web.logs.OurFault", "all_requests": not _CALM},
    },
    "formatters": {
        "text": {"()": "web.logs.TextLine", "tracebacks": LOG_LEVEL == "DEBUG"},
        "json": {"()": "web.logs.JsonLine", "tracebacks": LOG_LEVEL == "DEBUG"},
    },
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": LOG_FORMAT}},
    "loggers": {
        "django.request": {"filters": ["our_fault"]},
        # One line for every attempt to connect; whoever needed the connection reports that there is none.
        "psycopg.pool": {"level": "ERROR" if _CALM else "DEBUG" if LOG_LEVEL == "DEBUG" else "WARNING"},
        # The reports of `up`, in the same form as the rest of the log.
        "mnemoscope.up": {"level": "INFO"},
        # Lines about clients that break their connection or the protocol.
        "uvicorn.error": {"level": "ERROR" if _CALM else LOG_LEVEL},
        "asyncio": {"level": "ERROR" if _CALM else LOG_LEVEL},
    },
    "root": {"handlers": ["console"], "level": LOG_LEVEL},
}
