"""A site below a path of its host: the path of PUBLIC_URL, with which every address of the URLconf begins."""

import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.urls import get_resolver
from django.urls.resolvers import URLResolver


class MountedApplication:
    """An ASGI application that takes the path of the site off the addresses of requests, unless the proxy has."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and settings.SITE_PATH:
            scope = {**scope, "path": path_below(settings.SITE_PATH, scope["path"])}
        await self._inner(scope, receive, send)


def path_below(mount: str, path: str) -> str:
    """A path below that of the site. Metadata of OAuth has it at the end (RFC 8414, RFC 9728)."""
    if known := re.fullmatch(rf"(/\.well-known/[^/]+){re.escape(mount)}(/.*)?", path):
        return "".join(known.groups(""))
    return path.removeprefix(mount) or "/" if f"{path}/".startswith(f"{mount}/") else path


def mount_is_free(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Check that no address of the site begins like its path: it could not be seen whether the proxy took that off."""
    if not settings.SITE_PATH:
        return []
    first, patterns = settings.SITE_PATH.split("/")[1], get_resolver().url_patterns
    if len(patterns) == 1 and isinstance(site := patterns[0], URLResolver):  # the path itself
        patterns = site.url_patterns
    if first not in {*_first_parts(patterns), "mcp", "static", "healthz", "readyz", "metrics"}:
        return []
    return [
        Error(
            f"The path of PUBLIC_URL begins with /{first}, and so do addresses of the site itself.",
            hint=f"Choose another path, such as {urlsplit(settings.PUBLIC_URL).netloc}/memories.",
            id="web.E001",
        )
    ]


def _first_parts(patterns: Sequence[Any]) -> Iterator[str]:
    for one in patterns:
        if isinstance(one, URLResolver) and not str(one.pattern):
            yield from _first_parts(one.url_patterns)
        else:
            yield str(one.pattern).lstrip("^").split("/", maxsplit=1)[0]
