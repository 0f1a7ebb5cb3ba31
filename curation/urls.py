"""The URLs of curation. The name of a term comes last, because a tag may contain slashes."""

from django.urls import path, re_path

from categories.kinds import TERM_KINDS
from curation import views

app_name = "curation"
_KIND = rf"(?P<kind>{'|'.join(TERM_KINDS)})"
_TERM = rf"{_KIND}/(?P<ref>.+)/$"
urlpatterns = [
    path("curate/", views.log, name="log"),
    path("curate/retag/", views.retag, name="retag"),
    path("curate/remove-tags/", views.remove_tags, name="remove_tags"),
    path("curate/authors/", views.authors, name="authors"),
    path("curate/new-category/", views.new_category, name="new_category"),
    path("curate/split/", views.split, name="split"),
    path("curate/undo/<int:curation_id>/", views.undo, name="undo"),
    re_path(rf"^curate/merge/{_KIND}/$", views.merge, name="merge"),
    re_path(rf"^curate/{_TERM}", views.term, name="term"),
    re_path(rf"^curate/(?P<verb>[a-z]+)/{_TERM}", views.verb, name="verb"),
]
