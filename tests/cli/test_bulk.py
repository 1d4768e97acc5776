"""One action on all operations that a query matches, on the command line."""

import pytest

from apps.operations.models import Operation
from tests.api.saved import CHANGED, saved
from tests.pages import making
from trainops.client.problems import ExitCode


@pytest.fixture
def night(ana):
    """Two operations of a night: one waits, one has ended."""
    return [making.operation(ana, state, tags=["night"]) for state in ("PENDING", "COMPLETED")]


def states(operations):
    return [Operation.objects.get(pk=each.pk).state for each in operations]


def test_a_dry_run_lists_the_outcomes_and_changes_nothing(cli, night):
    ran = cli("bulk", "cancel", "tag:night", "--dry-run")
    assert ran.exit_code == ExitCode.OK
    assert "allowed" in ran.stdout and "it is completed" in ran.stdout
    assert states(night) == ["PENDING", "COMPLETED"]


def test_only_what_the_preview_allows_is_changed(cli, night):
    ran = cli("bulk", "cancel", "tag:night", "--yes", "-o", "json")
    assert [each["operation_id"] for each in ran.json["outcomes"]] == [night[0].pk]
    assert states(night) == ["CANCELLED", "COMPLETED"]


def test_it_asks_first(cli, night):
    ran = cli("bulk", "cancel", "tag:night")
    assert ran.exit_code == ExitCode.USAGE and "Not interactive: pass --yes." in ran.stderr
    assert states(night) == ["PENDING", "COMPLETED"]


def test_where_nothing_can_be_done_it_exits_with_conflict(cli, night):
    ran = cli("bulk", "kill", "tag:night", "--yes")
    assert ran.exit_code == ExitCode.CONFLICT
    assert "it is pending" in ran.stdout
    assert "No operation that matches can be changed by kill." in ran.stderr


def test_resumes_under_changed_code_are_refused_until_that_is_accepted(cli, ana):
    operation = making.operation(ana, "FAILED", tags=["night"])
    saved(operation, environment=CHANGED)
    refused = cli("bulk", "resume", "tag:night", "--yes")
    assert refused.exit_code == ExitCode.CONFLICT
    assert "Resume them anyway: --accept-inexact" in refused.stderr
    assert states([operation]) == ["FAILED"]
    assert cli("bulk", "resume", "tag:night", "--yes", "--accept-inexact").exit_code == ExitCode.OK
    assert states([operation]) == ["RESUMING"]
