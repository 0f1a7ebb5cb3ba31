"""Admin pages whose forms call services on behalf of the signed-in user."""

from abc import ABCMeta, abstractmethod
from collections.abc import Iterable
from typing import Any

from django.db.models import Model
from django.forms.models import ModelFormMetaclass
from django.http import HttpRequest

from access.models import AuditEvent
from access.viewer import Viewer, viewer_of_user
from web.admin import CurationAdmin, ModelForm


def admin_viewer(request: HttpRequest) -> Viewer:
    """The viewer of the user signed in to the admin."""
    return viewer_of_user(request.user, door=AuditEvent.Door.ADMIN)


class AbstractForm(ModelFormMetaclass, ABCMeta):
    """Metaclass of model forms with abstract methods."""


# The errors of a change with their fields; None for errors of the whole form.
Refused = Iterable[tuple[str | None, str]]


class ServiceForm(ModelForm, metaclass=AbstractForm):
    """A form whose last check is the service that stores it: its refusals become errors of the form."""

    viewer: Viewer

    def full_clean(self) -> None:
        super().full_clean()
        # Only if all else is valid: the page's transaction is committed even if the form shows errors.
        if self.is_bound and not self.errors:
            for field, message in self.write():
                self.add_error(field, message)

    @abstractmethod
    def write(self) -> Refused:
        """Store the change, or return the errors by field."""


class ServiceAdmin(CurationAdmin):
    """Rows that only services write, by ServiceForms."""

    form: type[ServiceForm]

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, change, **kwargs)
        return type(form.__name__, (form,), {"viewer": admin_viewer(request)})

    def save_model(self, request: HttpRequest, obj: Model, form: Any, change: bool) -> None:
        """Do nothing: the form has called the service."""
