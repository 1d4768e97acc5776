"""API tokens, what happened lately, and the audit log."""

import secrets

from django.conf import settings
from django.db import models
from knox.models import AbstractAuthToken

from trainops.clock import DatabaseNow


def new_token_id() -> str:
    return f"tok_{secrets.token_hex(8)}"


class TokenScope(models.TextChoices):
    USER = "user", "Acts for its owner"
    READ = "read", "Reads for its owner"
    WORKER = "worker", "Worker endpoints only"


class Token(AbstractAuthToken):  # type: ignore[misc] # knox is not typed
    """A token's digest; the token itself is shown once, when it is made.

    `public_id` names it in the API, so that no part of the secret ever has to.
    """

    public_id = models.CharField(max_length=20, unique=True, editable=False, default=new_token_id)
    name = models.CharField(max_length=100, blank=True, default="")
    scope = models.CharField(max_length=10, choices=TokenScope.choices, default=TokenScope.USER)

    worker_id = models.CharField(
        max_length=120, blank=True, default="", editable=False,
        help_text="Worker that a token of the scope `worker` authenticates.",
    )  # fmt: skip

    first_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)  # to a minute
    last_used_from = models.CharField(
        max_length=45, blank=True, default="", db_default="", editable=False
    )  # address

    class Meta:
        ordering = ("-created", "-public_id")
        constraints = [
            models.UniqueConstraint(
                name="token_one_for_each_worker",
                fields=["worker_id"],
                condition=~models.Q(worker_id=""),
            ),
            models.CheckConstraint(
                name="token_scope_known", condition=models.Q(scope__in=TokenScope.values)
            ),
        ]

    def __str__(self) -> str:
        return self.name or self.public_id


class ServiceAccount(models.Model):
    """Marks an account for programs: superusers create its tokens, and it has no password."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, models.CASCADE, primary_key=True, related_name="service_account"
    )

    def __str__(self) -> str:
        return str(self.user)


class SecondFactor(models.Model):
    """Secret of codes by time (TOTP), for people who sign in with a password."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, models.CASCADE, primary_key=True, related_name="second_factor"
    )
    secret = models.TextField(editable=False)  # encrypted
    last_period = models.BigIntegerField(default=0, editable=False)  # of 30 s: of the last code
    created_at = models.DateTimeField(db_default=DatabaseNow(), editable=False)


class RecoveryCode(models.Model):
    """Digest of a code that is accepted once, instead of a code of the app."""

    factor = models.ForeignKey(SecondFactor, models.CASCADE, related_name="recovery_codes")
    digest = models.CharField(max_length=64)

    class Meta:
        constraints = [
            models.UniqueConstraint(name="recovery_code_once", fields=["factor", "digest"])
        ]


class Identity(models.Model):
    """Which person of a provider (OpenID Connect) signs in to an account."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="identities")
    issuer = models.CharField(max_length=255)
    subject = models.CharField(max_length=255)
    created_at = models.DateTimeField(db_default=DatabaseNow(), editable=False)
    last_used_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(name="identity_of_one_account", fields=["issuer", "subject"]),
            models.UniqueConstraint(name="identity_one_of_issuer", fields=["user", "issuer"]),
        ]
        verbose_name_plural = "identities"

    def __str__(self) -> str:
        return f"{self.subject} of {self.issuer}"


class RecentCount(models.Model):
    """How often something happened lately: wrong passwords, passwords that were tried or set."""

    key = models.CharField(
        primary_key=True, max_length=32, help_text="Digest of what is counted and for whom."
    )
    number = models.PositiveIntegerField(default=0)
    expires_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return self.key


class AuditEntry(models.Model):
    """What was done to accounts, tokens and stored work. The database refuses to change entries."""

    created_at = models.DateTimeField(db_default=DatabaseNow())
    event = models.CharField(max_length=40)
    actor = models.CharField(max_length=150, blank=True, help_text="Username; empty: the platform.")
    address = models.CharField(max_length=45, blank=True, help_text="Address of the request.")
    details = models.JSONField(default=dict)

    class Meta:
        ordering = ["-created_at", "-id"]
        verbose_name_plural = "audit entries"
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="audit_newest"),
            models.Index(fields=["actor", "-created_at", "-id"], name="audit_of_actor"),
        ]

    def __str__(self) -> str:
        return self.event
