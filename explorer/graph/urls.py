"""URLs of entities, concepts and relationships."""

from django.urls import path

from explorer.graph import views
from explorer.graph.queries import CONCEPT, ENTITY

app_name = "graph"
urlpatterns = [
    path("graph/", views.table, {"kind": ENTITY}, name="entities"),
    path("graph/concepts/", views.table, {"kind": CONCEPT}, name="concepts"),
    path("graph/entity/<path:ref>/", views.node, {"kind": ENTITY}, name="entity"),
    path("graph/concept/<path:ref>/", views.node, {"kind": CONCEPT}, name="concept"),
    path("graph/relationship/<int:relationship_id>/", views.relationship, name="relationship"),
    path("graph/memory/<int:memory_id>/", views.memory, name="memory"),
    path("graph/path/", views.path_between),
]
