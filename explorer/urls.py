"""URLs of the explorer: search, memories, categories, saved views and status."""

from django.urls import path

from explorer.categories.views import category_browser
from explorer.compare import views as compare_view
from explorer.explore import query_views, views
from explorer.map import views as map_view
from explorer.memory import views as memory_views
from explorer.projects import views as project_views
from explorer.reads import views as read_views
from explorer.sessions import views as session_views
from explorer.status import views as status_views
from explorer.views import views as saved_view_pages

app_name = "explorer"
urlpatterns = [
    path("explore/", views.explore, name="explore"),
    path("explore/calendar/", views.calendar),
    path("explore/matrix/", compare_view.matrix_page, name="matrix"),
    path("explore/facets/", query_views.arrange_facets, name="arrange"),
    path("explore/text/", query_views.edit_text, name="text"),
    path("explore/names/", query_views.explain_names, name="names"),
    path("explore/why-not/", query_views.explain_absence, name="why_not"),
    path("compare/", compare_view.compare_slices, name="compare"),
    path("map/", map_view.open_map, name="map"),
    path("map/tile/", map_view.tile, name="map_tile"),
    path("map/at/", map_view.at, name="map_at"),
    path("facets/<key>/", query_views.facet_values, name="facet_values"),
    path("m/new/", memory_views.new, name="new"),
    path("m/<int:memory_id>/", memory_views.detail, name="memory"),
    path("m/<int:memory_id>/edit/", memory_views.edit, name="edit"),
    path("m/<int:memory_id>/state/", memory_views.set_state, name="set_state"),
    path("m/<int:memory_id>/similar/", memory_views.similar, name="similar"),
    path("m/<int:memory_id>/history/<event>/restore/", memory_views.restore_version, name="restore_version"),
    path("views/", saved_view_pages.views, name="views"),
    path("views/new/", saved_view_pages.new_view, name="new_view"),
    path("views/<int:view_id>/", saved_view_pages.view, name="view"),
    path("views/<int:view_id>/edit/", saved_view_pages.edit_view, name="edit_view"),
    path("views/<int:view_id>/mark/", saved_view_pages.mark_view, name="mark_view"),
    path("views/<int:view_id>/delete/", saved_view_pages.delete_view, name="delete_view"),
    path("views/<int:view_id>/feed/", saved_view_pages.feed_settings, name="view_feed"),
    path("feed/", saved_view_pages.feed, name="feed"),
    path("sessions/", session_views.sessions, name="sessions"),
    path("sessions/<int:session_id>/", session_views.session, name="session"),
    path("settings/projects/", project_views.projects, name="projects"),
    path("settings/projects/<int:project_id>/", project_views.project, name="project"),
    path("settings/projects/<int:project_id>/remove/", project_views.remove_project, name="remove_project"),
    path("reads/", read_views.reads, name="reads"),
    path("status/", status_views.status, name="status"),
    path("status/back-up/", status_views.back_up, name="back_up"),
    path("categories/", category_browser, name="categories"),
    path("categories/<path:path>/", category_browser, name="category"),
]
