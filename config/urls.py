"""The site map: pages at the root, the API below /api/, curation below /admin/."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from config.api import api

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="search:explore", query_string=True), name="home"),
    path("", include("access.urls")),
    path("", include("search.urls")),
    path("", include("memories.urls")),
    path("api/", api.urls),
    path("admin/", admin.site.urls),
]
