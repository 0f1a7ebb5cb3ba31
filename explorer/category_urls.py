"""The addresses of the category browser."""

from django.urls import path

from explorer import category_views

app_name = "categories"
urlpatterns = [
    path("categories/", category_views.browser, name="browse"),
    path("categories/<path:path>/", category_views.browser, name="node"),
]
