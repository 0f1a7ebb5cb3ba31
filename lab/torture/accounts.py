"""The accounts of the viewers whose isolation is probed. Runs inside a site, by `manage.py shell` or in a test."""

from django.contrib.auth.models import User

from access.keys import make_key
from access.models import Membership
from access.sign_in import owner_ensure
from access.viewer import command_viewer
from lab.torture.isolation import HIDDEN, HIDDEN_CURATOR, OWNER, SHARED, WATCHERS, Watcher
from memories.models import Project
from memories.records import MemoryRecord
from memories.services import memory_create


def make_accounts() -> dict[str, str]:
    """Create the projects with a memory each, and for every viewer a key and a user of the same name.

    Returns the keys by the names of the viewers.
    """
    owner_ensure()
    keys = {OWNER: _key(OWNER, ("admin",), None)}
    others = Watcher(HIDDEN_CURATOR, HIDDEN, ("read", "write", "curate"))
    for watcher in (*WATCHERS, others):
        record = MemoryRecord.model_validate(
            {
                "content": f"The first memory of {watcher.project}: {' '.join(SHARED)}.",
                "project": watcher.project,
                "tags": list(SHARED),
                "categories": [f"{SHARED[0]}/{SHARED[1]}", SHARED[2]],
                "concepts": list(SHARED[:3]),
                "entities": [f"tool:{name}" for name in SHARED[:3]],
                "created_at": "2024-01-01T10:00:00Z",
            }
        )
        memory_create(record=record, viewer=command_viewer())
        project = Project.objects.get(slug=watcher.project)
        keys[watcher.name] = _key(watcher.name, watcher.scopes, project)
        role = Membership.Role.CURATOR if "curate" in watcher.scopes else Membership.Role.READER
        user = User.objects.create_user(watcher.name.replace(" ", "-"))
        Membership.objects.create(user=user, project=project, role=role)
    return keys


def _key(name: str, scopes: tuple[str, ...], project: Project | None) -> str:
    new = make_key(
        name=name,
        scopes=list(scopes),
        projects=[] if project is None else [project],
        every_project=project is None,
        viewer=command_viewer(),
        requests_per_minute=1_000_000,
    )
    return new.raw
