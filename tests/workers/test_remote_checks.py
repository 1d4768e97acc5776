"""The server loads the first checkpoint of an attempt over HTTP, and says what it found."""

import pytest

from apps.checkpoints.models import Checkpoint
from apps.operations.attempts import remote_checks
from apps.operations.files import exchange
from apps.operations.models import Attempt, Event, Operation
from apps.operations.requests import services
from tests.operations import rows
from tests.waiting import wait_until
from trainops.errors import DomainError
from trainops.kind import KINDS
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.store import CheckpointStore, CheckpointType

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.faults]
BEGIN = remote_checks.begin


@pytest.fixture(autouse=True)
def _switched_on(monkeypatch, _no_background_checks):
    monkeypatch.setattr(remote_checks, "begin", BEGIN)


@pytest.fixture
def operation(worker, person):
    worker.register(kinds=["training"])
    return rows.submitted(person)


def commit(worker, attempt, step, **contents):
    """Send these files, by name without their ending, as a periodic checkpoint."""
    directory = worker.open(attempt, step)
    names = {name: "state.json" if name == "state" else f"{name}.pt" for name in contents}
    files = [worker.send(attempt, directory, names[name], each) for name, each in contents.items()]
    worker.data("POST", f"{attempt}/checkpoints/{directory}/commit", {"files": files})


def real(operation, tmp_path):
    """Return the files of a checkpoint of this operation after two steps, and the step."""
    engine = KINDS["training"]
    job = engine.make_job(engine.parse_config(operation.config), {})
    job.advance()
    job.advance()
    store = CheckpointStore(tmp_path, identity={"attempt": 1})
    state = job.state_dict() | {"random": reproducibility.state_dict()}
    saved = store.write(CheckpointType.PERIODIC, step=job.step, state=state)
    return {
        each.name.partition(".")[0]: (saved.path / each.name).read_bytes()
        for each in saved.artifacts
    }, job.step


def said(operation):
    events = Event.objects.filter(operation=operation, what__startswith="SELF_CHECK")
    wait_until(events.exists, seconds=120)
    return events.get()


@pytest.mark.slow
def test_a_first_checkpoint_that_a_fresh_job_takes_is_said_to_be_loaded(
    worker, operation, tmp_path
):
    contents, step = real(operation, tmp_path)
    commit(worker, worker.claim(), step, **contents)
    event = said(operation)
    assert (event.what, event.attempt) == ("SELF_CHECKED", 1), event.note
    assert event.note == (
        "the first checkpoint (step 2) was loaded into a fresh job; "
        "the steps after it were not compared"
    )
    found = Attempt.objects.get(operation=operation).receipt["self_check"]
    assert (found["verdict"], found["step"]) == ("loaded", 2)
    assert services.get(operation.pk).self_check == ""  # nothing that an earlier result says


@pytest.mark.slow
def test_one_that_no_job_can_load_needs_attention_after_the_first(worker, operation):
    attempt = worker.claim()
    for step in (1, 2):
        commit(worker, attempt, step, state=b'{"step": %d}' % step, model=b"weights")
    Operation.objects.update(metrics={"loss": 0.5})  # reported while the server loads
    event = said(operation)
    assert event.what == "SELF_CHECK_FAILED"
    assert event.note.startswith("the first checkpoint (step 1) cannot be loaded: ")
    checked = services.get(operation.pk)
    assert (checked.self_check, checked.metrics) == ("not_loaded", {"loss": 0.5})


def test_where_the_server_cannot_look_nothing_is_said_of_the_checkpoint(
    worker, operation, monkeypatch
):
    def busy(*_, **__):
        raise DomainError("BUSY", "too many at once", {})

    monkeypatch.setattr(exchange, "load_checks", busy)
    commit(worker, worker.claim(), 1, state=b'{"step": 1}')
    event = said(operation)
    assert event.what == "SELF_CHECK_NOT_MADE" and "too many at once" in event.note
    assert services.get(operation.pk).self_check == ""


def test_only_periodic_ones_are_checked_and_only_where_that_is_wanted(
    worker, operation, monkeypatch
):
    begun = []
    monkeypatch.setattr(remote_checks, "_check", lambda *given: begun.append(given))
    attempt = worker.claim()
    commit(worker, attempt, 1, state=b'{"step": 1}')
    commit(worker, attempt, 2, state=b'{"step": 2}')
    wait_until(lambda: len(begun) == 1)
    first = Checkpoint.objects.get(step=1)
    running = services.get(operation.pk)
    Attempt.objects.update(receipt=None)
    for changed in (
        {"type": "cancellation"}, {"type": "final"}, {"type": "shutdown"}, {"type": "failure"}
    ):  # fmt: skip
        remote_checks.begin(running, Checkpoint(**{**vars_of(first), **changed}))
    running.config["checkpoint"]["self_check"] = False
    remote_checks.begin(running, first)
    assert len(begun) == 1


def vars_of(checkpoint):
    return {each.attname: getattr(checkpoint, each.attname) for each in checkpoint._meta.fields}
