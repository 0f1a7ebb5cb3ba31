"""Admin pages whose forms are written by services, which know who is editing."""

from abc import ABCMeta, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django import forms
from django.db.models import Model
from django.forms.models import ModelFormMetaclass
from django.http import HttpRequest

from access.models import AuditEvent
from access.viewer import Viewer, viewer_of_user
from web.admin import CurationAdmin

if TYPE_CHECKING:
    # Generic to the type checker only.
    ModelForm = forms.ModelForm[Any]
else:
    ModelForm = forms.ModelForm


def admin_viewer(request: HttpRequest) -> Viewer:
    """Whoever is signed in to the admin, coming through its door."""
    return viewer_of_user(request.user, door=AuditEvent.Door.ADMIN)


class AbstractForm(ModelFormMetaclass, ABCMeta):
    """Forms of models whose classes may leave something to those below them."""


# What stands against a change, each with the field that it is about; None where it is about none alone.
Refused = Iterable[tuple[str | None, str]]


class ServiceForm(ModelForm, metaclass=AbstractForm):
    """A form whose last check is the service that does the writing: what it refuses is an error of the form."""

    viewer: Viewer

    def full_clean(self) -> None:
        super().full_clean()
        # Only once all else is right: the page's transaction ends well even where the form shows errors.
        if self.is_bound and not self.errors:
            for field, message in self.write():
                self.add_error(field, message)

    @abstractmethod
    def write(self) -> Refused:
        """Do it; or give what stands against it, by field."""


class ServiceAdmin(CurationAdmin):
    """Rows that only services write. Their forms are ServiceForms, and pages know who looks at them."""

    form: type[ServiceForm]

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form = super().get_form(request, obj, change, **kwargs)
        return type(form.__name__, (form,), {"viewer": admin_viewer(request)})

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        row = super().get_object(request, object_id, from_field)
        if row is not None:
            # The panels of a page are given the row alone, and show only what this viewer may see.
            row.viewer = admin_viewer(request)
        return row

    def save_model(self, request: HttpRequest, obj: Model, form: Any, change: bool) -> None:
        """Nothing: the form has gone through the service."""
