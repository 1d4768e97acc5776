"""Limits and weights of owners and projects."""

from typing import Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from apps.operations.models.compute_time import Period

MIN_WEIGHT: Final = 0.001
MAX_WEIGHT: Final = 1000.0
_HAS_OWNER: Final = Q(owner__isnull=False)


class Share(models.Model):
    """What an owner or a project may use, and its weight in the order of claims.

    An empty limit is none.
    """

    owner = models.OneToOneField(
        settings.AUTH_USER_MODEL, models.CASCADE, null=True, blank=True, related_name="share"
    )
    project = models.CharField(max_length=64, blank=True, default="", db_default="")
    members_only = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Whether only members and admins submit to the project; so if it has members.",
    )
    members = models.ManyToManyField(
        settings.AUTH_USER_MODEL,
        blank=True,
        related_name="project_shares",
        help_text="Users who may submit to the project, besides admins.",
    )
    weight = models.FloatField(
        default=1.0,
        db_default=1.0,
        validators=[MinValueValidator(MIN_WEIGHT), MaxValueValidator(MAX_WEIGHT)],
        help_text="Part of the slots in proportion to other owners or projects.",
    )
    preemptible = models.BooleanField(
        default=True,
        db_default=True,
        help_text="Whether operations of higher priority may preempt its running operations.",
    )
    max_slots = models.PositiveIntegerField(
        null=True, blank=True, help_text="Maximum slots of running operations."
    )
    max_gpus = models.PositiveIntegerField(
        null=True, blank=True, help_text="Maximum GPUs of running operations."
    )
    gpu_hours_per_week = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text="GPU hours of a week, from Monday to Sunday in UTC, after which no further "
        "operation starts on a GPU.",
    )

    budget_gpu_hours = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text="GPU hours of a period, after which its operations on GPUs are saved and wait.",
    )
    budget_compute_hours = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text="Hours of a period, times processes, after which all of its operations are "
        "saved and wait.",
    )
    budget_period = models.CharField(
        max_length=5,
        choices=[(each.value, each.value) for each in Period],
        default=Period.WEEK,
        db_default=Period.WEEK,
        help_text="Period of the budget, in UTC: week (from Monday), month or total.",
    )

    max_checkpoint_bytes = models.PositiveBigIntegerField(
        null=True,
        blank=True,
        help_text="Bytes of checkpoints, above which periodic saving pauses.",
    )

    class Meta:
        ordering = ["owner__username", "project"]
        constraints = [
            models.CheckConstraint(
                condition=(_HAS_OWNER & Q(project="")) | (~_HAS_OWNER & ~Q(project="")),
                name="share_of_an_owner_or_a_project",
            ),
            models.CheckConstraint(
                condition=Q(weight__gte=MIN_WEIGHT, weight__lte=MAX_WEIGHT),
                name="share_weight_is_in_range",
            ),
            models.CheckConstraint(
                condition=Q(gpu_hours_per_week=None) | Q(gpu_hours_per_week__gte=0),
                name="share_gpu_hours_are_not_negative",
            ),
            models.UniqueConstraint(
                fields=["project"], condition=~Q(project=""), name="one_share_per_project"
            ),
        ]

    def __str__(self) -> str:
        return f"project {self.project}" if self.project else str(self.owner)

    def clean(self) -> None:
        """Raise ValidationError unless it is of an owner or of a project."""
        self.project = self.project.strip()
        if bool(self.owner_id) == bool(self.project):
            given = f"{self.owner} and {self.project!r}" if self.project else "none"
            raise ValidationError({"project": f"got {given}; allowed: an owner or a project"})
