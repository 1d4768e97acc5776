"""One action on several operations by the API: an outcome for each, dry runs, refused requests."""

import pytest

from apps.operations.lifecycle import State
from apps.operations.models import Operation
from apps.operations.requests import bulk
from tests.api.answers import data, error
from tests.api.saved import CHANGED, saved
from tests.pages import making


def asked(api, action, *operations, **more):
    return data(api.post("operations/bulk", {"action": action, "ids": ids(*operations), **more}))


def ids(*operations):
    return [each.pk for each in operations]


def outcomes(answer):
    return [(each["operation_id"], each["outcome"], each["code"]) for each in answer["outcomes"]]


def states(*operations):
    return [Operation.objects.get(pk=each.pk).state for each in operations]


def test_each_operation_has_its_outcome_in_the_order_of_the_ids(operator, colleague):
    waiting, done = making.operation(operator.user), making.operation(operator.user, "COMPLETED")
    others = making.operation(colleague.user)
    answer = asked(operator, "cancel", done, others, waiting)
    assert outcomes(answer) == [
        (done.pk, "refused", "OPERATION_NOT_CANCELLABLE"),
        (others.pk, "refused", "PERMISSION_DENIED"),
        (waiting.pk, "done", ""),
    ]
    assert answer["outcomes"][1]["message"].endswith("Ask its owner or an admin.")
    assert (answer["num_matching"], answer["num_refused"]) == (3, 2)
    assert states(waiting, done, others) == ["CANCELLED", "COMPLETED", "PENDING"]


def test_a_dry_run_tells_the_outcomes_and_changes_nothing(operator, colleague):
    waiting, done = making.operation(operator.user), making.operation(operator.user, "COMPLETED")
    others = making.operation(colleague.user)
    answer = asked(operator, "cancel", waiting, done, others, dry_run=True)
    assert [(each["outcome"], each["message"]) for each in answer["outcomes"]] == [
        ("allowed", ""),
        ("refused", "it is completed"),
        ("refused", "it belongs to carla"),
    ]
    assert states(waiting, done, others) == ["PENDING", "COMPLETED", "PENDING"]


def test_resumes_under_changed_code_are_refused_until_that_is_accepted(operator):
    same, changed = (making.operation(operator.user, "FAILED") for _ in range(2))
    saved(same)
    saved(changed, environment=CHANGED)
    answer = asked(operator, "resume", same, changed)
    assert outcomes(answer) == [(same.pk, "done", ""), (changed.pk, "refused", "CODE_CHANGED")]
    assert outcomes(asked(operator, "resume", changed, accept_inexact=True)) == [
        (changed.pk, "done", "")
    ]


def test_unknown_ids_are_refused_and_repeated_ones_count_once(operator):
    operation = making.operation(operator.user)
    body = {"action": "cancel", "ids": ["op_none", operation.pk, operation.pk]}
    for dry_run, succeeded in ((True, "allowed"), (False, "done")):
        answer = data(operator.post("operations/bulk", body | {"dry_run": dry_run}))
        assert outcomes(answer) == [
            (operation.pk, succeeded, ""),
            ("op_none", "refused", "OPERATION_NOT_FOUND"),
        ]
        assert answer["num_matching"] == 2


def test_a_query_selects_what_the_list_shows(operator):
    failed = making.operation(operator.user, "FAILED", tags=["night"])
    other = making.operation(operator.user, "FAILED")
    body = {"action": "archive", "q": "state:failed tag:night"}
    assert outcomes(data(operator.post("operations/bulk", body))) == [(failed.pk, "done", "")]
    assert (
        data(operator.post("operations/bulk", body))["outcomes"] == []
    )  # lists omit archived ones
    assert Operation.objects.get(pk=other.pk).archived_at is None


def test_a_query_affects_the_latest_operations_up_to_the_limit(operator, monkeypatch):
    monkeypatch.setattr(bulk, "MAX_OPERATIONS", 1)
    older, latest = making.operation(operator.user), making.operation(operator.user)
    answer = data(operator.post("operations/bulk", {"action": "cancel", "q": "state:pending"}))
    assert (answer["num_matching"], outcomes(answer)) == (2, [(latest.pk, "done", "")])
    assert states(older) == ["PENDING"]


@pytest.mark.parametrize("action", ["kill", "resume", "delete", "acknowledge", "favourite"])
def test_every_action_does_what_the_endpoint_of_one_operation_does(operator, action):
    state = State.RUNNING if action == "kill" else State.FAILED
    operation = making.operation(operator.user, state)
    size = saved(operation).artifacts_size_bytes
    answer = asked(operator, action, operation)
    assert outcomes(answer) == [(operation.pk, "done", "")]
    row = Operation.objects.filter(pk=operation.pk).first()
    match action:
        case "kill":
            assert row.stop_requested == "kill"
        case "resume":
            assert row.state == "RESUMING"
        case "delete":
            assert row is None and answer["outcomes"][0]["freed_bytes"] == size
        case "acknowledge":
            assert row.acknowledged_at is not None
        case "favourite":
            assert row.is_favourite


def test_tags_and_projects_of_several_are_edited(operator, viewer):
    one, two = (making.operation(operator.user, tags=["night", "old"]) for _ in range(2))
    theirs = making.operation(viewer.user)
    change = {"tags": ["new", "night"], "untags": ["old", "absent"], "project": "lungs"}
    answer = asked(operator, "edit", one, two, theirs, **change)
    assert [each["outcome"] for each in answer["outcomes"]] == ["done", "done", "refused"]
    for each in (one, two):
        each.refresh_from_db()
        tags = sorted(each.tags.values_list("name", flat=True))
        assert (tags, each.project) == (["new", "night"], "lungs")
    asked(operator, "edit", one, project="")
    one.refresh_from_db()
    assert one.project == "" and one.tags.count() == 2


def test_too_many_tags_are_refused_for_that_operation(operator):
    full = making.operation(operator.user, tags=[f"t{number}" for number in range(20)])
    other = making.operation(operator.user)
    answer = asked(operator, "edit", full, other, tags=["more"])
    assert [each["outcome"] for each in answer["outcomes"]] == ["refused", "done"]
    assert "at most 20 tags" in answer["outcomes"][0]["message"]


@pytest.mark.parametrize(
    ("body", "field", "problem"),
    [
        ({"action": "explode", "ids": ["a"]}, "action", "allowed: cancel, kill, resume"),
        ({"action": "cancel"}, "ids", "got none; allowed: either `ids` or `q`"),
        ({"action": "cancel", "ids": ["a"], "q": "kind:rl"}, "ids", "got both"),
        ({"action": "cancel", "ids": []}, "ids", "at least 1"),
        ({"action": "cancel", "ids": ["x"] * 501}, "ids", "no more than 500"),
        ({"action": "cancel", "q": " "}, "q", "blank"),
        ({"action": "edit", "ids": ["a"]}, "action", "allowed: `tags`, `untags` or `project`"),
        ({"action": "edit", "ids": ["a"], "tags": ["x" * 65]}, "tags.0", "64 characters"),
    ],
)
def test_bad_requests_name_the_field_and_what_is_allowed(operator, body, field, problem):
    refused = error(operator.post("operations/bulk", body), 400, "VALIDATION_ERROR")
    assert problem in refused["details"]["fields"][field]


def test_a_bad_query_is_refused_as_in_the_list(operator):
    error(operator.post("operations/bulk", {"action": "cancel", "q": "colour:red"}), 400,
          "INVALID_QUERY")  # fmt: skip


def test_viewers_may_not(viewer):
    error(viewer.post("operations/bulk", {"action": "cancel", "ids": ["a"]}), 403,
          "PERMISSION_DENIED")  # fmt: skip
