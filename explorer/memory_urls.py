"""The addresses of memories."""

from django.urls import path

from explorer import memory_views

app_name = "memories"
urlpatterns = [
    path("m/<int:memory_id>/", memory_views.detail, name="detail"),
    path("m/<int:memory_id>/similar/", memory_views.similar, name="similar"),
    path("status/", memory_views.status, name="status"),
]
