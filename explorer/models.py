"""Measurements of the site, for the trends and incidents of the status page."""

from django.contrib.postgres.fields import ArrayField
from django.db import models


class SiteSample(models.Model):
    """Five minutes of the site: the answers of all its processes, and its state at the beginning."""

    begin = models.DateTimeField(primary_key=True)
    answers = models.IntegerField(default=0)
    errors = models.IntegerField(default=0)
    speeds = ArrayField(
        models.IntegerField(), default=list, help_text="How many answers took up to each of `web.exchange.SPEEDS`."
    )
    restarts = models.IntegerField(db_default=0, help_text="Processes that ended by themselves and were started again.")
    index_lag = models.FloatField(default=0, help_text="Seconds; the most in this time.")
    memories = models.BigIntegerField(default=0)
    pending = models.BigIntegerField(
        null=True, help_text="Memories that have no vector of the model in use; null without a model."
    )
    database_bytes = models.BigIntegerField(default=0)
    free_bytes = models.BigIntegerField(default=0, help_text="Of the disk that MNEMOSCOPE_HOME is on.")

    class Meta:
        ordering = ["begin"]

    def __str__(self) -> str:
        return f"{self.answers} answers from {self.begin:%Y-%m-%d %H:%M}"
