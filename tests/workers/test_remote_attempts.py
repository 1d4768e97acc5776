"""Attempts over HTTP, call by call: what comes late, what is gone, and how long a lease lasts."""

import base64
import contextlib
import importlib
import time

import pytest
from blake3 import blake3
from django.apps import apps as django_apps

from apps.checkpoints import storage
from apps.checkpoints.models import Checkpoint
from apps.datasets import services as datasets
from apps.operations.attempts import remote_attempts, remote_claims, remote_files
from apps.operations.models import Attempt, LogChunk, Media, MetricPoint, Operation
from apps.operations.requests import services
from apps.operations.scheduling import queue_status
from apps.operations.scheduling.blocking import BlockingReason
from apps.workers import registry
from apps.workers.models import Worker
from examples import http_worker
from tests.operations import rows
from tests.waiting import wait_until
from trainops.clock import seconds_from_now
from trainops.errors import DomainError
from trainops.kind import KINDS
from trainops.media import Table
from trainops.process import process_use
from trainops.runtime.checkpoint.manifest import Artifact, CheckpointType, verify
from trainops.runtime.checkpoint.manifest import Checkpoint as Saved
from trainops.runtime.errors import StorageAway
from trainops.runtime.job import Progress
from trainops.runtime.receipt import Receipt

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database, pytest.mark.slow]
STATE, WEIGHTS = b'{"step": 3}', b"weights" * 100


class Upload:
    """The body of a PUT; something happens while it is read."""

    def __init__(self, content, meanwhile):
        self.content, self.meanwhile = content, meanwhile

    def read(self, size):
        self.meanwhile()
        content, self.content, self.meanwhile = self.content, b"", lambda: None
        return content


@pytest.fixture
def operation(worker, person):
    worker.register(kinds=["training"])
    return rows.submitted(person)


def commit(worker, attempt, directory, *files):
    path = f"{attempt}/checkpoints/{directory}/commit"
    return worker.data("POST", path, {"files": list(files)})["checkpoint_id"]


def saved(worker, attempt, step, *more):
    directory = worker.open(attempt, step)
    state = worker.send(attempt, directory, "state.json", b'{"step": %d}' % step)
    return directory, commit(worker, attempt, directory, state, *more)


@pytest.mark.parametrize("late", [b"wei", b"x" * len(WEIGHTS)], ids=["broken", "whole"])
def test_an_upload_that_comes_after_the_commit_changes_nothing(worker, operation, late):
    attempt = worker.claim()
    directory = worker.open(attempt, 3)

    def send_again_and_commit():
        files = [
            worker.send(attempt, directory, "state.json", STATE),
            worker.send(attempt, directory, "model.pt", WEIGHTS),
        ]
        commit(worker, attempt, directory, *files)

    owned = remote_attempts.owned(worker_id=worker.worker_id, operation_id=operation.pk, attempt=1)
    upload = Upload(late, send_again_and_commit)
    with pytest.raises(DomainError):
        remote_files.receive(owned, directory, "model.pt", upload, size_bytes=len(WEIGHTS))
    checkpoint = Checkpoint.objects.get(operation=operation)
    path = storage.directory(checkpoint.artifacts_path)
    verify(path, checkpoint.manifest_digest)
    assert {each.name for each in path.iterdir()} == {"manifest.json", "model.pt", "state.json"}


def test_a_broken_upload_leaves_what_was_sent_before(worker, operation):
    attempt = worker.claim()
    directory = worker.open(attempt, 3)
    weights = worker.send(attempt, directory, "model.pt", WEIGHTS)
    owned = remote_attempts.owned(worker_id=worker.worker_id, operation_id=operation.pk, attempt=1)
    with pytest.raises(remote_files.FileRefused, match="by its Content-Length"):
        remote_files.receive(
            owned, directory, "model.pt", Upload(b"wei", lambda: None), size_bytes=len(WEIGHTS)
        )
    state = worker.send(attempt, directory, "state.json", STATE)
    commit(worker, attempt, directory, state, weights)


@pytest.mark.slow
def test_a_refused_commit_can_be_mended(worker, operation):
    attempt = worker.claim()
    directory = worker.open(attempt, 3)
    state = worker.send(attempt, directory, "state.json", STATE)
    wrong = state | {"blake3": "0" * 64}
    path = f"{attempt}/checkpoints/{directory}/commit"
    worker.refused(400, "CHECKPOINT_CORRUPTED", "POST", path, {"files": [wrong]})
    commit(worker, attempt, directory, worker.send(attempt, directory, "state.json", STATE))


@pytest.mark.parametrize("names", [["model.pt"], ["state.json", "model.pt", "model.pt"]])
def test_a_commit_names_the_state_and_each_file_once(worker, operation, names):
    attempt = worker.claim()
    directory = worker.open(attempt, 3)
    contents = {"state.json": STATE, "model.pt": WEIGHTS}
    sent = {name: worker.send(attempt, directory, name, contents[name]) for name in contents}
    path = f"{attempt}/checkpoints/{directory}/commit"
    body = {"files": [sent[name] for name in names]}
    _, error = worker.refused(400, "INVALID_FILES", "POST", path, body)
    assert f"got {len(names)}" in error["message"]
    commit(worker, attempt, directory, *sent.values())


@pytest.mark.slow
def test_an_unchanged_file_outlives_the_checkpoint_that_brought_it(worker, operation):
    attempt = worker.claim()
    first = worker.open(attempt, 1)
    weights = worker.send(attempt, first, "model.pt", WEIGHTS) | {"home": first}
    commit(worker, attempt, first, worker.send(attempt, first, "state.json", STATE), weights)
    for step in range(2, 6):
        _, newest = saved(worker, attempt, step, weights)
    assert not Checkpoint.objects.filter(artifacts_path=f"{operation.pk}/{first}").exists()
    checkpoint = Checkpoint.objects.get(pk=newest)
    verify(storage.directory(checkpoint.artifacts_path), checkpoint.manifest_digest)


@pytest.mark.slow
def test_a_file_that_is_nowhere_any_more_is_sent(worker, operation):
    attempt = worker.claim()
    first = worker.open(attempt, 1)
    weights = worker.send(attempt, first, "model.pt", WEIGHTS)
    commit(worker, attempt, first, worker.send(attempt, first, "state.json", STATE), weights)
    (storage.operation_directory(operation.pk) / first / "model.pt").unlink()
    second = worker.open(attempt, 2)
    files = [worker.send(attempt, second, "state.json", STATE), weights | {"home": first}]
    path = f"{attempt}/checkpoints/{second}/commit"
    _, error = worker.refused(400, "HOME_GONE", "POST", path, {"files": files})
    assert error["details"]["names"] == ["model.pt"]
    worker.send(attempt, second, "model.pt", WEIGHTS)
    commit(worker, attempt, second, *files)


def lease_of(operation):
    return Operation.objects.get(pk=operation.pk).lease_expires_at


def calls_about(worker, attempt, checkpoint_id):
    """Every call about an attempt but its last, with what is to be sent."""
    directory = worker.open(attempt, 7)
    files = [worker.send(attempt, directory, "state.json", STATE)]
    receipt = {"step": 0, "checkpoint": None, "exact": True, "items": []}
    for method, path, body in [
        ("POST", "restored", {"step": 0, "receipt": receipt}),
        ("POST", "progress", {"step": 0, "total_steps": 9}),
        ("POST", "checkpoints", {"type": "periodic", "step": 8}),
        ("PUT", f"checkpoints/{directory}/files/model.pt", WEIGHTS),
        ("GET", f"files/{checkpoint_id}/state.json", None),
        ("GET", "inputs/nothing", None),
        ("POST", "damaged", {"checkpoint_id": checkpoint_id, "missing": [], "altered": []}),
        ("POST", f"checkpoints/{directory}/commit", {"files": files}),
    ]:
        yield method, f"{attempt}/{path}", body


@pytest.mark.slow
@pytest.mark.parametrize("is_killed", [False, True])
def test_every_call_renews_the_lease_of_an_attempt_that_is_not_to_be_killed(
    worker, operation, person, is_killed
):
    attempt = worker.claim()
    _, checkpoint_id = saved(worker, attempt, 1)
    calls = list(calls_about(worker, attempt, checkpoint_id))
    if is_killed:
        services.kill(operation_id=operation.pk, actor=person)
    for method, path, body in calls:
        Worker.objects.update(asked_at=None, heartbeat_at=seconds_from_now(-9000))
        operation.row.update(lease_expires_at=seconds_from_now(5))
        before = lease_of(operation)
        with contextlib.suppress(ValueError):  # bytes of a file are no JSON
            assert worker.ask(method, path, body)[0] in (200, 201, 409), path
        assert (lease_of(operation) > before) is not is_killed, path
        assert Worker.objects.taking_work().exists(), path
        assert worker.data("GET", worker.worker_id)["status"] == "AVAILABLE", path


def test_a_worker_that_only_reports_what_it_runs_still_takes_work(worker, operation):
    attempt = worker.claim()
    Worker.objects.update(asked_at=None)
    worker.tell("heartbeat", running=[{"operation_id": operation.pk, "attempt": 1}])
    assert Worker.objects.taking_work().exists()
    Worker.objects.update(asked_at=None)
    worker.data("POST", f"{attempt}/end", {"outcome": "completed", "result": {}})
    worker.tell("heartbeat", running=[{"operation_id": operation.pk, "attempt": 1}])
    assert not Worker.objects.taking_work().exists()


def test_points_that_are_measured_again_are_retired(worker, operation):
    attempt = worker.claim()
    moment = "2026-01-02T03:04:05Z"
    points = [{"step": step, "at": moment, "metrics": {"loss": 1.0}} for step in (1, 2, 3)]
    worker.data("POST", f"{attempt}/progress", {"step": 3, "total_steps": 9, "points": points})
    operation.row.update(attempt=2)
    receipt = {"step": 3, "checkpoint": "../x", "exact": True, "items": []}
    body = {"step": 3, "measured_to": 2, "receipt": receipt}
    worker.refused(400, "VALIDATION_ERROR", "POST", f"{attempt[:-1]}2/restored", body)
    receipt["checkpoint"] = "a0001-s0000000003-periodic"
    for wrong in ("train", ["train"], {"train": 3}):
        receipt["uncertain"] = wrong
        worker.refused(400, "VALIDATION_ERROR", "POST", f"{attempt[:-1]}2/restored", body)
    receipt["uncertain"] = {"train": "the loader has no state"}
    worker.data("POST", f"{attempt[:-1]}2/restored", body)
    assert "a resume may not be exact: train: the loader has no state" in log_of(operation)
    current = MetricPoint.objects.filter(operation=operation, retired_by=None)
    assert sorted(current.values_list("step", flat=True)) == [1, 2]


def log_of(operation):
    return "".join(LogChunk.objects.filter(operation=operation).values_list("text", flat=True))


def test_points_of_many_reports_have_a_line_every_ten_seconds(worker, operation):
    attempt = worker.claim()
    for second in range(0, 60, 2):
        points = [
            {"step": second * 10 + n, "at": f"2026-01-02T03:04:{second}.{n}Z", "metrics": values}
            for n, values in enumerate([{"loss": 1.0}, {"loss": 1.0}, {"system/x": 1.0}])
        ]
        body = {"step": second, "total_steps": 600, "points": points}
        worker.data("POST", f"{attempt}/progress", body)
    lines = log_of(operation).splitlines()
    assert [line[17:19] for line in lines] == ["00", "10", "20", "30", "40", "50"]


def test_a_line_of_a_later_request_does_not_break_a_printed_line(worker, operation):
    attempt = worker.claim()
    body = {"step": 1, "total_steps": 9}
    point = {"step": 1, "at": "2026-01-02T03:04:05Z", "metrics": {"loss": 1.0}}
    worker.data("POST", f"{attempt}/progress", body | {"log": "abc"})
    worker.data("POST", f"{attempt}/progress", body | {"log": "def\nnext", "points": [point]})
    saved(worker, attempt, 1)
    printed, of_point, following, of_checkpoint = log_of(operation).splitlines()
    assert (printed, following) == ("abcdef", "next")
    assert of_point.endswith("loss 1") and "checkpoint at step 1" in of_checkpoint


def test_an_operation_whose_dataset_was_deleted_does_not_stay_claimed(
    worker, operation, monkeypatch
):
    def gone(_):
        raise DomainError("DATASET_NOT_FOUND", "There is no dataset 'ds_1'.", {}, status=404)

    monkeypatch.setattr(remote_claims, "_inputs", gone)
    operation.row.update(config=operation.config | {"restart": {"policy": "never"}})
    assert worker.data("POST", "gpu-box/claim", {"kinds": ["training"]})["claimed"] is None
    ended = services.get(operation.pk)
    assert (ended.state, ended.reason) == ("FAILED", "PLATFORM_ERROR")
    assert "There is no dataset" in ended.error["message"]


def test_a_storage_that_is_away_says_nothing_of_a_damaged_checkpoint(
    worker, operation, monkeypatch
):
    attempt = worker.claim()
    _, checkpoint_id = saved(worker, attempt, 1)

    def away(_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(remote_attempts.integrity, "check", away)
    body = {"checkpoint_id": checkpoint_id}
    worker.refused(503, "STORAGE_UNAVAILABLE", "POST", f"{attempt}/damaged", body)


def test_a_storage_that_is_away_is_reported_where_a_dataset_is_read(worker, operation, monkeypatch):
    def away(_):
        raise StorageAway("the storage of the datasets is not there")

    attempt = worker.claim()
    monkeypatch.setattr(type(KINDS["training"]), "dataset_ids", lambda *_: ["ds_1"])
    monkeypatch.setattr("apps.workers.attempts_api.datasets.local_path", away)
    _, error = worker.refused(503, "STORAGE_UNAVAILABLE", "GET", f"{attempt}/inputs/ds_1")
    assert "the storage of the datasets is not there" in error["message"]


def test_workers_that_were_registered_before_speak_over_http(worker):
    worker.register()
    Worker.objects.update(worker_type="celery")  # the default then, of HTTP registrations, too
    worker.refused(403, "PERMISSION_DENIED", "POST", "gpu-box/heartbeat", {"running": []})
    migration = importlib.import_module("apps.workers.migrations.0004_storage_process_and_asking")
    migration.say_custom(django_apps, None)
    worker.tell("heartbeat")


@pytest.fixture
def example(worker, operation):
    """The example's attempt, before it has any progress to tell of."""
    server = http_worker.Server(f"http://{worker.netloc}", worker.secret, worker.worker_id)
    offer = {"kinds": ["training"], "memory_bytes": 2**35, "disk_bytes": 2**50}
    claimed = server.call("POST", "claim", offer)["claimed"]
    attempt = http_worker.Attempt(server, claimed, None)
    yield attempt
    attempt.is_over.set()
    attempt.thread.join()
    server.client.close()


@pytest.mark.slow
def test_the_example_keeps_its_lease_before_its_first_step(example, operation):
    operation.row.update(lease_expires_at=seconds_from_now(5))
    before, renewed_at = lease_of(operation), example.renewed_at
    wait_until(lambda: lease_of(operation) > before)
    wait_until(lambda: example.renewed_at > renewed_at)


def test_the_example_gives_up_an_attempt_that_never_begins(example, operation):
    example.claimed["config"]["limits"]["stall_timeout_seconds"] = 0
    time.sleep(0.1)
    renewed_at = example.renewed_at
    example.send_progress()
    assert example.renewed_at == renewed_at


def test_the_example_sends_points_of_its_cpu_and_memory_which_are_no_metrics(
    example, operation, monkeypatch
):
    monkeypatch.setattr(process_use, "LEAST_SECONDS", 0.0)
    example.restored(Receipt(step=0))
    for step in (1, 2):
        example.report(Progress(step, 10, "", {"loss": 0.5}))
        example.send_progress()
    points = MetricPoint.objects.filter(operation=operation, name__startswith="system/")
    wait_until(lambda: points.count() == 2)
    names = {"system/cpu_percent", "system/memory_bytes"}
    assert {(each.name, each.step) for each in points} == {(name, 2) for name in names}
    assert all(each.value is not None and each.value >= 0 for each in points)
    assert services.get(operation.pk).metrics == {"loss": 0.5}


@pytest.mark.slow
def test_the_example_sends_what_the_server_has_nowhere_any_more(example, operation, tmp_path):
    def save(step, home):
        path = tmp_path / f"a0001-s{step:010d}-periodic"
        path.mkdir()
        contents = {"state.json": b'{"step": %d}' % step, "model.pt": WEIGHTS}
        artifacts = []
        for name, content in contents.items():
            (path / name).write_bytes(content)
            where = home if name == "model.pt" else ""
            artifacts.append(Artifact(name, len(content), blake3(content).hexdigest(), where))
        example.checkpointed(Saved(CheckpointType.PERIODIC, step, path, "", tuple(artifacts), {}))
        return path.name

    first = save(1, "")
    (storage.operation_directory(operation.pk) / first / "model.pt").unlink()
    save(2, first)
    newest = Checkpoint.objects.filter(operation=operation).newest_first().first()
    assert newest.step == 2
    verify(storage.directory(newest.artifacts_path), newest.manifest_digest)


def sent_item(step=1, **more):
    content = base64.b64encode(Table(["n"], [[step]]).encode()).decode()
    at = "2026-01-01T00:00:00Z"
    return {"step": step, "at": at, "name": "x", "type": "table", "content": content, **more}


def test_media_are_stored_once_under_the_fence(worker, operation):
    attempt = worker.claim()
    for _ in range(2):  # the first answer was lost
        items = [sent_item(1), sent_item(2, is_early=True), sent_item(2)]
        answer = worker.data("POST", f"{attempt}/media", {"items": items})
        assert answer["directive"] == "proceed"
    found = Media.objects.filter(operation=operation).order_by("position")
    assert [(each.step, each.position, each.attempt) for each in found] == [
        (1, 3, 1), (2, 4, 1), (2, 5, 1),
    ]  # fmt: skip
    receipt = {"step": 1, "checkpoint": None, "exact": True, "items": []}
    operation.row.update(attempt=2)
    worker.refused(409, "SUPERSEDED", "POST", f"{attempt}/media", {"items": [sent_item(3)]})
    assert found.count() == 3
    later = attempt.rpartition("/")[0] + "/2"
    Attempt.objects.create(operation=operation, number=2, worker_id=operation.worker_id)
    worker.data("POST", f"{later}/restored", {"step": 0, "receipt": {**receipt, "step": 0}})
    assert set(found.values_list("retired_by", flat=True)) == {2}


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"type": "html"}, "html"),
        ({"type": "image"}, "allowed: a PNG file"),
        ({"content": "?"}, "allowed: base64"),
        ({"step": -1}, "step"),
        ({"index": 64}, "index"),
        ({"name": "a\nb"}, "printable"),
        ({"more": 1}, "more"),
    ],
)
def test_media_that_no_recipe_could_have_logged_are_refused(worker, operation, more, problem):
    attempt = worker.claim()
    items = [sent_item(), {**sent_item(2), **more}]
    status, _, answer = worker.ask("POST", f"{attempt}/media", {"items": items})
    assert (status, problem in str(answer)) == (400, True)
    assert not Media.objects.exists()


def test_a_web_process_without_the_dataset_storage_says_so_and_looks_once_per_interval(
    worker, operation, monkeypatch, settings
):
    settings.THRESHOLDS = settings.THRESHOLDS.model_copy(
        update={"health_check_interval_seconds": 3600.0}
    )
    looks, problems = [], ["not mounted"]
    monkeypatch.setattr(datasets, "problem", lambda: looks.append(None) or problems[0])
    operation.row.update(uses_datasets=True)
    for _ in range(3):
        claim = worker.data("POST", f"{worker.worker_id}/claim", {"kinds": ["training"]})
        assert claim["claimed"] is None
    assert len(looks) == 1
    status = queue_status.of_operation(services.get(operation.pk))
    assert status.code == BlockingReason.DATASETS_AWAY and "not mounted" in status.message
    problems[0] = ""
    remote_claims.DATASETS.forget()
    assert worker.claim()
    assert registry.get(worker.worker_id).dataset_problem == ""
