"""Whether notifications can be delivered."""

import smtplib
from collections.abc import Iterator

from django.conf import settings
from django.core.mail import get_connection

from apps.notifications.models import Delivery, Rule
from apps.workers.diagnosis.findings import Diagnosis


def notifications() -> Iterator[Diagnosis]:
    rules = Rule.objects.count()
    found = [*_mail(), *_links(rules), *_given_up()]
    yield from found or [Diagnosis.ok(f"{rules} notification rules")]


def _mail() -> Iterator[Diagnosis]:
    num_rules = Rule.objects.filter(channel=Rule.Channel.MAIL).count()
    if not settings.EMAIL_HOST:
        if num_rules:
            yield Diagnosis.problem(
                f"{num_rules} notification rules send mail, but there is no mail server",
                "Set TRAINOPS_MAIL_URL=smtp+starttls://USER:PASSWORD@HOST:587.",
            )
        return
    try:
        with get_connection():
            pass
    except (OSError, smtplib.SMTPException) as error:
        yield Diagnosis.problem(
            f"the mail server {settings.EMAIL_HOST}:{settings.EMAIL_PORT} refuses: {error}",
            "Correct host, port, user and password of TRAINOPS_MAIL_URL.",
        )


def _links(num_rules: int) -> Iterator[Diagnosis]:
    if num_rules and not settings.PUBLIC_URL:
        yield Diagnosis.warning(
            f"the links of {num_rules} notification rules have no host",
            "Set TRAINOPS_PUBLIC_URL to the address of the pages.",
        )


def _given_up() -> Iterator[Diagnosis]:
    if num := Delivery.objects.filter(status=Delivery.Status.GIVEN_UP).count():
        latest = Delivery.objects.filter(status=Delivery.Status.GIVEN_UP).latest("pk")
        yield Diagnosis.warning(
            f"{num} notifications were given up, the latest with: {latest.error or 'no error'}",
            "Correct the rule's address (trainops notifications test RULE), then retry them.",
        )
