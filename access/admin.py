"""Admin of memberships and keys, and of the audit trail, which is read-only."""

from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from access.forms import AdminSignInForm
from access.keys import GRACE, KeyRefusedError, key_state, make_key, revoke_key, rotate_key
from access.models import ApiKey, AppGrant, AuditEvent, Invitation, Membership, SignInToken
from access.service_admin import Refused, ServiceAdmin, ServiceForm, admin_viewer
from access.services import membership_remove, membership_set
from access.viewer import SCOPES
from web.admin import CurationAdmin, ModelForm, OwnersOnly, ShownOnlyAdmin

admin.site.login_form = AdminSignInForm


class OwnersAdmin(OwnersOnly, CurationAdmin):
    """Rows that only superusers see and edit."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.has_module_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.has_module_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.has_module_permission(request)


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
class MembershipAdmin(OwnersAdmin, ServiceAdmin):
    form = MembershipForm
    list_display = ("user", "project", "role", "created_at")
    list_select_related = ("user", "project")
    list_filter = ("role", "project")
    search_fields = ("user__username", "user__email", "project__slug", "project__name")
    autocomplete_fields = ("user", "project")

    def get_readonly_fields(self, request: HttpRequest, obj: Membership | None = None) -> tuple[str, ...]:
        # With another user or project it would be another membership.
        return ("created_at",) if obj is None else ("user", "project", "created_at")

    def delete_model(self, request: HttpRequest, obj: Membership) -> None:
        membership_remove(membership=obj, viewer=admin_viewer(request))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Membership]) -> None:
        for membership in queryset:
            self.delete_model(request, membership)


class NewKeyForm(ModelForm):
    """The permissions of a new key. Saving the form generates the key."""

    scopes = forms.MultipleChoiceField(
        choices=[(scope, scope) for scope in SCOPES],
        widget=forms.CheckboxSelectMultiple,
        initial=["read"],
        help_text="Each is apart from the others: write does not include read. Only admin includes all.",
    )

    class Meta:
        model = ApiKey
        fields = ("name", "scopes", "projects", "every_project", "requests_per_minute", "expires_at")
        help_texts = {
            "every_project": "Including new ones; with the scope write it may also create projects.",
            "expires_at": "Leave empty for a key that does not expire.",
        }

    def clean_expires_at(self) -> datetime | None:
        expires_at: datetime | None = self.cleaned_data["expires_at"]
        if expires_at and expires_at <= timezone.now():
            raise forms.ValidationError("This date has passed: an expired key has no access.")
        return expires_at

    def clean(self) -> dict[str, Any]:
        super().clean()
        wanted: dict[str, Any] = self.cleaned_data
        if "projects" in wanted and "every_project" in wanted:
            named, every = bool(wanted["projects"]), wanted["every_project"]
            if not named and not every:
                self.add_error("projects", "Select its projects, or tick “every project”.")
            if named and every:
                self.add_error("every_project", "Select all projects or some of them, not both.")
        return wanted


@admin.register(ApiKey)
class ApiKeyAdmin(OwnersAdmin):
    form = NewKeyForm
    list_display = (
        "name",
        "shown_prefix",
        "shown_scopes",
        "shown_projects",
        "created_by",
        "last_used_at",
        "shown_state",
    )
    list_select_related = ("created_by",)
    list_filter = (("revoked_at", admin.EmptyFieldListFilter), ("expires_at", admin.EmptyFieldListFilter), "projects")
    search_fields = ("name", "prefix")
    autocomplete_fields = ("projects",)
    actions = ("rotate", "revoke")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).prefetch_related("projects")

    def get_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> tuple[str, ...]:
        if obj is None:
            return ("name", "scopes", "projects", "every_project", "requests_per_minute", "expires_at")
        # The hash is useless to readers.
        shown = ("name", "shown_prefix", "shown_scopes", "shown_projects", "shown_state")
        return (*shown, "requests_per_minute", "created_by", "created_at", "expires_at", "last_used_at", "revoked_at")

    def get_readonly_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> tuple[str, ...]:
        return () if obj is None else self.get_fields(request, obj)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        # The permissions of a key are final. The list passes no key: revoking is one of its actions.
        return obj is None and super().has_change_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        # Keys are revoked, never deleted: the audit trail refers to them.
        return False

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        new = make_key(**form.cleaned_data, viewer=admin_viewer(request))
        obj.pk, obj.prefix = new.key.pk, new.key.prefix
        shown = format_html("Copy the key now; it is not shown again: <code>{}</code>", new.raw)
        messages.warning(request, shown)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Do nothing: `make_key` has stored the projects."""

    @admin.action(description="Rotate the selected keys: the old ones expire in a day")
    def rotate(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        for key in queryset:
            try:
                new = rotate_key(key=key, viewer=admin_viewer(request), grace=GRACE)
            except KeyRefusedError as error:
                messages.error(request, str(error))
                continue
            shown = format_html("The key that replaces {}, not shown again: <code>{}</code>", key, new.raw)
            messages.warning(request, shown)

    @admin.action(description="Revoke the selected keys")
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        ended = sum(revoke_key(key=key, viewer=admin_viewer(request)) for key in queryset)
        self.message_user(request, f"Revoked {ended} of {len(queryset)} keys; the others were already revoked.")

    @admin.display(description="key", ordering="prefix")
    def shown_prefix(self, key: ApiKey) -> str:
        return f"{key.prefix}…"

    @admin.display(description="scopes")
    def shown_scopes(self, key: ApiKey) -> str:
        return ", ".join(key.scopes)

    @admin.display(description="projects")
    def shown_projects(self, key: ApiKey) -> str:
        return key.shown_projects()

    @admin.display(description="state", ordering="revoked_at")
    def shown_state(self, key: ApiKey) -> str:
        return key_state(key, timezone.now())


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
