"""Submitting, looking, stopping, resuming and deleting over HTTP."""

import pytest

from apps.checkpoints.services import retain
from apps.operations.lifecycle import State
from apps.operations.models import Event, Operation
from apps.workers import registry
from tests.api.answers import data, error
from tests.api.saved import damage, saved
from tests.operations.rows import CONFIG, claim, in_state, submitted
from trainops.kind import Kind

SUBMISSION = {"kind": "training", "config": CONFIG}


def test_a_submission_is_accepted_and_says_where_it_is(operator):
    response = operator.post("operations", SUBMISSION | {"name": "first", "tags": ["b", "a"]})
    operation = data(response, 202)
    assert response["Location"] == f"/api/v1/operations/{operation['id']}"
    assert operation["id"].startswith("op_training_")
    assert (operation["state"], operation["owner"]) == ("PENDING", "otto")
    assert operation["tags"] == ["a", "b"]
    assert operation["config"]["batch_size"] == 32  # defaults are filled in
    assert operation["config_given"] == CONFIG
    assert operation["allowed_actions"] == ["cancel"]
    assert data(operator.client.get(response["Location"])) == operation


def test_a_submission_parses_its_config_once(operator, monkeypatch):
    parse, given = Kind.parse_config, []
    monkeypatch.setattr(Kind, "parse_config", lambda *each: given.append(each) or parse(*each))
    data(operator.post("operations", SUBMISSION), 202)
    assert len(given) == 1


def test_the_same_idempotency_key_answers_with_the_first_operation(operator, colleague):
    first = data(operator.post("operations", SUBMISSION, headers={"Idempotency-Key": "k1"}), 202)
    again = data(operator.post("operations", SUBMISSION, headers={"Idempotency-Key": "k1"}), 202)
    others = data(colleague.post("operations", SUBMISSION, headers={"Idempotency-Key": "k1"}), 202)
    assert first["id"] == again["id"] != others["id"]
    assert Operation.objects.count() == 2


def test_an_idempotency_key_is_not_used_for_something_else(operator):
    operator.post("operations", SUBMISSION, headers={"Idempotency-Key": "k1"})
    other = SUBMISSION | {"config": CONFIG | {"epochs": 3}}
    refused = operator.post("operations", other, headers={"Idempotency-Key": "k1"})
    assert "operation_id" in error(refused, 409, "IDEMPOTENCY_KEY_REUSED")["details"]
    for field in ({"name": "x"}, {"priority": 1}, {"tags": ["x"]}, {"queue": "a100"}):
        refused = operator.post("operations", SUBMISSION | field, headers={"Idempotency-Key": "k1"})
        error(refused, 409, "IDEMPOTENCY_KEY_REUSED")
    refused = operator.post("operations", other, headers={"Idempotency-Key": "a key"})
    assert "Idempotency-Key" in error(refused, 400, "VALIDATION_ERROR")["details"]["fields"]


def test_what_it_waits_for_is_reported_and_nothing_once_it_runs(operator):
    labelled = submitted(operator.user, queue="a100")
    reason = data(operator.get(f"operations/{labelled.pk}"))["waiting_for"]
    assert reason["code"] == "NO_WORKER"
    registry.register(worker_id="worker-1", kinds=["training"], labels=["t4"])
    reason = data(operator.get(f"operations/{labelled.pk}"))["waiting_for"]
    assert reason == {
        "code": "NO_WORKER_WITH_LABEL",
        "message": "No worker has the label a100; available labels: t4.",
    }
    submitted(operator.user)
    assert claim() is not None
    listed = [row["waiting_for"] for row in data(operator.get("operations"))]
    assert listed == [None, reason]


BAD = {
    "unknown kind": ({"kind": "cooking"}, "INVALID_CONFIG", "kind", "training"),
    "no kind": ({"kind": None}, "VALIDATION_ERROR", "kind", "null"),
    "unknown recipe": ({"config": {"recipe": "x"}}, "INVALID_CONFIG", "recipe", "digits"),
    "no recipe": ({"config": {}}, "INVALID_CONFIG", "recipe", "required"),
    "unknown setting": ({"config": CONFIG | {"epoch": 1}}, "INVALID_CONFIG", "epoch", "epochs"),
    "unknown parameter": (
        {"config": CONFIG | {"parameters": {"colour": 1}}},
        "INVALID_CONFIG",
        "parameters.colour",
        "allowed",
    ),
    "out of range": ({"config": CONFIG | {"epochs": 0}}, "INVALID_CONFIG", "epochs", "got 0"),
    "wrong type": ({"config": CONFIG | {"epochs": "two"}}, "INVALID_CONFIG", "epochs", "'two'"),
    "config is a list": ({"config": [1]}, "VALIDATION_ERROR", "config", "list"),
    "unknown field": ({"nmae": "x"}, "VALIDATION_ERROR", "nmae", "allowed: kind, config, name"),
    "priority": ({"priority": 1000}, "VALIDATION_ERROR", "priority", "100"),
    "long name": ({"name": "x" * 121}, "VALIDATION_ERROR", "name", "120"),
    "tags": ({"tags": "x"}, "VALIDATION_ERROR", "tags", "list"),
    "hidden tag": ({"tags": ["a\u202eb"]}, "INVALID_CONFIG", "tags", "U+202E"),
    "hidden name": ({"name": "a\x1b[2J"}, "INVALID_CONFIG", "name", "U+001B"),
    "queue": ({"queue": "../x"}, "VALIDATION_ERROR", "queue", "allowed"),
}


@pytest.mark.parametrize(("wrong", "code", "field", "says"), BAD.values(), ids=BAD)
def test_a_bad_submission_names_the_field_and_creates_nothing(operator, wrong, code, field, says):
    problem = error(operator.post("operations", SUBMISSION | wrong), 400, code)
    assert says in problem["details"]["fields"][field]
    assert not Operation.objects.exists()


def test_a_body_that_is_not_json_is_refused(operator):
    for body in ("{", "[1]", '"text"', b"\xff"):
        response = operator.post("operations", body)
        assert response.status_code == 400, body
        assert response.json()["success"] is False
    response = operator.post("operations", "a=1", content_type="application/x-www-form-urlencoded")
    details = error(response, 415, "UNSUPPORTED_MEDIA_TYPE")["details"]
    assert details["allowed"] == ["application/json"]


@pytest.mark.parametrize("path", ["", "/cancel", "/kill", "/resume"])
def test_an_unknown_id_is_not_found_whatever_it_looks_like(operator, path):
    for name in ("op_training_20260101_000000_abcdef", "x" * 300, "op_%C3%BC", "..%5C..%5Cetc"):
        ask = operator.post if path else operator.get
        error(ask(f"operations/{name}{path}"), 404, "OPERATION_NOT_FOUND")
    for name in ("..%2F..%2Fetc%2Fpasswd", "%2e%2e/%2e%2e/x/y"):
        assert error(operator.get(f"operations/{name}"), 404, "NOT_FOUND")


def test_a_waiting_operation_is_cancelled_at_once_and_only_once(operator):
    operation = submitted(operator.user)
    cancelled = data(operator.post(f"operations/{operation.pk}/cancel"))
    assert (cancelled["state"], cancelled["reason"]) == ("CANCELLED", "CANCELLED_BY_PERSON")
    second = error(
        operator.post(f"operations/{operation.pk}/cancel"), 409, "OPERATION_NOT_CANCELLABLE"
    )
    assert second["details"]["current_status"] == "CANCELLED"


def test_a_running_operation_is_asked_to_stop_then_killed(operator):
    operation = in_state(State.RUNNING, operator.user)
    asked = data(operator.post(f"operations/{operation.pk}/cancel"), 202)
    assert (asked["state"], asked["stop_requested"]) == ("RUNNING", "cancel")
    assert (asked["stop_requested_by"], asked["allowed_actions"]) == ("otto", ["kill"])
    error(operator.post(f"operations/{operation.pk}/cancel"), 409, "ALREADY_STOPPING")
    assert data(operator.post(f"operations/{operation.pk}/kill"), 202)["stop_requested"] == "kill"


def test_a_stop_takes_no_fields(operator):
    operation = submitted(operator.user)
    refused = operator.post(f"operations/{operation.pk}/cancel", {"now": True})
    assert "now" in error(refused, 400, "VALIDATION_ERROR")["details"]["fields"]


def test_a_resume_says_from_where(operator):
    operation = in_state(State.CANCELLED, operator.user)
    operation.row.update(total_steps=40, step=12)
    checkpoint = saved(operation, step=10, epoch=29)
    resumed = data(operator.post(f"operations/{operation.pk}/resume"))
    source = resumed.pop("resumed_from")
    assert resumed == {
        "operation_id": operation.pk,
        "status": "RESUMING",
        "skipped": [],
        "message": "Training resumed from epoch 29",
    }
    assert (source["checkpoint_id"], source["checkpoint_type"]) == (checkpoint.pk, "cancellation")
    assert (source["epoch"], source["step"], source["progress_percent"]) == (29, 10, 25.0)
    assert (source["unit"], source["place"]) == ("step", "epoch 29")


def test_a_resume_may_accept_that_it_is_not_exact(operator):
    operation = in_state(State.CANCELLED, operator.user)
    operation.row.update(config=operation.config | {"exact": "required"})
    saved(operation, step=10)
    wrong = operator.post(f"operations/{operation.pk}/resume", {"accept_inexact": "maybe"})
    assert "accept_inexact" in error(wrong, 400, "VALIDATION_ERROR")["details"]["fields"]
    data(operator.post(f"operations/{operation.pk}/resume", {"accept_inexact": True}))
    operation.refresh_from_db()
    assert operation.accepts_inexact and not operation.requires_exact


@pytest.mark.parametrize("is_marked_before", [False, True])
def test_a_resume_that_falls_back_names_what_it_could_not_use(operator, is_marked_before):
    operation = in_state(State.CANCELLED, operator.user)
    older, newer = saved(operation, step=10, epoch=1), saved(operation, step=20, epoch=2)
    damage(newer)
    if is_marked_before:
        operator.post(f"checkpoints/{operation.pk}/{newer.pk}/verify")
    resumed = data(operator.post(f"operations/{operation.pk}/resume"))
    assert resumed["resumed_from"]["checkpoint_id"] == older.pk
    (skipped,) = resumed["skipped"]
    assert (skipped["checkpoint_id"], skipped["step"]) == (newer.pk, 20)
    assert skipped["altered_artifacts"] == ["model.pt"]
    assert resumed["message"] == (
        "Training resumed from epoch 1; the checkpoint at epoch 2 (step 20) cannot be used: "
        "altered: model.pt"
    )
    assert "altered: model.pt" in operation.events.first().note


def test_damaged_checkpoints_stay_to_be_looked_at(operator):
    operation = in_state(State.CANCELLED, operator.user)
    saved(operation, step=10)
    bad = saved(operation, step=20)
    damage(bad)
    operator.post(f"operations/{operation.pk}/resume")
    saved(operation, step=30, attempt=2)
    retain(operation.pk, keep_last=1, keep_best=0, better="min")
    left = {row["step"]: row["health"] for row in data(operator.get("checkpoints"))}
    assert left == {20: "corrupted", 30: "healthy"}


def test_every_refusal_of_a_damaged_checkpoint_names_its_files(operator):
    operation = in_state(State.CANCELLED, operator.user)
    damage(saved(operation))
    for _ in range(2):
        refused = operator.post(f"operations/{operation.pk}/resume")
        details = error(refused, 409, "CHECKPOINT_CORRUPTED")["details"]
        assert details["altered_artifacts"] == ["model.pt"]


POSITIONS = [
    ("training", {"epoch": 29, "cursor": {"next_batch": 0}}, {"epoch": 29}, "epoch 29"),
    ("training", {"epoch": 7, "cursor": {"next_batch": 3}}, {"epoch": 7}, "epoch 7, step 10"),
    ("backtest", {"bar_index": 7000, "cash": 1.0}, {"bar_index": 7000}, "bar 7000"),
    ("federated", {"round": 48, "clients_done": 0, "client_epoch": 0}, {"round": 48}, "round 48"),
    (
        "federated",
        {"round": 48, "clients_done": 5, "client_epoch": 2},
        {"round": 48, "clients_done": 5, "client_epoch": 2},
        "round 48 and 5 clients done, epoch 2 of the next",
    ),
    ("rl", {"episodes_completed": 43}, {"episode": 43}, "episode 43, step 10"),
]


@pytest.mark.parametrize(("kind", "state", "counts", "place"), POSITIONS)
def test_every_kind_says_where_a_checkpoint_stands_in_its_own_units(
    operator, kind, state, counts, place
):
    operation = in_state(State.CANCELLED, operator.user)
    operation.row.update(kind=kind, unit="unit", total_steps=40)
    saved(operation, step=10, **({"epoch": None} | state))
    (row,) = data(operator.get("checkpoints"))
    assert (row["place"], row["unit"], row["progress_percent"]) == (place, "unit", 25.0)
    assert row["state_summary"]["progress_percent"] == 25.0
    assert row["state_summary"].keys() & state.keys()
    source = data(operator.post(f"operations/{operation.pk}/resume"))["resumed_from"]
    assert {name: source[name] for name in counts} == counts
    assert source["place"] == place


def test_a_resume_while_it_runs_is_refused(operator):
    operation = in_state(State.RUNNING, operator.user)
    details = error(
        operator.post(f"operations/{operation.pk}/resume"), 409, "OPERATION_NOT_RESUMABLE"
    )["details"]
    assert details["current_status"] == "RUNNING"
    assert details["resumable_statuses"] == ["CANCELLED", "FAILED"]


def test_a_resume_without_a_checkpoint_says_why_that_may_be(operator):
    operation = in_state(State.FAILED, operator.user)
    for body in (None, {"checkpoint_id": "../../etc"}):
        refused = operator.post(f"operations/{operation.pk}/resume", body)
        assert len(error(refused, 404, "CHECKPOINT_NOT_FOUND")["details"]["possible_reasons"]) == 3
    operation.refresh_from_db()
    assert operation.state == "FAILED"


def test_an_altered_checkpoint_is_refused_and_nothing_is_lost(operator):
    operation = in_state(State.FAILED, operator.user)
    checkpoint = saved(operation)
    damage(checkpoint)
    details = error(
        operator.post(f"operations/{operation.pk}/resume"), 409, "CHECKPOINT_CORRUPTED"
    )["details"]
    assert details["altered_artifacts"] == ["model.pt"]
    assert Operation.objects.get().state == "FAILED"
    checkpoint.refresh_from_db()
    assert checkpoint.health == "corrupted"


def test_a_delete_while_it_runs_is_refused(operator):
    operation = in_state(State.RUNNING, operator.user)
    details = error(operator.delete(f"operations/{operation.pk}"), 409, "OPERATION_ACTIVE")
    assert details["details"]["current_status"] == "RUNNING"
    assert Operation.objects.exists()


def test_a_delete_takes_everything_and_says_what_was_freed(
    operator, settings, django_capture_on_commit_callbacks
):
    operation = in_state(State.CANCELLED, operator.user)
    checkpoint = saved(operation)
    with django_capture_on_commit_callbacks(execute=True):
        deleted = data(operator.delete(f"operations/{operation.pk}"))
    assert deleted["freed_bytes"] == checkpoint.artifacts_size_bytes
    assert not Operation.objects.exists()
    assert not list(settings.CHECKPOINT_ROOT.rglob("*.pt"))
    error(operator.delete(f"operations/{operation.pk}"), 404, "OPERATION_NOT_FOUND")


@pytest.mark.parametrize("action", ["cancel", "kill", "resume", "delete"])
def test_what_is_not_offered_is_refused_by_the_same_rule(
    viewer, operator, colleague, admin, action
):
    start = State.RUNNING if action in ("cancel", "kill") else State.CANCELLED
    operation = in_state(start, operator.user)
    saved(operation)

    def attempted(api):
        path = f"operations/{operation.pk}"
        return api.delete(path) if action == "delete" else api.post(f"{path}/{action}")

    for stranger in (viewer, colleague):
        offered = data(stranger.get(f"operations/{operation.pk}"))["allowed_actions"]
        assert offered == []
        error(attempted(stranger), 403, "PERMISSION_DENIED")
    for entitled in (operator, admin):
        assert action in data(entitled.get(f"operations/{operation.pk}"))["allowed_actions"]
    assert attempted(admin).status_code in (200, 202)


def test_a_viewer_creates_nothing_and_a_stranger_sees_nothing(viewer, client):
    error(viewer.post("operations", SUBMISSION), 403, "PERMISSION_DENIED")
    error(client.get("/api/v1/operations"), 401, "NOT_AUTHENTICATED")
    assert not Operation.objects.exists()


def test_every_request_of_a_person_is_an_event(operator):
    operation = submitted(operator.user)
    claim()
    operator.post(f"operations/{operation.pk}/cancel")
    events = data(operator.get(f"operations/{operation.pk}/events"))
    assert [each["what"] for each in events] == ["CANCEL_REQUESTED", "RUNNING", "SUBMITTED"]
    assert [each["actor"] for each in events] == ["otto", "worker-1", "otto"]
    assert Event.objects.count() == 3


class TestEdit:
    def patch(self, api, row, body):
        path = f"/api/v1/operations/{row.pk}"
        return api.client.patch(path, body, content_type="application/json")

    def test_it_renames_and_refuses_an_older_revision(self, operator):
        row = submitted(operator.user)
        changes = {"name": "new", "tags": ["x"], "notes": "why", "revision": 0}
        after = data(self.patch(operator, row, changes))
        assert (after["name"], after["tags"], after["notes"]) == ("new", ["x"], "why")
        assert after["revision"] == 1
        problem = error(self.patch(operator, row, changes), 409, "EDIT_CONFLICT")
        assert problem["details"]["name"] == "new"

    def test_only_its_owner_or_an_admin_edits_it(self, operator, colleague, viewer, admin):
        row = submitted(operator.user)
        for other in (colleague, viewer):
            error(self.patch(other, row, {"is_favourite": True}), 403, "PERMISSION_DENIED")
        assert data(self.patch(admin, row, {"is_favourite": True}))["is_favourite"]

    def test_an_archived_operation_is_listed_on_request_only(self, operator):
        row = submitted(operator.user)
        operator.post(f"operations/{row.pk}/cancel")
        assert data(self.patch(operator, row, {"archived": True}))["archived_at"]
        assert data(operator.get("operations")) == []
        for query, number in (("archived:yes", 1), ("archived:any", 1), ("archived:no", 0)):
            assert len(data(operator.get("operations", q=query))) == number
        assert data(self.patch(operator, row, {"archived": False}))["archived_at"] is None

    def test_an_unknown_field_is_named(self, operator):
        row = submitted(operator.user)
        problem = error(self.patch(operator, row, {"title": "x"}), 400, "VALIDATION_ERROR")
        assert "allowed: name, tags" in problem["details"]["fields"]["title"]
