"""The next steps on this site: bring in memories, connect an agent, invite somebody. A step that is done is gone."""

from django.contrib.auth.models import AnonymousUser, User

from access.services import KeyRights, key_rights
from access.viewer import Viewer
from memories.models import ImportBatch
from memories.queries import visible_to
from transfer.jobs import may_import


def next_steps(user: User | AnonymousUser, viewer: Viewer, sample: ImportBatch | None) -> tuple[str, ...]:
    """The steps that are not done, of those that the reader may do: `import`, `connect` and `invite`."""
    rights = key_rights(user)
    steps = []
    if sample and may_import(viewer) and not visible_to(viewer).exclude(batch=sample).exists():
        steps.append("import")
    if rights and not rights.keys().filter(last_used_at__isnull=False).exists():
        steps.append("connect")
    if rights and not _has_company(rights):
        steps.append("invite")
    return tuple(steps)


def _has_company(rights: KeyRights) -> bool:
    """Whether somebody else has an account for the projects that the user administers, or is invited."""
    return rights.people().exclude(pk=rights.user_id or 0).exists() or rights.invitations().exists()
