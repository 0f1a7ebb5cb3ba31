"""Saved views: named queries in canonical form, and what each person does with them."""

from django.conf import settings
from django.db import models
from django.utils import timezone


class SavedView(models.Model):
    class Visibility(models.TextChoices):
        PRIVATE = "private"
        TEAM = "team"

    id = models.BigAutoField(primary_key=True)
    slug = models.SlugField(max_length=100)
    name = models.CharField(max_length=200)
    description = models.TextField(blank=True)
    query = models.TextField(blank=True, help_text="The canonical query string.")
    presentation = models.TextField(
        blank=True, default="", db_default="", help_text="How a page shows it, as a query string."
    )
    visibility = models.CharField(max_length=10, choices=Visibility, default=Visibility.PRIVATE)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="saved_views", db_constraint=False)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["owner", "slug"], name="savedview_owner_slug_unique")]

    def __str__(self) -> str:
        return self.name


class ViewMark(models.Model):
    """One person's use of a view: whether it is pinned, whether they begin with it, and when they last opened it."""

    id = models.BigAutoField(primary_key=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", db_constraint=False)
    view = models.ForeignKey(SavedView, models.CASCADE, related_name="marks")
    pinned = models.BooleanField(default=False)
    is_default = models.BooleanField(default=False)
    opened_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "view"], name="viewmark_user_view_unique"),
            models.UniqueConstraint(fields=["user"], condition=models.Q(is_default=True), name="viewmark_one_default"),
        ]

    def __str__(self) -> str:
        return f"{self.user} · {self.view}"


class ViewFeed(models.Model):
    """A secret address at which a program reads the newest memories of a view, as one person sees them.

    Only a hash of the secret is stored. Whoever has the address needs no other permission, until it is revoked.
    """

    id = models.BigAutoField(primary_key=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", db_constraint=False)
    view = models.ForeignKey(SavedView, models.CASCADE, related_name="+")
    token_hash = models.CharField(max_length=64)
    created_at = models.DateTimeField(default=timezone.now)
    read_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "view"], name="viewfeed_user_view_unique"),
            models.UniqueConstraint(fields=["token_hash"], name="viewfeed_token_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.user} · {self.view}"
