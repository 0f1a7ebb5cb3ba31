"""The site map: pages at the root, the API below /api/, curation below /admin/."""

from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest, HttpResponseRedirect, HttpResponseServerError
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.urls import include, path

from config.api import api
from home import views as home
from web.exchange import current_id

admin.autodiscover()


def favicon(request: HttpRequest) -> HttpResponseRedirect:
    """For pages without an icon of their own, such as the admin."""
    return HttpResponseRedirect(static("favicon.svg"))


def server_error(request: HttpRequest) -> HttpResponseServerError:
    """The page for what nobody has foreseen. It needs neither the database nor the request."""
    return HttpResponseServerError(render_to_string("500.html", {"request_id": current_id()}))


handler500 = server_error

urlpatterns = [
    path("", home.home, name="home"),
    path("favicon.ico", favicon),
    path("", include("access.urls")),
    path("", include("explorer.urls")),
    path("", include("curation.urls")),
    path("", include("home.urls")),
    path("", include("explorer.graph.urls")),
    path("", include("curation.suggestions.urls")),
    path("api/", api.urls),
    path("admin/", admin.site.urls),
]
if settings.OIDC_ISSUER:
    urlpatterns.insert(0, path("", include("access.oidc")))
