"""The URLs of the explorer: search, memories, categories and status."""

from django.urls import path

from explorer import category_views, memory_views, views

app_name = "explorer"
urlpatterns = [
    path("explore/", views.explore, name="explore"),
    path("explore/why-not/", views.explain_absence, name="why_not"),
    path("facets/<key>/", views.facet_values, name="facet_values"),
    path("m/<int:memory_id>/", memory_views.detail, name="memory"),
    path("m/<int:memory_id>/similar/", memory_views.similar, name="similar"),
    path("status/", memory_views.status, name="status"),
    path("categories/", category_views.browser, name="categories"),
    path("categories/<path:path>/", category_views.browser, name="category"),
]
