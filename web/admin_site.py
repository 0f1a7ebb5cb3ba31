"""The admin as an app that loads its pages when they are needed, not at the start of every command."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.contrib import admin
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core import checks
from django.core.checks import CheckMessage


class AdminConfig(SimpleAdminConfig):
    """The pages of the admin are registered by the URLs of the site, and by the checks."""

    def ready(self) -> None:
        checks.register(check_dependencies, checks.Tags.admin)
        checks.register(_check_pages, checks.Tags.admin)


def _check_pages(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Sequence[CheckMessage]:
    admin.autodiscover()
    found: Sequence[CheckMessage] = check_admin_app(app_configs, **kwargs)
    return found
