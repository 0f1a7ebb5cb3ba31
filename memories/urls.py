"""The addresses of memories."""

from django.urls import path

from memories import views

app_name = "memories"
urlpatterns = [
    path("m/<int:memory_id>/", views.detail, name="detail"),
    path("m/<int:memory_id>/similar/", views.similar, name="similar"),
    path("status/", views.status, name="status"),
]
