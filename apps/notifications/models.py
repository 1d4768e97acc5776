"""Rules that say what is sent where, the log of what was sent, and the alerts of rules."""

import secrets

from django.conf import settings
from django.db import models

from trainops.clock import DatabaseNow


def new_secret() -> str:
    return secrets.token_hex(32)


class Rule(models.Model):
    """What is sent to one target: which events of which operations."""

    class Channel(models.TextChoices):
        WEBHOOK = "webhook", "webhook"
        MAIL = "mail", "mail"

    class Condition(models.TextChoices):
        NONE = "", "no alert"
        PLATEAU = "plateau", "the metric is not better for N points"
        NOT_FINITE = "not_finite", "the metric is NaN or infinite"
        THROUGHPUT_HALVED = "throughput_halved", "the throughput has halved"

    name = models.CharField(max_length=64, help_text="Display name.")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, null=True, editable=False,
        related_name="notification_rules",
        help_text="User that created it. Covers only own operations, unless that user is an admin.",
    )  # fmt: skip
    channel = models.CharField(max_length=7, choices=Channel.choices, default=Channel.WEBHOOK)
    target = models.CharField(
        max_length=500, help_text="http:// or https:// address with a public host, or mail address."
    )
    secret = models.CharField(
        max_length=64, default=new_secret, editable=False,
        help_text="Key of the signature in X-Trainops-Signature, hexadecimal.",
    )  # fmt: skip
    on_failed = models.BooleanField("failed", default=True)
    on_cancelled = models.BooleanField("cancelled", default=False)
    on_completed = models.BooleanField("completed", default=False)
    on_attention = models.BooleanField(
        "attention",
        default=False,
        help_text="New reasons for attention, but for failures.",
    )
    kind = models.CharField(max_length=16, blank=True, help_text="Empty: operations of any kind.")
    owner = models.CharField(
        max_length=150, blank=True, help_text="Username of the owner. Empty: operations of anyone."
    )
    reason = models.CharField(
        max_length=24,
        blank=True,
        help_text="Reason of the end or for attention. Empty: any.",
    )
    tag = models.CharField(max_length=64, blank=True, help_text="Empty: with or without tags.")
    project = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        help_text="Empty: of any project, or of none.",
    )
    condition = models.CharField(
        max_length=17, choices=Condition.choices, blank=True, help_text="Condition of an alert."
    )
    metric = models.CharField(
        max_length=64, blank=True,
        help_text="Metric of the alert. Empty: any metric, or steps per second for the throughput.",
    )  # fmt: skip
    mode = models.CharField(
        max_length=3, choices=[("min", "min"), ("max", "max")], default="min",
        help_text="Direction in which the metric improves (plateau only).",
    )  # fmt: skip
    points = models.PositiveIntegerField(
        default=20, help_text="N: number of points of the metric, such as epochs of val_loss."
    )
    digest_hour = models.PositiveSmallIntegerField(
        null=True, blank=True,
        help_text="Hour of the daily digest, 0 to 23. Empty: each notification is sent at once.",
    )  # fmt: skip
    is_active = models.BooleanField("active", default=True)
    created_at = models.DateTimeField(db_default=DatabaseNow(), editable=False)

    class Meta:
        ordering = ["name", "id"]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        from apps.notifications import validation  # noqa: PLC0415 - it reads this module

        validation.validate(self)


class Delivery(models.Model):
    """One notification of one rule, with its tries."""

    class Status(models.TextChoices):
        COLLECTED = "collected", "waits for the digest"
        IN_DIGEST = "in_digest", "part of a digest"
        WAITING = "waiting", "waiting"
        DELIVERED = "delivered", "delivered"
        GIVEN_UP = "given_up", "given up"
        DROPPED = "dropped", "dropped"

    UNDELIVERED = (Status.WAITING, Status.GIVEN_UP, Status.DROPPED)

    rule = models.ForeignKey(Rule, models.CASCADE, related_name="deliveries")
    event_id = models.BigIntegerField(
        null=True, help_text="Event of the operation; empty: a test or a digest."
    )
    operation_id = models.CharField(max_length=64, blank=True)
    what = models.CharField(max_length=32)
    body = models.JSONField()
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.WAITING)
    num_tries = models.PositiveIntegerField(default=0)
    next_at = models.DateTimeField(
        db_default=DatabaseNow(), help_text="Time of the next try, or of the digest."
    )
    response_status = models.PositiveIntegerField(
        null=True, help_text="HTTP status of the last try."
    )
    error = models.CharField(max_length=300, blank=True, help_text="Error of the last try.")
    created_at = models.DateTimeField(db_default=DatabaseNow())

    class Meta:
        ordering = ["-id"]
        verbose_name_plural = "deliveries"
        constraints = [
            models.UniqueConstraint(fields=["rule", "event_id"], name="one_delivery_per_event")
        ]
        indexes = [models.Index(fields=["status", "next_at"], name="deliveries_due")]

    def __str__(self) -> str:
        return f"{self.what} of {self.operation_id or 'no operation'} to {self.rule}"

    @property
    def can_retry(self) -> bool:
        return self.status in self.UNDELIVERED


class Alert(models.Model):
    """The alert of a rule on one operation, and how far its points were read."""

    rule = models.ForeignKey(Rule, models.CASCADE, related_name="alerts")
    operation = models.ForeignKey("operations.Operation", models.CASCADE, related_name="alerts")
    is_raised = models.BooleanField(default=False)
    state = models.JSONField(default=dict, help_text="Summary of the points read.")
    last_point_id = models.BigIntegerField(default=0, help_text="Points up to this id were read.")
    begun = models.CharField(
        max_length=48, blank=True,
        help_text="Attempt and its first step; a change means that points were retired.",
    )  # fmt: skip
    settings = models.CharField(
        max_length=128, blank=True,
        help_text="Condition, mode, N and metric of the rule; after a change all points are read.",
    )  # fmt: skip

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["rule", "operation"], name="one_alert_per_operation")
        ]

    def __str__(self) -> str:
        return f"{self.rule} on {self.operation_id}"
