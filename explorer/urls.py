"""URLs of the explorer: search, memories, categories and status."""

from django.urls import path

from explorer import edit_views, views

app_name = "explorer"
urlpatterns = [
    path("explore/", views.explore, name="explore"),
    path("explore/why-not/", views.explain_absence, name="why_not"),
    path("facets/<key>/", views.facet_values, name="facet_values"),
    path("m/new/", edit_views.new, name="new"),
    path("m/<int:memory_id>/", views.detail, name="memory"),
    path("m/<int:memory_id>/edit/", edit_views.edit, name="edit"),
    path("m/<int:memory_id>/state/", edit_views.set_state, name="set_state"),
    path("m/<int:memory_id>/similar/", views.similar, name="similar"),
    path("m/<int:memory_id>/history/<event>/restore/", views.restore_version, name="restore_version"),
    path("status/", views.status, name="status"),
    path("categories/", views.category_browser, name="categories"),
    path("categories/<path:path>/", views.category_browser, name="category"),
]
