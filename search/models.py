"""Saved views: named queries in canonical form."""

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
    visibility = models.CharField(max_length=10, choices=Visibility, default=Visibility.PRIVATE)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="saved_views", db_constraint=False)
    pinned = models.BooleanField(default=False)
    is_default = models.BooleanField(default=False)
    watched = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["owner", "slug"], name="savedview_owner_slug_unique")]

    def __str__(self) -> str:
        return self.name
