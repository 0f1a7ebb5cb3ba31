"""Fixtures of searches for the tests of the home page."""

from tests.search.conftest import *  # noqa: F403
from transfer import api as import_api
from transfer import previews
from transfer import views as import_views

preview_of = previews.preview_of


def make_previews_when_asked(monkeypatch):
    """No process makes previews: whoever looks at one makes all that are missing."""

    def preview_made(job):
        previews.previews_make()
        return preview_of(job)

    monkeypatch.setattr(previews, "start_once", lambda arguments: None)
    for module in (previews, import_api, import_views):
        monkeypatch.setattr(module, "preview_of", preview_made)
