"""The addresses of curation. A tag may hold slashes, so what names a term comes last."""

from django.urls import path, re_path

from curation import views
from curation.working_copy import KINDS

app_name = "curation"
_TERM = rf"(?P<kind>{'|'.join(KINDS)})/(?P<ref>.+)/$"
urlpatterns = [
    path("curate/", views.log, name="log"),
    path("curate/retag/", views.retag, name="retag"),
    path("curate/undo/<int:curation_id>/", views.undo, name="undo"),
    re_path(rf"^curate/{_TERM}", views.term, name="term"),
    re_path(rf"^curate/(?P<verb>[a-z]+)/{_TERM}", views.verb, name="verb"),
]
