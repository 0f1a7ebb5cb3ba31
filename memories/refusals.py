"""Why a memory is not written: what services refuse, the same for every interface."""

from memories.models import Memory
from web.errors import FIELDS_LISTED, Refusal

# Codes of the two reasons for which a memory is refused.
ID_TAKEN, SAME_TEXT = "external_id_taken", "duplicate_text"


class MemoryNotFoundError(Refusal):
    """There is no such memory, or none that the viewer may see: the answer is the same."""

    status = 404
    code = "not_found"
    suggestion = "Look for it: GET /api/search?q=…"

    def __init__(self, memory_id: int) -> None:
        self.memory_id = memory_id
        super().__init__(f"There is no memory #{memory_id} that you can see.")


class EventNotFoundError(Refusal):
    """The memory has no such event."""

    status = 404
    code = "not_found"

    def __init__(self, memory_id: int, event_id: str) -> None:
        self.suggestion = f"Its events: GET /api/memories/{memory_id}/history"
        super().__init__(f"#{memory_id} has no event {event_id[:40]!r} in its history.")


class NotAllowedError(Refusal):
    """The viewer may not do this."""

    status = 403
    code = "forbidden"
    suggestion = "Use a key or an account that can write to this project."


class AlreadyExistsError(Refusal):
    """The memory exists already, as `memory_id`."""

    status = 409
    code = "already_exists"

    def __init__(self, memory_id: int, message: str, code: str = "already_exists") -> None:
        self.memory_id, self.code = memory_id, code
        address = f"/api/memories/{memory_id}"
        self.suggestion = f"Change the existing memory: PATCH {address}"
        self.headers = {"Location": address}
        super().__init__(message)


class VersionConflictError(Refusal):
    """The memory is not the version that the writer has read."""

    status = 412
    code = "version_conflict"

    def __init__(self, memory_id: int, version: str) -> None:
        self.memory_id, self.version = memory_id, version
        self.suggestion = f"Read it again: GET /api/memories/{memory_id}. Its version is {version}."
        super().__init__(f"#{memory_id} was changed since you read it; nothing was written.")


class NoVersionError(Refusal):
    """The memory whose version the writer has read does not exist."""

    status = 412
    code = "version_conflict"
    suggestion = "Leave out the version, or If-Match, to store it as a new memory."

    def __init__(self, external_id: str) -> None:
        super().__init__(f"There is no memory with the id {external_id!r} that could have this version.")


class SuccessorError(Refusal):
    """A superseded memory would be active again beside the memory that replaced it."""

    status = 409
    code = "superseded"

    def __init__(self, memory_id: int, successor: Memory) -> None:
        self.memory_id, self.successor_id = memory_id, successor.pk
        self.suggestion = f"Read #{successor.pk}. To have #{memory_id} back all the same, add despite_successor=1."
        super().__init__(f"#{memory_id} was superseded by #{successor.pk}, {successor.title!r}, and stays so.")


class ChangeRefusedError(Refusal):
    """An invalid change. `field` is the field at fault."""

    suggestion = FIELDS_LISTED

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(f"{field}: {message}" if field else message)
