"""Visits of the home page."""

from django.conf import settings
from django.db import models


class Visit(models.Model):
    """A person's last look at the home page, and the one before: changes are shown since then."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, models.CASCADE, primary_key=True, related_name="+", db_constraint=False
    )
    last_at = models.DateTimeField()
    before_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.user} at {self.last_at}"
