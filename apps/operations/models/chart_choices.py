"""Which charts a user sees, and in which order."""

from django.conf import settings
from django.db import models


class ChartChoice(models.Model):
    """The choice of one user, for the charts of all pages; names of charts in lists."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, models.CASCADE, primary_key=True, related_name="chart_choice"
    )
    hidden = models.JSONField(default=list, db_default=[], help_text="Charts that are not shown.")
    pinned = models.JSONField(default=list, db_default=[], help_text="Charts above all others.")
    order = models.JSONField(
        default=list, db_default=[], help_text="Charts in their order; the others follow."
    )

    def __str__(self) -> str:
        return f"charts of {self.user}"
