from django.apps import AppConfig


class CurationConfig(AppConfig):
    name = "curation"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from curation.history import CurationHistory
        from memories.history import history_source_register

        history_source_register(CurationHistory())
