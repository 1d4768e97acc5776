"""Notification rules on the command line."""

import pytest

from apps.notifications.models import Delivery, Rule
from trainops.client.problems import ExitCode

pytestmark = pytest.mark.slow
TARGET = "https://hooks.example.org/ana"


def test_a_rule_is_added_listed_tested_and_deleted(cli):
    ran = cli("notifications", "add", TARGET, "--on", "failed", "--on", "completed", "--tag", "a",
              "--project", "lungs")  # fmt: skip
    rule = Rule.objects.get()
    assert ran.stdout.strip() == str(rule.pk) and rule.secret in ran.stderr
    assert (rule.on_failed, rule.on_completed, rule.on_cancelled) == (True, True, False)
    assert (rule.tag, rule.project, rule.owner) == ("a", "lungs", "ana")
    assert "failed, completed" in cli("notifications", "ls").stdout
    assert cli("notifications", "test", rule.pk).exit_code == ExitCode.OK
    (row,) = cli("notifications", "deliveries", "-o", "json").json
    assert row["what"] == "TEST"
    assert cli("notifications", "retry", row["delivery_id"]).exit_code == ExitCode.OK
    assert "TEST" in cli("notifications", "deliveries").stdout
    assert cli("notifications", "rm", rule.pk, "--yes").exit_code == ExitCode.OK
    assert not Rule.objects.exists() and not Delivery.objects.exists()


def test_an_alert_needs_its_metric(cli):
    ran = cli("notifications", "add", TARGET, "--alert", "plateau")
    assert ran.exit_code == ExitCode.USAGE and "the name of a metric" in ran.stderr
    ran = cli("notifications", "add", TARGET, "--alert", "plateau", "--metric", "val_loss")
    assert ran.exit_code == ExitCode.OK and Rule.objects.get().condition == "plateau"


def test_a_rule_that_does_not_exist_is_not_found(cli):
    assert cli("notifications", "rm", 7, "--yes").exit_code == ExitCode.NOT_FOUND
