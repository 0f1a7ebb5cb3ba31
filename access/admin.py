"""The admin of access, and of everything that is written through services with an audit event."""

from abc import ABCMeta, abstractmethod
from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.forms.models import ModelFormMetaclass
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from access.forms import AdminSignInForm
from access.models import ApiKey, AppGrant, AuditEvent, Invitation, Membership, SignInToken
from access.services import membership_remove, membership_set
from access.viewer import Viewer, viewer_of_user
from web.admin import CurationAdmin, ModelForm, OwnersOnly, ShownOnlyAdmin


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


admin.site.login_form = AdminSignInForm


class MembershipForm(ServiceForm):
    class Meta:
        model = Membership
        fields = ("user", "project", "role")

    def write(self) -> Refused:
        row = self.instance
        self.instance = membership_set(
            user=row.user, project=row.project, role=Membership.Role(row.role), viewer=self.viewer
        )
        return ()


@admin.register(Membership)
class MembershipAdmin(OwnersOnly, ServiceAdmin):
    form = MembershipForm
    list_display = ("user", "project", "role", "created_at")
    list_select_related = ("user", "project")
    list_filter = ("role", "project")
    search_fields = ("user__username", "user__email", "project__slug", "project__name")
    autocomplete_fields = ("user", "project")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.has_module_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.has_module_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.has_module_permission(request)

    def get_readonly_fields(self, request: HttpRequest, obj: Membership | None = None) -> tuple[str, ...]:
        # With another user or project it would be another membership.
        return ("created_at",) if obj is None else ("user", "project", "created_at")

    def delete_model(self, request: HttpRequest, obj: Membership) -> None:
        membership_remove(membership=obj, viewer=admin_viewer(request))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Membership]) -> None:
        for membership in queryset:
            self.delete_model(request, membership)


@admin.register(ApiKey)
class ApiKeyAdmin(OwnersOnly, ShownOnlyAdmin):
    """Keys. They are made, rotated and revoked at /settings/keys/."""

    list_display = ("name", "prefix", "shown_projects", "scopes", "created_by", "last_used_at", "shown_state")
    list_select_related = ("created_by",)
    list_filter = (("revoked_at", admin.EmptyFieldListFilter), ("expires_at", admin.EmptyFieldListFilter), "projects")
    search_fields = ("name", "prefix")
    # The hash is useless to readers.
    exclude = ("key_hash",)
    readonly_fields = ("shown_page",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).prefetch_related("projects")

    @admin.display(description="state", ordering="revoked_at")
    def shown_state(self, key: ApiKey) -> str:
        return key.state

    @admin.display(description="rotate or revoke")
    def shown_page(self, key: ApiKey) -> SafeString:
        return format_html('<a href="{}">On the page of keys</a>', reverse("access:keys"))


@admin.register(SignInToken)
class SignInTokenAdmin(OwnersOnly, ShownOnlyAdmin):
    list_display = ("user", "created_at", "expires_at", "used_at")
    list_select_related = ("user",)
    list_filter = (("used_at", admin.EmptyFieldListFilter),)
    search_fields = ("user__username",)
    ordering = ("-created_at", "-pk")
    fields = ("user", "created_at", "expires_at", "used_at")


@admin.register(Invitation)
class InvitationAdmin(OwnersOnly, ShownOnlyAdmin):
    list_display = ("note", "role", "created_by", "created_at", "expires_at", "used_by", "revoked_at")
    list_display_links = ("role",)
    list_select_related = ("created_by", "used_by")
    list_filter = ("role", ("used_at", admin.EmptyFieldListFilter), ("revoked_at", admin.EmptyFieldListFilter))
    search_fields = ("note", "created_by__username")
    fields = ("note", "role", "projects", "created_by", "created_at", "expires_at", "used_by", "used_at", "revoked_at")


@admin.register(AppGrant)
class AppGrantAdmin(OwnersOnly, ShownOnlyAdmin):
    list_display = ("key", "redirect_uri", "code_used_at", "access_expires_at")
    list_select_related = ("key", "key__acts_for")
    list_filter = (("access_expires_at", admin.EmptyFieldListFilter),)
    search_fields = ("key__name", "redirect_uri")
    # The hashes are useless to readers.
    fields = ("key", "client_id", "resource", "redirect_uri", "code_expires_at", "code_used_at", "access_expires_at")


@admin.register(AuditEvent)
class AuditEventAdmin(OwnersOnly, ShownOnlyAdmin):
    list_display = ("at", "verb", "subject", "user", "api_key", "door", "batch", "note")
    list_display_links = ("at",)
    list_select_related = ("user", "api_key", "batch")
    list_filter = ("door", "verb", "subject_type")
    search_fields = ("=subject_id", "note", "user__username", "api_key__name")
    date_hierarchy = "at"
    fields = ("at", "verb", "subject", "user", "api_key", "door", "batch", "note", "before", "after")
    readonly_fields = ("subject",)

    @admin.display(description="subject")
    def subject(self, event: AuditEvent) -> str | SafeString:
        name = f"{event.subject_type} {event.subject_id}"
        for app in ("memories", "categories", "access", "search"):
            try:
                address = reverse(f"admin:{app}_{event.subject_type}_change", args=[event.subject_id])
            except NoReverseMatch:
                continue
            return format_html('<a href="{}">{}</a>', address, name)
        return name
