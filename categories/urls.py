"""The addresses of the category browser."""

from django.urls import path

from categories import views

app_name = "categories"
urlpatterns = [
    path("categories/", views.browser, name="browse"),
    path("categories/<path:path>/", views.browser, name="node"),
]
