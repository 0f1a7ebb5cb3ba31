"""Permissions and the audit trail: memberships, invitations, API keys, one-time sign-in tokens, events.

Projects, import batches and users are referenced without a database constraint, since a Citus cluster allows none from
these local tables to its reference tables. Django deletes or clears these references with their targets.
"""

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone

from text.formatting import day_text


class Membership(models.Model):
    """A person's role in a project."""

    class Role(models.TextChoices):
        """From least to most: each role includes those before it."""

        READER = "reader"
        WRITER = "writer"
        CURATOR = "curator"
        ADMIN = "admin"

    id = models.BigAutoField(primary_key=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="memberships", db_constraint=False)
    project = models.ForeignKey("memories.Project", models.CASCADE, related_name="memberships", db_constraint=False)
    role = models.CharField(max_length=10, choices=Role, default=Role.READER)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "project"], name="membership_unique")]

    def __str__(self) -> str:
        return f"{self.user} {self.role} of {self.project}"


class Invitation(models.Model):
    """A link that gives whoever opens it a role in projects, once. Only the hash of its token is stored."""

    id = models.BigAutoField(primary_key=True)
    token_hash = models.CharField(max_length=64)
    note = models.CharField(max_length=200, blank=True)
    role = models.CharField(max_length=10, choices=Membership.Role)
    projects = models.ManyToManyField("memories.Project", db_constraint=False)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", db_constraint=False)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    used_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+", db_constraint=False
    )
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [models.UniqueConstraint(fields=["token_hash"], name="invitation_hash_unique")]

    def __str__(self) -> str:
        return f"{self.role} by {self.created_by}"


class ApiKey(models.Model):
    """A bearer key. Only its hash is stored; people recognise it by its prefix."""

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=200)
    prefix = models.CharField(max_length=12)
    key_hash = models.CharField(max_length=64)
    scopes = ArrayField(models.CharField(max_length=10), default=list)
    projects = models.ManyToManyField("memories.Project", blank=True, db_constraint=False)
    # Explicit, not implied by an empty list: a key whose last project is removed must not see everything.
    every_project = models.BooleanField(default=False)
    requests_per_minute = models.PositiveIntegerField(
        null=True, blank=True, help_text="Empty for the limit of this site (API_REQUESTS_PER_MINUTE)."
    )
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+", db_constraint=False
    )
    # The person for whom an app has the key: it may do what they may, if it has the scope and the project for it.
    acts_for = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, null=True, blank=True, related_name="apps", db_constraint=False
    )
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["name"]
        verbose_name = "API key"
        constraints = [models.UniqueConstraint(fields=["key_hash"], name="apikey_hash_unique")]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @property
    def is_live(self) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > timezone.now())

    @property
    def state(self) -> str:
        """Its state in words."""
        if self.revoked_at:
            return f"revoked {day_text(self.revoked_at)}"
        if self.expires_at is None:
            return "active"
        return f"{'active until' if self.is_live else 'expired'} {day_text(self.expires_at)}"

    def shown_projects(self) -> str:
        """Its projects in words."""
        if self.every_project:
            return f"every project of {self.acts_for}" if self.acts_for else "every project"
        return ", ".join(sorted(project.slug for project in self.projects.all())) or "no project"


class AppGrant(models.Model):
    """The state of OAuth for the key of an app that acts for a person. Codes and tokens are stored as hashes only."""

    id = models.BigAutoField(primary_key=True)
    key = models.OneToOneField(ApiKey, models.CASCADE, related_name="grant")
    client_id = models.TextField()
    resource = models.TextField(blank=True)
    redirect_uri = models.TextField()
    is_redirect_given = models.BooleanField()
    code_hash = models.CharField(max_length=64)
    code_challenge = models.CharField(max_length=200)
    code_expires_at = models.DateTimeField()
    code_used_at = models.DateTimeField(null=True, blank=True)
    access_expires_at = models.DateTimeField(null=True, blank=True)
    refresh_hash = models.CharField(max_length=64, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["code_hash"], name="appgrant_code_idx"),
            models.Index(fields=["refresh_hash"], name="appgrant_refresh_idx"),
        ]

    def __str__(self) -> str:
        return f"{self.key} for {self.key.acts_for}"


class SignInToken(models.Model):
    """The one-time token in the link that `up` prints."""

    id = models.BigAutoField(primary_key=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", db_constraint=False)
    token_hash = models.CharField(max_length=64)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "sign-in token"
        constraints = [models.UniqueConstraint(fields=["token_hash"], name="signintoken_hash_unique")]

    def __str__(self) -> str:
        return f"token of {self.user}"


class AuditEvent(models.Model):
    """A change: who made it, through which interface, and the values before and after."""

    class Door(models.TextChoices):
        PAGE = "page"
        API = "api"
        MCP = "mcp"
        ADMIN = "admin"
        COMMAND = "command"

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(default=timezone.now)
    # Indexed together with the time.
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    api_key = models.ForeignKey(ApiKey, models.SET_NULL, null=True, blank=True, related_name="+", db_index=False)
    door = models.CharField(max_length=10, choices=Door)
    verb = models.CharField(max_length=50)
    subject_type = models.CharField(max_length=50)
    subject_id = models.BigIntegerField()
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)
    batch = models.ForeignKey(
        "memories.ImportBatch", models.SET_NULL, null=True, blank=True, related_name="events", db_constraint=False
    )
    note = models.TextField(blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["subject_type", "subject_id", "-id"], name="auditevent_subject_idx"),
            models.Index(fields=["-at"], name="auditevent_at_idx"),
            models.Index(fields=["user", "-at"], name="auditevent_user_idx"),
            models.Index(fields=["api_key", "-at"], name="auditevent_key_idx"),
        ]

    def __str__(self) -> str:
        return f"{self.verb} {self.subject_type} {self.subject_id}"


class MemoryChange(models.Model):
    """An entry of the feed of changes: what happened to memories of one project in one transaction.

    `revision` is that of the corpus after the transaction. Writers raise it one after another and commit before the
    next, so a reader who sees an entry sees all entries of lower revisions: the order of (revision, id) is that of the
    commits, whatever the order of the ids. It is empty until the transaction ends.
    """

    class Kind(models.TextChoices):
        CREATED = "created"
        EDITED = "edited"
        SUPERSEDED = "superseded"
        ARCHIVED = "archived"
        DELETED = "deleted"
        RESTORED = "restored"
        RETAGGED = "retagged"
        MERGED = "merged"

    id = models.BigAutoField(primary_key=True)
    revision = models.BigIntegerField(null=True)
    at = models.DateTimeField(null=True)
    # Not a key: the entries outlast a project whose import is undone.
    project_id = models.BigIntegerField()
    kind = models.CharField(max_length=20, choices=Kind)
    memory_ids = ArrayField(models.BigIntegerField())
    event = models.ForeignKey(AuditEvent, models.CASCADE, related_name="changes", db_constraint=False, db_index=False)

    class Meta:
        ordering = ["revision", "id"]
        indexes = [
            models.Index(fields=["revision", "id"], include=["kind"], name="memorychange_feed_idx"),
            models.Index(fields=["project_id", "revision", "id"], include=["kind"], name="memorychange_project_idx"),
            models.Index(fields=["at", "revision", "id"], name="memorychange_at_idx"),
            models.Index(fields=["id"], name="memorychange_open_idx", condition=models.Q(revision__isnull=True)),
        ]

    def __str__(self) -> str:
        return f"{self.kind}: {len(self.memory_ids)} memories"


class IdempotentReply(models.Model):
    """The reply to a request that had an `Idempotency-Key`; see `access/idempotency.py`."""

    id = models.BigAutoField(primary_key=True)
    owner = models.CharField(max_length=64, help_text="A hash of the credential.")
    key = models.CharField(max_length=255)
    request_hash = models.CharField(max_length=64)
    rights = models.JSONField(default=dict, help_text="The scopes and projects that the credential had.")
    status = models.SmallIntegerField()
    headers = models.JSONField(default=dict)
    body = models.TextField()
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["owner", "key"], name="idempotentreply_key_unique")]
        indexes = [models.Index(fields=["at"], name="idempotentreply_at_idx")]

    def __str__(self) -> str:
        return f"{self.status} to {self.key}"
