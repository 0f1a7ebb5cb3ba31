"""The explorer's addresses."""

from django.urls import path

from explorer import views

app_name = "search"
urlpatterns = [
    path("explore/", views.explore, name="explore"),
    path("explore/why-not/", views.explain_absence, name="why_not"),
    path("facets/<key>/", views.facet_values, name="facet_values"),
]
