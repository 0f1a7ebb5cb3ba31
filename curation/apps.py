from django.apps import AppConfig


class CurationConfig(AppConfig):
    name = "curation"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from curation.history import CurationHistory
        from curation.suggestions.marked import follow_moved, queue_marked
        from memories.history import history_source_register
        from memories.marks import memories_marked, memories_moved

        history_source_register(CurationHistory())
        memories_marked.connect(queue_marked)
        memories_moved.connect(follow_moved)
