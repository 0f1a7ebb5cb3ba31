"""The site map: pages at the root, the API below /api/, curation below /admin/."""

from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, HttpResponseServerError
from django.shortcuts import render
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.urls import URLPattern, URLResolver, include, path

from config.api import api
from home import views as home
from home.secrets_views import secrets
from web.exchange import current_id

admin.autodiscover()


def favicon(request: HttpRequest) -> HttpResponseRedirect:
    """For pages without an icon of their own, such as the admin."""
    return HttpResponseRedirect(static("favicon.svg"))


def server_error(request: HttpRequest) -> HttpResponseServerError:
    """The page for what nobody has foreseen. It needs neither the database nor the request."""
    return HttpResponseServerError(render_to_string("500.html", {"request_id": current_id()}))


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """The page for a request that cannot be read, most often because of the length of its address."""
    length = len(request.get_full_path())
    is_long = length > LONGEST_ADDRESS
    context = {"length": length if is_long else 0, "longest": LONGEST_ADDRESS}
    return render(request, "400.html", context, status=414 if is_long else 400)


# Sent on to the page for signing in, escaped once more, it must be within what Django sends a browser to.
LONGEST_ADDRESS = 5_000
handler400, handler500 = bad_request, server_error

urlpatterns: list[URLPattern | URLResolver] = [
    path("", home.home, name="home"),
    path("settings/secrets/", secrets, name="secrets"),
    path("favicon.ico", favicon),
    path("", include("access.urls")),
    path("", include("explorer.urls")),
    path("", include("curation.urls")),
    path("", include("transfer.urls")),
    path("", include("explorer.graph.urls")),
    path("", include("curation.suggestions.urls")),
    path("api/", api.urls),
    path("admin/", admin.site.urls),
]
if settings.OIDC_ISSUER:
    urlpatterns.insert(0, path("", include("access.oidc")))
if settings.SITE_PATH:
    urlpatterns = [path(f"{settings.SITE_PATH[1:]}/", include(urlpatterns))]
