"""A memory that is changed: locked as it is stored, and stored again with an event."""

from access.viewer import Viewer
from categories.services import vocabulary_lock_shared
from memories.models import Memory
from memories.queries import memory_version, visible_to
from memories.refusals import MemoryNotFoundError, NotAllowedError, VersionConflictError
from memories.snapshot import MemorySnapshot
from memories.storage import corpus_bump, dangling_links_resolve, memory_audit, snapshots_read, snapshots_update

# As the version of a change: any, as long as there is one.
ANY_VERSION = "*"


def lock_writable(memory_id: int, viewer: Viewer, if_version: str = "") -> MemorySnapshot:
    """The memory as stored, locked until the end of the transaction.

    Raises VersionConflictError unless it is the version `if_version`, if one is given.
    """
    vocabulary_lock_shared()
    if not visible_to(viewer).filter(pk=memory_id).exists():
        raise MemoryNotFoundError(memory_id)
    # A lock by id: the only form that works on a distributed table.
    locked = Memory.objects.select_for_update().only("project_id").filter(pk=memory_id).first()
    if locked is None:
        raise MemoryNotFoundError(memory_id)
    if not viewer.may_write(locked.project_id):
        raise NotAllowedError(f"You can read #{memory_id} but not change it.")
    if if_version not in {"", ANY_VERSION}:
        version = memory_version(Memory.objects.defer("content", "terms", "raw").get(pk=memory_id))
        if version != if_version:
            raise VersionConflictError(memory_id, version)
    return snapshots_read([memory_id])[memory_id]


def store_change(before: MemorySnapshot, after: MemorySnapshot, verb: str, viewer: Viewer, note: str) -> Memory:
    """Store a change and its event; without a difference there is no event."""
    if stored := snapshots_update([(before, after)]):
        after = stored[0][1]
        if after.external_id and after.external_id != before.external_id:
            dangling_links_resolve({(after.project_id, after.external_id): after.id}, viewer)
        memory_audit(viewer, verb, before, after, note=note)
        corpus_bump()
    return Memory.objects.get(pk=before.id)
