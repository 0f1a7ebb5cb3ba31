"""URLs of imports. The home page itself is in `config/urls.py`."""

from django.urls import path

from transfer import views as import_views
from transfer.follow import views as follow_views

app_name = "imports"
urlpatterns = [
    path("imports/", import_views.imports, name="imports"),
    path("imports/found/", import_views.found, name="found"),
    path("imports/from/<slug:key>/", import_views.product, name="source"),
    path("imports/start/", import_views.start, name="start"),
    path("imports/upload/", import_views.upload, name="upload"),
    path("imports/followed/<int:source_id>/", follow_views.follow, name="follow"),
    path("imports/followed/<int:source_id>/stop/", follow_views.stop, name="follow_stop"),
    path("imports/followed/<int:source_id>/write-back/", follow_views.write_back, name="follow_write_back"),
    path("imports/followed/<int:source_id>/gone/", follow_views.gone, name="follow_gone"),
    path("imports/followed/<int:source_id>/conflicts/<int:memory_id>/", follow_views.conflict, name="follow_conflict"),
    path("imports/batches/<int:batch_id>/undo/", import_views.undo_batch, name="undo_batch"),
    path("imports/<int:job_id>/", import_views.job, name="job"),
    path("imports/<int:job_id>/again/", import_views.job_action, {"action": "again"}, name="again"),
    path("imports/<int:job_id>/import/", import_views.job_action, {"action": "import"}, name="import"),
    path("imports/<int:job_id>/columns/", import_views.job_action, {"action": "columns"}, name="columns"),
    path("imports/<int:job_id>/cancel/", import_views.job_action, {"action": "cancel"}, name="cancel"),
    path("imports/<int:job_id>/undo/", import_views.job_action, {"action": "undo"}, name="undo"),
    path("imports/<int:job_id>/archive/", import_views.job_action, {"action": "archive"}, name="archive_gone"),
    path("imports/<int:job_id>/remove/", import_views.job_action, {"action": "remove"}, name="remove"),
]
