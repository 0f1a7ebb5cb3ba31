"""Base classes of the admin: read-only pages, and lists that stay fast on a large corpus."""

from typing import TYPE_CHECKING, Any

from django import forms
from django.conf import settings
from django.contrib import admin
from django.db.models import DateTimeField, Model
from django.http import HttpRequest, HttpResponse
from django.utils.text import capfirst

if TYPE_CHECKING:
    # Generic to the type checker only.
    ModelAdmin = admin.ModelAdmin[Any]
    ModelForm = forms.ModelForm[Any]
else:
    ModelAdmin, ModelForm = admin.ModelAdmin, forms.ModelForm

admin.site.site_header = "Mnemoscope · curation"
admin.site.site_title = "Mnemoscope"
admin.site.site_url = f"{settings.SITE_PATH}/"
admin.site.index_title = "All records"
admin.site.empty_value_display = "–"
# It took a fifth of the width of every list; the way back to all records is above each page.
admin.site.enable_nav_sidebar = False


class DayAndTime(forms.SplitDateTimeWidget):
    """The browser's own inputs of a day and a time, side by side."""

    def __init__(self, attrs: dict[str, Any] | None = None) -> None:
        super().__init__(
            attrs,
            date_format="%Y-%m-%d",
            time_format="%H:%M:%S",
            date_attrs={"type": "date", "aria-label": "Date"},
            time_attrs={"type": "time", "step": "1", "aria-label": "Time"},
        )


class CurationAdmin(ModelAdmin):
    """A list without a count of all rows, and with facet counts on request only."""

    formfield_overrides = {  # as in Django
        DateTimeField: {"form_class": forms.SplitDateTimeField, "widget": DayAndTime}
    }

    show_full_result_count = False
    show_facets = admin.ShowFacets.ALLOW
    list_per_page = 50
    list_max_show_all = 200

    def get_action_choices(self, request: HttpRequest, default_choices: Any = None) -> Any:
        return super().get_action_choices(request, [("", "Choose an action")])

    def get_form(
        self, request: HttpRequest, obj: Model | None = None, change: bool = False, **kwargs: Any
    ) -> type[ModelForm]:
        """The form without colons after its labels, as on the other pages."""
        form = super().get_form(request, obj, change, **kwargs)

        class Plain(form):  # type: ignore[misc, valid-type]  # made for the request
            def __init__(self, *args: Any, **options: Any) -> None:
                super().__init__(*args, **{"label_suffix": "", **options})

        return Plain

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The list under its own name."""
        title = capfirst(self.opts.verbose_name_plural)
        return super().changelist_view(request, {"title": title, **(extra_context or {})})


class ShownOnlyAdmin(CurationAdmin):
    """Read-only rows."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class OwnersOnly:
    """For rows about every project: only superusers see them."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        return _is_superuser(request)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return _is_superuser(request)


def _is_superuser(request: HttpRequest) -> bool:
    return request.user.is_active and request.user.is_superuser


class Lines(forms.CharField):
    """A list of names, one per line, since names may contain commas. Those at their ends are of the list."""

    widget = forms.Textarea(attrs={"rows": 2, "class": "vLargeTextField"})

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list | tuple) else value

    def to_python(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return list(value)
        lines = (line.strip().rstrip(",;").rstrip() for line in (super().to_python(value) or "").splitlines())
        return [line for line in lines if line]

    def has_changed(self, initial: Any, data: Any) -> bool:
        return super().has_changed(self.to_python(initial), data)

    def validate(self, value: Any) -> None:
        forms.Field.validate(self, value)

    def run_validators(self, value: Any) -> None:
        """Do nothing: the service validates the lines."""


class Prose(forms.CharField):
    """Multi-line text. The line ends of browsers do not count as a change."""

    widget = forms.Textarea(attrs={"rows": 2, "class": "vLargeTextField"})

    def to_python(self, value: Any) -> str:
        return (super().to_python(value) or "").replace("\r\n", "\n")

    def has_changed(self, initial: Any, data: Any) -> bool:
        return super().has_changed(self.to_python(initial), data)
