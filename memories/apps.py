from django.apps import AppConfig
from django.core.checks import Tags, register


class MemoriesConfig(AppConfig):
    name = "memories"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from memories.checks import database_is_fit, model_fits
        from web.handler import mount_is_free

        register(mount_is_free)
        register(database_is_fit, Tags.database)
        register(model_fits, Tags.database)
