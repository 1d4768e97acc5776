"""Notifications as mail, by the configured SMTP server."""

from smtplib import SMTPException

from django.conf import settings
from django.core.mail import EmailMessage

from apps.notifications.bodies import DeliveryBody
from apps.notifications.models import Delivery
from apps.notifications.sending import NotSent

MAX_SUBJECT = 200


def send(delivery: Delivery) -> None:
    """Send one delivery as plain text. Raises NotSent."""
    if not settings.EMAIL_HOST:
        raise NotSent("no mail server is configured; set TRAINOPS_MAIL_URL")
    message_id = f"<trainops-delivery-{delivery.pk}@{_domain()}>"
    message = EmailMessage(
        subject(delivery.body), text(delivery), to=[delivery.rule.target],
        headers={"Message-ID": message_id, "Auto-Submitted": "auto-generated"},
    )  # fmt: skip
    try:
        message.send()
    except (OSError, SMTPException, ValueError) as error:
        raise NotSent(f"{type(error).__name__}: {error}") from error


def _domain() -> str:
    return settings.DEFAULT_FROM_EMAIL.rpartition("@")[2].rstrip(">") or "localhost"


def subject(body: DeliveryBody) -> str:
    """Return one line: event and name of the operation, or the counts of a digest."""
    if operation := body.get("operation"):
        words = f"{body['event']}: {operation['name'] or operation['operation_id']}"
    elif counts := body.get("counts"):
        listed = ", ".join(f"{number} {what}" for what, number in sorted(counts.items()))
        words = f"DIGEST: {listed}"
    else:
        words = body["event"]
    return " ".join(f"[trainops] {words}".split())[:MAX_SUBJECT]


def line(body: DeliveryBody) -> str:
    """Return the subject with note and page, for chats that show the `text` of a webhook's body."""
    page = body["operation"]["page"] if "operation" in body else ""
    return " · ".join(each for each in (subject(body), body.get("note"), page) if each)


def text(delivery: Delivery) -> str:
    """Return the text of the mail."""
    body: DeliveryBody = delivery.body
    if body["event"] == "TEST":
        parts = ["This is a test of a notification rule."]
    else:
        parts = [_paragraph(each) for each in body.get("notifications", [body])]
    return "\n\n".join([*parts, f"Sent by the notification rule {delivery.rule.name}."])


def _paragraph(body: DeliveryBody) -> str:
    operation = body["operation"]
    lines = [
        f"{body['event']}: {operation['name']} ({operation['kind']})",
        f"{body['at']}, by {body['actor']}",
        f"step {operation['step']} of {operation['total_steps']}",
        f"reason: {operation['reason']}" if operation["reason"] else "",
        body["note"],
        operation["page"],
    ]
    return "\n".join(line for line in lines if line)
