"""The admin of memories and projects."""

# Django looks for an app's admin in this module.
from explorer import memory_admin, project_admin  # noqa: F401
