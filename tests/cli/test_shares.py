"""The commands of shares."""

import pytest
from django.contrib.auth.models import Group

from apps.operations.models import Share
from tests.pages import making
from trainops.client.problems import ExitCode


@pytest.fixture
def admin(ana):
    ana.groups.add(Group.objects.get(name="admin"))
    return ana


def test_shares_are_set_listed_and_deleted(cli, admin):
    making.attempt(making.operation(admin, "RUNNING", project="vision"))
    assert "share of ana was set" in cli("shares", "set", "ana", "--weight", "2").stderr
    limits = ["--slots", "4", "--gpus", "2", "--gpu-hours", "100"]
    made = cli("shares", "set", "--project", "vision", "--member", "ana", *limits)
    assert made.exit_code == ExitCode.OK
    share = Share.objects.get(project="vision")
    assert (share.max_slots, share.max_gpus, share.gpu_hours_per_week) == (4, 2, 100)
    assert Share.objects.get(owner=admin).weight == 2
    shown = cli("shares", "ls").stdout
    assert {" ".join(line.split()) for line in shown.splitlines()[1:]} == {
        "ana - - 2 1 0 0 -", "- vision ana 1 1 of 4 0 of 2 0 of 100 -",
    }  # fmt: skip
    cli("shares", "set", "ana", "--not-preemptible")
    assert Share.objects.get(owner=admin).preemptible is False
    cli("shares", "set", "ana")  # replaces it
    share = Share.objects.get(owner=admin)
    assert (share.weight, share.preemptible) == (1, True)
    assert cli("shares", "rm", "--project", "vision").exit_code == ExitCode.OK
    assert [each["owner"] for each in cli("shares", "ls", "-o", "json").json] == ["ana"]
    assert cli("shares", "rm", "--project", "vision").exit_code == ExitCode.NOT_FOUND
    assert cli("shares", "rm", "ben").exit_code == ExitCode.NOT_FOUND


def test_a_budget_is_set_and_shown(cli, admin):
    hours = ["--budget-gpu-hours", "20", "--budget-compute-hours", "1.5"]
    hours += ["--checkpoint-bytes", "5000"]
    assert cli("shares", "set", "ana", *hours, "--budget-period", "month").exit_code == 0
    share = Share.objects.get()
    assert (share.budget_gpu_hours, share.budget_compute_hours) == (20, 1.5)
    assert share.max_checkpoint_bytes == 5000
    assert "0 of 20 GPU h, 0 of 1.5 h (month)" in cli("shares", "ls").stdout
    wrong = cli("shares", "set", "ana", "--budget-period", "year")
    assert wrong.exit_code == ExitCode.USAGE
    assert "budget_period: got 'year'; allowed: week, month, total" in wrong.stderr


@pytest.mark.parametrize("given", [[], ["ana", "--project", "vision"]])
def test_a_share_is_of_a_user_or_of_a_project(cli, admin, given):
    for name in ("set", "rm"):
        ran = cli("shares", name, *given)
        assert ran.exit_code == ExitCode.USAGE
        assert "allowed: USERNAME, or --project NAME" in ran.stderr


def test_only_admins_set_shares(cli, ana):
    assert cli("shares", "set", "ana", "--slots", "9").exit_code == ExitCode.FAILED
    assert cli("shares", "ls").exit_code == ExitCode.OK
