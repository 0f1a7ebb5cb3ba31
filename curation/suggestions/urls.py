"""The URLs of the review queue."""

from django.urls import path

from curation.suggestions import views

app_name = "suggestions"
urlpatterns = [
    path("review/", views.review, name="review"),
    path("review/accept-many/", views.accept_many, name="accept_many"),
    path("review/undo-many/", views.undo_many, name="undo_many"),
    path("review/search/", views.search, name="search"),
    path("review/proposals/", views.proposals, name="proposals"),
    path("review/<int:suggestion_id>/accept/", views.accept, name="accept"),
    path("review/<int:suggestion_id>/reject/", views.reject, name="reject"),
    path("review/<int:suggestion_id>/undo/", views.undo, name="undo"),
]
