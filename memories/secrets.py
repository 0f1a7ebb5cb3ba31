"""Secrets in memories that come in: they are masked, or the memory is refused, or they are left."""

from typing import TypeVar

from django.conf import settings

from memories.models import Project
from memories.records import BaseRecord
from memories.refusals import ChangeRefusedError
from text.secrets import mask_values
from web.secrets import OFF, REFUSE, refusal_of

Record = TypeVar("Record", bound=BaseRecord)


def read_policies() -> dict[str, str]:
    """The choices of projects that have their own, by slug."""
    return dict(Project.objects.exclude(secrets="").values_list("slug", "secrets"))


def policy_of(project: Project) -> str:
    return project.secrets or settings.SECRETS


def mask_record(record: Record, policy: str) -> tuple[Record, tuple[str, ...]]:
    """A record without secrets, and the marks in their place. Raises ChangeRefusedError if they are refused."""
    if policy == OFF:
        return record, ()
    given = record.model_dump(exclude_unset=True)
    masked, marks = mask_values(given)
    if not marks:
        return record, ()
    if policy == REFUSE:
        field = next(name for name, value in given.items() if masked[name] != value)
        raise ChangeRefusedError(field, refusal_of(marks))
    changed = {name: getattr(type(record).model_validate({**_CONTENT, **masked}), name) for name in given}
    return record.model_copy(update=changed), tuple(marks)


# A record must have one, and changes need not.
_CONTENT = {"content": "-"}
