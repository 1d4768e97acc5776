"""Mail by a real SMTP server, at once and as a digest."""

import socketserver
import threading
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone

from apps.notifications import deliveries, digests, matching, services
from apps.notifications.models import Delivery
from tests.notifications.receiver import ends, made, make_due
from tests.operations import rows
from trainops.notification_settings import mail_server

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


class SmtpHandler(socketserver.StreamRequestHandler):
    """As much of SMTP as a client needs that sends one message."""

    def handle(self):
        self.answer(220)
        while line := self.rfile.readline():
            command = line.split(b":")[0].strip().upper().split(b" ")[0]
            if command == b"DATA":
                self.answer(354)
                self.server.messages.append(self.message())
                self.answer(250)
            elif command == b"QUIT":
                self.answer(221)
                break
            elif command == b"RCPT":
                self.answer(self.server.rcpt_code)
            else:
                self.answer(250)

    def message(self):
        lines = iter(self.rfile.readline, b".\r\n")
        return message_from_bytes(b"".join(lines), policy=policy.default)

    def answer(self, code):
        self.wfile.write(f"{code} ok\r\n".encode())


@pytest.fixture
def smtp(settings):
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), SmtpHandler)
    server.messages, server.rcpt_code = [], 250
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    url = f"smtp://127.0.0.1:{server.server_address[1]}"
    environment = {"TRAINOPS_MAIL_URL": url, "TRAINOPS_MAIL_FROM": "ops@example.org"}
    for name, value in mail_server(environment).items():
        setattr(settings, name, value)
    yield server
    server.shutdown()
    server.server_close()


def mailed(**fields):
    return made("team@example.org", channel="mail", **fields)


@pytest.mark.slow
def test_a_failure_is_mailed(smtp, person, settings):
    settings.PUBLIC_URL = "https://trainops.example.org"
    rule = mailed()
    operation = rows.claimed(person)
    operation.row.update(name="my\r\nBcc: x@example.org run")
    ends(operation, "FAILED", reason="JOB_ERROR")
    deliveries.send_due_to(rule.pk)
    (message,) = smtp.messages
    assert message["Subject"] == "[trainops] FAILED: my Bcc: x@example.org run"
    assert (message["To"], message["From"]) == ("team@example.org", "ops@example.org")
    assert message["Bcc"] is None
    text = message.get_content()
    assert "reason: JOB_ERROR" in text and "why" in text
    assert f"https://trainops.example.org/operations/{operation.pk}/" in text
    assert Delivery.objects.get().status == "delivered"


@pytest.mark.slow
def test_a_refused_address_is_retried(smtp, person):
    smtp.rcpt_code = 550
    rule = mailed()
    services.test(rule)
    deliveries.send_due_to(rule.pk)
    delivery = Delivery.objects.get()
    assert (delivery.status, delivery.num_tries) == ("waiting", 1)
    assert "550" in delivery.error and smtp.messages == []


@pytest.mark.slow
def test_a_digest_is_one_mail_at_its_hour(smtp, person):
    rule = mailed(on_completed=True, digest_hour=7)
    ends(rows.claimed(person), "FAILED", reason="JOB_ERROR")
    ends(rows.claimed(person), "COMPLETED")
    digests.create_due()
    deliveries.send_due_to(rule.pk)
    assert smtp.messages == []
    assert all(each.next_at > timezone.now() for each in Delivery.objects.all())
    make_due()
    for _ in range(2):
        digests.create_due()
    deliveries.send_due_to(rule.pk)
    (message,) = smtp.messages
    assert message["Subject"] == "[trainops] DIGEST: 1 COMPLETED, 1 FAILED"
    text = message.get_content()
    assert text.index("FAILED:") < text.index("COMPLETED:")
    statuses = Delivery.objects.order_by("pk").values_list("status", flat=True)
    assert list(statuses) == ["in_digest", "in_digest", "delivered"]


@pytest.mark.parametrize(("hour", "day"), [(6, 2), (7, 2), (8, 1)])
def test_the_next_hour_of_a_digest_is_after_now(hour, day):
    now = datetime(2026, 5, 1, 7, 0, tzinfo=UTC)
    assert matching.next_hour(hour, now) == datetime(2026, 5, day, hour, tzinfo=UTC)
    assert matching.next_hour(hour, now) - now <= timedelta(days=1)


def test_without_a_mail_server_no_mail_rule_is_accepted():
    with pytest.raises(ValidationError, match="TRAINOPS_MAIL_URL"):
        mailed()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("smtp://mail.example.org", (25, False, False, "")),
        ("smtp+starttls://ana:p%40ss@mail.example.org", (587, True, False, "p@ss")),
        ("smtps://ana:x@mail.example.org:4650", (4650, False, True, "x")),
    ],
)
def test_an_address_of_a_mail_server(url, expected):
    found = mail_server({"TRAINOPS_MAIL_URL": url})
    names = ("EMAIL_PORT", "EMAIL_USE_TLS", "EMAIL_USE_SSL", "EMAIL_HOST_PASSWORD")
    assert tuple(found[name] for name in names) == expected


@pytest.mark.parametrize("url", ["http://x", "smtp:", "mail.example.org", "smtp://x:port"])
def test_an_address_of_no_mail_server_is_refused_without_its_password(url):
    with pytest.raises(ValueError, match=r"TRAINOPS_MAIL_URL: got the scheme .*; allowed: smtp"):
        mail_server({"TRAINOPS_MAIL_URL": url})
