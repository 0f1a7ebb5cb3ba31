"""What the admin's pages share: who is editing, pages that only show, and lists that stay cheap on a large corpus."""

from abc import ABCMeta, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.db.models import Model
from django.forms.models import ModelFormMetaclass
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from access.models import AuditEvent
from access.viewer import Viewer, viewer_of_user

if TYPE_CHECKING:
    # Generic to the type checker only.
    ModelAdmin = admin.ModelAdmin[Any]
    ModelForm = forms.ModelForm[Any]
else:
    ModelAdmin, ModelForm = admin.ModelAdmin, forms.ModelForm

admin.site.site_header = "Mnemoscope · curation"
admin.site.site_title = "Mnemoscope"
admin.site.index_title = "Curation"
admin.site.empty_value_display = "–"


def admin_viewer(request: HttpRequest) -> Viewer:
    """Whoever is signed in to the admin, coming through its door."""
    return viewer_of_user(request.user, door=AuditEvent.Door.ADMIN)


class CurationAdmin(ModelAdmin):
    """A list that counts only what it filters, and facets of it only where they are asked for."""

    show_full_result_count = False
    show_facets = admin.ShowFacets.ALLOW
    list_per_page = 50
    list_max_show_all = 200


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


class ShownOnlyAdmin(CurationAdmin):
    """Rows that nobody edits: what happened, and what the site keeps for itself."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class OwnersOnly:
    """For rows that tell of every project at once: only a superuser sees every project."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        return _is_superuser(request)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return _is_superuser(request)


def _is_superuser(request: HttpRequest) -> bool:
    return request.user.is_active and request.user.is_superuser


class Lines(forms.CharField):
    """A list of names, one a line: names may hold commas."""

    widget = forms.Textarea(attrs={"rows": 4, "class": "vLargeTextField"})

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list | tuple) else value

    def to_python(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return list(value)
        return [line.strip() for line in (super().to_python(value) or "").splitlines() if line.strip()]

    def validate(self, value: Any) -> None:
        forms.Field.validate(self, value)

    def run_validators(self, value: Any) -> None:
        """The lines are judged by the service that takes them."""


class Prose(forms.CharField):
    """Text of many lines. Browsers send line ends of their own: that alone must not count as a change."""

    widget = forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField"})

    def to_python(self, value: Any) -> str:
        return (super().to_python(value) or "").replace("\r\n", "\n")

    def has_changed(self, initial: Any, data: Any) -> bool:
        return super().has_changed(self.to_python(initial), data)


def panel(head: Iterable[str], rows: Iterable[Iterable[object]], empty: str = "None.") -> SafeString:
    """A small table on a page of the admin; cells are escaped unless they are markup already."""
    lines = [format_html("<tr>{}</tr>", format_html_join("", "<td>{}</td>", ((c,) for c in row))) for row in rows]
    if not lines:
        return format_html("{}", empty)
    heads = format_html_join("", "<th>{}</th>", ((h,) for h in head))
    return format_html("<table><tr>{}</tr>{}</table>", heads, format_html_join("", "{}", ((line,) for line in lines)))
