"""The registry as a worker that is not Celery's meets it: plain HTTP, to a server that listens."""

import pytest

from apps.checkpoints import place
from apps.operations.attempts.report_writer import ReportWriter
from apps.operations.lifecycle import State
from apps.operations.models import Attempt, Event, Operation
from apps.operations.requests import services
from apps.operations.scheduling import claims
from apps.workers import hosts, registry
from apps.workers.models import Worker
from tests.operations import rows
from tests.operations.releases import spent_by, verify
from tests.operations.rows import claim, claimed
from tests.operations.test_privacy import CONFIG as PRIVATE
from tests.thinning import quick_some
from tests.workers.conftest import give_up
from trainops.http.models import Token
from trainops.kinds.federated.releases import Release
from trainops.process.protocol import ProgressUpdate
from trainops.runtime.ledger import Entry

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]

# The same service is behind all three.
OTHER_ENDPOINTS = [pytest.param(name, marks=pytest.mark.slow) for name in ("heartbeat", "sync")]
ENDPOINTS = pytest.mark.parametrize("endpoint", ["register", *OTHER_ENDPOINTS])


def held(operation, attempt=1):
    return {"operation_id": operation.pk, "attempt": attempt}


def ended(operation, outcome="completed", attempt=1, **more):
    return held(operation, attempt) | {"outcome": outcome} | more


def mine(worker, **config):
    host = registry.remote_host(worker.worker_id)
    return claimed(worker_id=worker.worker_id, host=host, **config)


def verdicts(answer):
    return [(each["accepted"], each["reason"]) for each in answer["completed"]]


def test_registering_answers_as_promised_and_the_worker_is_there(worker):
    answer = worker.register()
    assert (answer["worker_id"], answer["status"]) == ("gpu-box", "AVAILABLE")
    assert answer["registered_at"].endswith("Z")
    assert (answer["orders"], answer["stop_operations"], answer["completed"]) == ([], [], [])
    shown = worker.data("GET", "gpu-box")
    assert (shown["worker_type"], shown["status"]) == ("custom", "AVAILABLE")
    assert (shown["current_operation_id"], shown["capabilities"]["gpu_type"]) == ("", "A100")
    worker.refused(404, "WORKER_NOT_FOUND", "GET", "nobody")
    worker.refused(400, "VALIDATION_ERROR", "POST", "register", {"worker_type": "custom"})


def test_a_worker_whose_row_has_vanished_registers_again_with_what_it_runs(worker):
    worker.register()
    operation = mine(worker)
    Worker.objects.all().delete()
    body = {"running": [held(operation)]}
    worker.refused(404, "WORKER_NOT_FOUND", "POST", "gpu-box/heartbeat", body)
    for _ in range(2):
        answer = worker.register(current_operation_id=operation.pk, **body)
        assert [each["directive"] for each in answer["orders"]] == ["proceed"]
        assert (answer["status"], answer["stop_operations"]) == ("BUSY", [])
    assert Worker.objects.get().current_operation_id == operation.pk


@ENDPOINTS
@pytest.mark.parametrize("policy", ["never", "on_worker_loss"])
def test_what_it_still_runs_goes_back_to_running(worker, endpoint, policy):
    worker.register()
    operation = give_up(mine(worker), policy)
    answer = worker.tell(endpoint, running=[held(operation)])
    assert [each["directive"] for each in answer["orders"]] == ["proceed"]
    operation = services.get(operation.pk)
    assert (operation.state, operation.worker_id, operation.attempt) == ("RUNNING", "gpu-box", 1)
    assert operation.restarts_used == 0
    assert not Operation.objects.silent().exists()


def test_the_operations_name_alone_is_enough_to_be_taken_back(worker):
    operation = give_up(mine(worker))
    answer = worker.register(current_operation_id=operation.pk)
    assert answer["orders"] == [held(operation) | {"directive": "proceed", "reason": ""}]
    assert services.get(operation.pk).state == State.RUNNING


@ENDPOINTS
def test_a_superseded_attempt_is_asked_to_stop_and_its_late_writes_are_refused(worker, endpoint):
    worker.register()
    ghost = mine(worker)
    current = superseded_by_another(ghost)
    answer = worker.tell(endpoint, running=[held(ghost)], completed=[])
    assert answer["stop_operations"] == [ghost.pk]
    assert answer["orders"] == [held(ghost) | {"directive": "stop", "reason": "SUPERSEDED"}]
    writer = ReportWriter(ghost)
    writer.progress(ProgressUpdate(3, 9, "", ((3, 0.0, {"loss": 1.0}),)))
    staged = {"directory": "a0001-s3-periodic", "step": 3, "digest": "", "files": []}
    for late in (writer.flush, lambda: writer.commit(staged)):
        with pytest.raises(claims.Fenced):
            late()
    answer = worker.tell(endpoint, completed=[ended(ghost, result={"late": 1})])
    assert verdicts(answer) == [(False, "SUPERSEDED")]
    operation = services.get(ghost.pk)
    assert (operation.worker_id, operation.attempt, operation.step) == ("other", current, 0)
    assert (operation.state, operation.result) == ("RUNNING", None)
    assert not operation.points.exists()


def superseded_by_another(operation):
    given_up = give_up(operation, "on_worker_loss")
    given_up.row.update(not_before=None)
    taken = claim("other")
    assert taken is not None
    return taken.attempt


@ENDPOINTS
def test_an_operation_that_does_not_exist_is_logged_and_stopped(worker, endpoint, caplog):
    worker.register()
    unknown = {"operation_id": "op_training_x", "attempt": 1}
    answer = worker.tell(endpoint, running=[unknown])
    assert answer["stop_operations"] == ["op_training_x"]
    assert answer["orders"][0]["reason"] == "UNKNOWN_OPERATION"
    answer = worker.tell(endpoint, completed=[unknown | {"outcome": "completed"}])
    assert verdicts(answer) == [(False, "UNKNOWN_OPERATION")]
    assert "worker gpu-box reports unknown operation op_training_x" in caplog.text


@ENDPOINTS
@pytest.mark.parametrize("given_up_as", ["", "never", "on_worker_loss"])
def test_what_it_completed_while_the_server_was_away_is_completed(worker, endpoint, given_up_as):
    worker.register()
    operation = mine(worker)
    if given_up_as:
        give_up(operation, given_up_as)
    report = ended(operation, result={"accuracy": 0.9}, completed_at="2026-01-02T03:04:05Z")
    assert verdicts(worker.tell(endpoint, completed=[report])) == [(True, "")]
    operation = services.get(operation.pk)
    assert (operation.state, operation.result) == ("COMPLETED", {"accuracy": 0.9})
    assert (operation.error, operation.reason, operation.restarts_used) == (None, "", 0)
    assert Attempt.objects.get().outcome == "completed"
    note = Event.objects.get(what="REPORTED").note
    assert note == "completed at 2026-01-02 03:04:05 UTC by its worker's clock"
    num_events = Event.objects.count()

    again = worker.tell(endpoint, completed=[report], running=[held(operation)])
    assert verdicts(again) == [(True, "KNOWN_ALREADY")]
    assert again["orders"][0]["reason"] == "COMPLETED"
    assert Event.objects.count() == num_events
    contradiction = ended(operation, "failed", error={"code": "X", "message": "no"})
    assert verdicts(worker.tell(endpoint, completed=[contradiction])) == [(False, "COMPLETED")]


@pytest.mark.parametrize(
    ("code", "policy", "state", "reason", "outcome"),
    [
        ("JOB_ERROR", "on_worker_loss", "FAILED", "JOB_ERROR", "failed"),
        ("JOB_ERROR", "on_failure", "RESUMING", "JOB_ERROR", "failed"),
        ("OUT_OF_MEMORY", "on_worker_loss", "RESUMING", "OUT_OF_MEMORY", "failed"),
        ("SHUTDOWN", "never", "RESUMING", "SHUTDOWN", "preempted"),
        ("THE_CAT_SAT_ON_IT", "on_worker_loss", "FAILED", "JOB_ERROR", "failed"),
        ("CANCELLED_BY_PERSON", "on_worker_loss", "FAILED", "JOB_ERROR", "failed"),  # not its word
    ],
)
def test_what_failed_goes_to_the_restart_policy(worker, code, policy, state, reason, outcome):
    worker.register()
    operation = mine(worker, restart={"policy": policy})
    error = {"code": code, "message": "it broke", "traceback": "line 1"}
    report = ended(operation, "failed", error=error)
    for expected in ((True, ""), (True, "KNOWN_ALREADY")):
        assert verdicts(worker.tell("heartbeat", completed=[report])) == [expected]
    operation = services.get(operation.pk)
    assert (operation.state, operation.reason) == (state, reason)
    assert operation.error == (None if reason == "SHUTDOWN" else error)
    assert (Attempt.objects.get().outcome, Attempt.objects.get().note) == (outcome, "it broke")


@pytest.mark.parametrize(
    ("wish", "state", "reason"),
    [
        (services.cancel, "CANCELLED", "CANCELLED_BY_PERSON"),
        (services.kill, "CANCELLED", "KILLED_BY_PERSON"),
        (None, "RESUMING", "SHUTDOWN"),  # it stopped by itself: that is no cancel
    ],
)
def test_only_a_person_cancels(worker, person, wish, state, reason):
    worker.register()
    operation = mine(worker)
    if wish:
        wish(operation_id=operation.pk, actor=person)
        (order,) = worker.tell("heartbeat", running=[held(operation)])["orders"]
        assert order["directive"] == wish.__name__
    report = ended(operation, "cancelled")
    for expected in ((True, ""), (True, "KNOWN_ALREADY")):
        assert verdicts(worker.tell("heartbeat", completed=[report])) == [expected]
    operation = services.get(operation.pk)
    assert (operation.state, operation.reason) == (state, reason)


def test_what_a_person_asked_for_is_still_asked_for_after_it_was_given_up(worker, person):
    worker.register()
    operation = mine(worker)
    services.cancel(operation_id=operation.pk, actor=person)
    assert give_up(operation).state == State.FAILED
    answer = worker.tell("sync", running=[held(operation)])
    assert answer["orders"][0]["directive"] == "cancel"
    assert answer["stop_operations"] == [operation.pk]


def test_what_a_person_ended_meanwhile_stays_as_it_is(worker, person):
    worker.register()
    operation = give_up(mine(worker), "on_worker_loss")
    services.cancel(operation_id=operation.pk, actor=person)
    answer = worker.tell("sync", completed=[ended(operation, result={})])
    assert verdicts(answer) == [(False, "CANCELLED")]
    assert services.get(operation.pk).state == State.CANCELLED


def test_another_workers_operation_cannot_be_ended(worker):
    worker.register()
    operation = claimed(worker_id="other")
    answer = worker.tell("sync", completed=[ended(operation, result={})])
    assert verdicts(answer) == [(False, "SUPERSEDED")]
    given_up = give_up(operation)
    answer = worker.tell("sync", completed=[ended(given_up, result={})])
    assert verdicts(answer) == [(False, "FAILED")]
    assert services.get(operation.pk).result is None


def test_an_end_counts_more_than_that_it_runs(worker):
    worker.register()
    operation = mine(worker)
    answer = worker.tell("sync", running=[held(operation)], completed=[ended(operation)])
    assert (verdicts(answer), answer["stop_operations"]) == ([(True, "")], [operation.pk])


def test_a_report_that_makes_no_sense_names_the_field(worker):
    worker.register()
    for wrong, field in [
        ({"outcome": "done"}, "outcome"),
        ({"outcome": "failed"}, "error"),
        ({"outcome": "completed", "error": {"code": "X", "message": ""}}, "error"),
        ({"outcome": "cancelled", "result": {}}, "result"),
        ({"outcome": "completed", "result": [1]}, "result"),
        ({"outcome": "completed", "attempt": 0}, "attempt"),
        ({"outcome": "completed", "completed_at": "yesterday"}, "completed_at"),
    ]:
        report = {"operation_id": "op_training_x", "attempt": 1} | wrong
        body = {"running": [], "completed": [report]}
        _, error = worker.refused(400, "VALIDATION_ERROR", "POST", "gpu-box/sync", body)
        assert list(error["details"]["fields"]) == [f"completed.0.{field}"]


def test_what_went_wrong_last_is_shown_until_something_else_does(worker):
    worker.register()
    worker.tell("heartbeat", last_error="the disk is full")
    worker.tell("heartbeat")
    assert worker.data("GET", "gpu-box")["last_error"] == "the disk is full"


def test_a_server_that_goes_away_sends_workers_away_and_lets_them_leave(worker, is_closing):
    Worker.objects.create(worker_id="gpu-box", worker_type="custom")
    Token.objects.update(worker_id="gpu-box")
    for endpoint in ("register", "gpu-box/heartbeat", "gpu-box/sync"):
        headers, error = worker.refused(503, "SHUTTING_DOWN", "POST", endpoint, {})
        assert headers["Retry-After"] == "10"
        assert error["details"] == {"retry_after_seconds": 10}
    assert worker.data("GET", "gpu-box")["worker_id"] == "gpu-box"
    worker.data("DELETE", "gpu-box")


@pytest.mark.slow
def test_what_crashes_over_http_is_held_against_no_host_that_it_names(worker, person):
    registry.register(worker_id="sound", host="sound", kinds=["training"])
    registry.register(worker_id="other", host="other", kinds=["training"])
    worker.register(host="sound", kinds=["training"], slots=9, capabilities={})
    for _ in range(4):
        rows.submitted()
        claimed = worker.data("POST", "gpu-box/claim", {"kinds": ["training"]})["claimed"]
        attempt = f"gpu-box/attempts/{claimed['operation_id']}/{claimed['attempt']}"
        error = {"code": "HOUSE_ERROR", "message": "it broke", "traceback": ""}
        worker.data("POST", f"{attempt}/end", {"outcome": "failed", "error": error})
    assert hosts.drain_faulty(actor="beat") == []
    assert not Worker.objects.filter(is_draining=True).exists()


def test_a_superseded_attempt_cannot_commit_what_it_has_sent(worker, person):
    worker.register(kinds=["training"])
    operation = rows.submitted()
    claimed = worker.data("POST", "gpu-box/claim", {"kinds": ["training"]})["claimed"]
    attempt = f"gpu-box/attempts/{claimed['operation_id']}/{claimed['attempt']}"
    status, _, answer = worker.ask(
        "POST", f"{attempt}/checkpoints", {"type": "periodic", "step": 3}
    )
    assert status == 201
    directory = answer["data"]["directory"]
    Operation.objects.filter(pk=operation.pk).update(attempt=2)
    file = {"name": "state.json", "size_bytes": 2, "blake3": "0" * 64}
    commit = f"{attempt}/checkpoints/{directory}/commit"
    for path, body in [
        (commit, {"files": [file]}),
        (f"{attempt}/progress", {"step": 3, "total_steps": 9}),
        (f"{attempt}/checkpoints", {"type": "periodic", "step": 4}),
        (f"{attempt}/end", {"outcome": "completed", "result": {}}),
    ]:
        worker.refused(409, "SUPERSEDED", "POST", path, body)
    assert not operation.checkpoints.exists()
    assert services.get(operation.pk).state == State.RUNNING


def flat(noise):
    return {"noise": noise, "step": 1, "round": 1, "client": 0, "level": "sample",
            "noise_multiplier": 1.0, "sample_rate": 0.1, "steps": 5}  # fmt: skip


def entry(noise):
    values = {**flat(noise), "carried": 0}
    return {"identity": values.pop("noise"), "step": values.pop("step"), "values": values}


@pytest.fixture
def private(worker):
    """The addresses of a claimed operation that has a ledger."""
    place.require()
    services.submit(kind="federated", config=PRIVATE, owner=None)
    worker.register(kinds=["federated"])
    return claimed_by(worker)


def claimed_by(worker):
    found = worker.data("POST", "gpu-box/claim", {"kinds": ["federated"]})["claimed"]
    return found, f"gpu-box/attempts/{found['operation_id']}/{found['attempt']}"


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [("steps", 5.0, "an integer"), ("steps", True, "an integer"), ("client", 1.0, "null, or an"),
     ("level", "all", "one of sample, user"), ("noise", "0" * 33, "at most 32 characters")],
)  # fmt: skip
@pytest.mark.parametrize("shape", quick_some(["ledger", "spending"], every=2))
def test_what_the_ledger_could_not_give_back_as_it_came_is_refused(
    worker, private, name, value, allowed, shape
):
    claimed, attempt = private
    one, other = (flat("01"), flat("02")) if shape == "spending" else (entry("01"), entry("02"))
    if shape == "spending":
        other[name] = value
    elif name == "noise":
        other["identity"] = value
    else:
        other["values"][name] = value
    path = f"{attempt}/{shape}"
    _, error = worker.refused(400, "VALIDATION_ERROR", "POST", path, {"entries": [one, other]})
    message = str(error)
    assert f"got {value!r}"[:30].replace("'", "") in message.replace("'", "") and allowed in message
    assert spent_by(claimed["operation_id"]) == []
    worker.data("POST", path, {"entries": [one]})
    verify(claimed["operation_id"])


@pytest.mark.parametrize(
    ("change", "problem"),
    [({"values": [1]}, "allowed: an object"), ({"noise": "01"}, "got an entry with"),
     ({"values": {"round": 1}}, "missing: client"), ({"identity": None}, "got None"),
     ({"step": "1"}, "an integer from 0"), ({"values": {"more": 1, **entry("1")["values"]}},
                                            "unknown: more")],
)  # fmt: skip
def test_an_entry_of_another_form_is_refused(worker, private, change, problem):
    claimed, attempt = private
    body = {"entries": [entry("01") | change]}
    _, error = worker.refused(400, "VALIDATION_ERROR", "POST", f"{attempt}/ledger", body)
    assert problem in str(error)
    assert spent_by(claimed["operation_id"]) == []


def test_an_older_worker_reads_and_appends_the_same_entries_in_its_shape(worker, private):
    claimed, attempt = private
    assert (claimed["ledger"]["entries"], claimed["privacy"]["spent"]) == ([], [])
    worker.data("POST", f"{attempt}/spending", {"entries": [flat("01")]})
    worker.data("POST", f"{attempt}/ledger", {"entries": [entry("01"), entry("02")]})
    assert [each.noise for each in spent_by(claimed["operation_id"])] == ["01", "02"]
    worker.data("POST", f"{attempt}/end", {"outcome": "cancelled"})
    services.Operation.objects.update(state="PENDING")
    again, _ = claimed_by(worker)
    assert again["privacy"]["secret"] == again["ledger"]["secret"]
    assert [Release(**each) for each in again["privacy"]["spent"]] == [
        Release.from_entry(Entry(**each)) for each in again["ledger"]["entries"]
    ]
    assert len(again["ledger"]["entries"]) == 2


def test_an_operation_without_a_ledger_refuses_entries(worker):
    worker.register(kinds=["training"])
    rows.submitted()
    claimed = worker.data("POST", "gpu-box/claim", {"kinds": ["training"]})["claimed"]
    assert (claimed["ledger"], claimed["privacy"]) == (None, None)
    attempt = f"gpu-box/attempts/{claimed['operation_id']}/{claimed['attempt']}"
    for path, one in (("ledger", entry("01")), ("spending", flat("01"))):
        worker.refused(409, "NO_LEDGER", "POST", f"{attempt}/{path}", {"entries": [one]})
