"""The reference worker over HTTP: the contract of the engines holds through the protocol."""

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from apps.checkpoints.models import Checkpoint
from apps.datasets import services as datasets
from apps.datasets.directories import child, registration
from apps.ledger.services import account_of
from apps.operations.files import verification
from apps.operations.models import MetricPoint, Operation
from apps.operations.requests import services
from apps.operations.scheduling import sweeps
from apps.workers.models import Worker
from examples.http_worker import Attempt
from tests.directories import making
from tests.engines.contract import CASES, Case, bytes_of, undisturbed
from tests.journey.stack import ROOT
from tests.operations.attempts import media_of
from tests.operations.rows import forget_lease
from tests.waiting import wait_until
from trainops.media.names import SYSTEM
from trainops.runtime import reproducibility
from trainops.runtime.job import Progress
from trainops.runtime.ledger import MemoryLedger

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.database,
    pytest.mark.postgres,
    pytest.mark.slow,
    pytest.mark.faults,
]
FIRST = list({case.kind: case for case in reversed(CASES)}.values())
PRIVATE = [case for case in CASES if "privacy" in case.config][:1]
SCRIPTED = {
    "recipe": "scripted",
    "parameters": {"step_seconds": 0.05},
    "epochs": 40,
    "batch_size": 16,
    "checkpoint": {"every_steps": 10},
}


@contextmanager
def http_worker(worker, *kinds, **environment):
    """The example, started as a user starts it."""
    env = os.environ | {"TRAINOPS_URL": f"http://{worker.netloc}", "TRAINOPS_TOKEN": worker.secret}
    env |= environment
    command = [sys.executable, "-m", "examples.http_worker", worker.worker_id, *kinds]
    with subprocess.Popen(command, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
            sys.stderr.write(process.stderr.read())


def submit(kind, config, person):
    return services.submit(kind=kind, config={"seed": 7, **config}, owner=person)


def until(operation, *states):
    wait_until(lambda: services.get(operation.pk).state in states, 120)
    return services.get(operation.pk)


def result_of(operation):
    final = Checkpoint.objects.get(operation=operation, type="final")
    return {each["name"]: each["blake3"] for each in final.manifest}


def curve_of(operation):
    points = MetricPoint.objects.filter(operation=operation, retired_by=None)
    points = points.exclude(name__startswith=SYSTEM)
    curve = {}
    for point in points:
        curve.setdefault(point.step, {})[point.name] = (
            point.value if point.value is not None else point.not_finite
        )
    return curve


@dataclass(frozen=True)
class Uploaded(Case):
    """A case whose table is a dataset of this installation."""

    paths: Mapping[str, Path] = field(default_factory=dict)

    def inputs(self, root):
        return self.paths


def uploaded(case, tmp_path):
    if case.table is None:
        return case
    (path,) = case.inputs(tmp_path / "table").values()
    with path.open("rb") as file:
        dataset = datasets.add_table(file, filename="table.parquet")
    config = {**case.config, "dataset": dataset.id}
    paths = {dataset.id: datasets.local_path(dataset.id)}
    return Uploaded(case.kind, case.name, config, case.stops, paths=paths)


def ledger_of(operation):
    """Return a ledger that gives an undisturbed run the noise of this operation."""
    if "privacy" not in operation.config:
        return None
    secret = bytes.fromhex(account_of(operation.pk).secret)
    return MemoryLedger(secret=secret, is_durable=True)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.exhaustive) if case.kind == "backtest" else case
        for case in [*FIRST, *PRIVATE]  # that of the backtest takes a minute: it compiles
    ],
    ids=str,
)
def test_every_kind_ends_bit_for_bit_where_an_undisturbed_run_ends(
    worker, person, case, tmp_path, in_process
):
    case = uploaded(case, tmp_path)
    operation = submit(case.kind, case.config, person)
    # The noise of a private run follows from these settings, too.
    reproducibility.set_determinism(operation.config["deterministic"], operation.config["threads"])
    expected = undisturbed(case, tmp_path, ledger=ledger_of(operation))
    with http_worker(worker, case.kind):
        ended = until(operation, "COMPLETED", "FAILED")
        assert ended.state == "COMPLETED", ended.error
    final = Checkpoint.objects.get(operation=operation, type="final")
    levels = {each["name"]: each["level"] for each in verification.verify(final, person="").checks}
    assert levels["load"] == "ok", levels
    assert result_of(operation) == bytes_of(expected.checkpoints[-1])
    assert curve_of(operation).keys() == expected.curve.keys()


@pytest.mark.parametrize("case", FIRST, ids=str)
def test_stopped_at_its_start_and_resumed_it_ends_there_as_well(
    worker, person, case, tmp_path, in_process
):
    case = uploaded(case, tmp_path)
    expected = undisturbed(case, tmp_path)
    operation = submit(case.kind, case.config, person)
    with http_worker(worker, case.kind):
        wait_until(lambda: services.get(operation.pk).attempt == 1)
        Operation.objects.filter(pk=operation.pk, state="RUNNING").update(stop_requested="cancel")
        if until(operation, "CANCELLED", "COMPLETED").state == "CANCELLED":
            services.resume(operation_id=operation.pk, actor=person)
        assert until(operation, "COMPLETED", "FAILED").state == "COMPLETED"
    assert result_of(operation) == bytes_of(expected.checkpoints[-1])


def test_cancelled_killed_and_taken_over_it_is_the_same(worker, person):
    logging = {**SCRIPTED, "parameters": {**SCRIPTED["parameters"], "media": True}}
    whole = submit("training", logging, person)
    operation = submit("training", logging, person)
    with http_worker(worker, "training"):
        assert until(whole, "COMPLETED", "FAILED").state == "COMPLETED"
        wait_until(lambda: services.get(operation.pk).step >= 25)
        services.cancel(operation_id=operation.pk, actor=person)
        cancelled = until(operation, "CANCELLED")
        newest = Checkpoint.objects.filter(operation=operation).newest_first().first()
        assert (newest.type, newest.step) == ("cancellation", cancelled.step)
        services.resume(operation_id=operation.pk, actor=person)
        wait_until(lambda: services.get(operation.pk).step >= cancelled.step + 30)
    forget_lease(operation)  # the worker was killed with the block
    assert sweeps.recover_lost(actor="beat") == 1
    operation.row.update(not_before=None)
    with http_worker(worker, "training"):
        done = until(operation, "COMPLETED", "FAILED")
    assert (done.state, done.attempt) == ("COMPLETED", 3)
    assert result_of(operation) == result_of(whole)
    assert curve_of(operation) == curve_of(whole)
    assert media_of(operation) == media_of(whole) and media_of(whole)
    receipts = [each.receipt for each in operation.attempts.all()]
    assert [each["exact"] for each in receipts] == [True, True, True]


def test_a_worker_that_lost_its_attempt_ends_and_changes_nothing(worker, person):
    operation = submit("training", SCRIPTED, person)
    with http_worker(worker, "training") as process:
        wait_until(lambda: services.get(operation.pk).step >= 15)
        forget_lease(operation)
        operation.row.update(attempt=2)  # another attempt has taken it over
        before = services.get(operation.pk)
        assert process.wait(30) != 0
    after = services.get(operation.pk)
    assert (after.state, after.attempt, after.step) == (before.state, 2, before.step)


def test_a_report_that_waited_while_the_attempt_ended_is_not_sent(monkeypatch):
    """Refused, as every call after the end is, it would end the process."""
    calls = []

    class Server:
        def call(self, method, path, body):
            calls.append(path.rpartition("/")[-1])
            return {}

    monkeypatch.setattr("examples.http_worker.REPORT_SECONDS", 3600)
    claimed = {"operation_id": "op", "attempt": 1}
    attempt = Attempt(Server(), claimed, Path())
    attempt.report(Progress(step=1, total_steps=2, place="", metrics={}))
    attempt.end("completed")
    attempt.send_progress()
    assert calls == ["end"]


def test_a_kill_ends_the_process_at_once(worker, person):
    operation = submit("training", SCRIPTED, person)
    with http_worker(worker, "training") as process:
        wait_until(lambda: services.get(operation.pk).step >= 5)
        services.kill(operation_id=operation.pk, actor=person)
        assert process.wait(30) == 9
    lease = services.get(operation.pk).lease_expires_at
    assert services.get(operation.pk).lease_expires_at == lease  # nobody renews it
    forget_lease(operation)
    assert sweeps.recover_lost(actor="beat") == 1
    assert services.get(operation.pk).reason == "KILLED_BY_PERSON"


def test_an_error_in_the_job_fails_the_operation_with_its_traceback(worker, person):
    config = SCRIPTED | {"parameters": {"what": "raise", "at": 3}}
    operation = submit("training", config, person)
    with http_worker(worker, "training"):
        failed = until(operation, "FAILED", "COMPLETED")
    assert (failed.state, failed.reason) == ("FAILED", "JOB_ERROR")
    assert "Traceback" in failed.error["traceback"]


def test_a_registered_directory_is_read_where_it_is(
    worker, person, settings, tmp_path, monkeypatch
):
    monkeypatch.setattr(registration, "call", lambda module, request, _: child.answer(request))
    settings.DATASET_ROOTS = (tmp_path,)
    making.image_folders(tmp_path / "photos")
    dataset, _ = registration.add_or_find(str(tmp_path / "photos"))
    parameters = {"directory": dataset.pk, "epochs": 2, "side": 8, "channels": 2}
    operation = submit("loop", {"recipe": "image_folders", "parameters": parameters}, person)
    with http_worker(worker, "loop"):
        ended = until(operation, "COMPLETED", "FAILED")
    assert ended.state == "COMPLETED", ended.error


def test_a_worker_whose_time_ends_hands_back_and_leaves(worker, settings):
    shorter = {"shutdown_timeout_seconds": 5, "worker_end_margin_seconds": 0}
    settings.THRESHOLDS = settings.THRESHOLDS.model_copy(update=shorter)
    config = SCRIPTED | {"epochs": 400, "checkpoint": {"every_steps": 10, "every_seconds": 2}}
    operation = submit("training", config, None)
    with http_worker(worker, "training", TRAINOPS_WORKER_UNTIL="40s") as process:
        until(operation, "RUNNING")
        assert process.wait(60) == 0
    ended = services.get(operation.pk)
    attempt = ended.attempts.get()
    assert (ended.state, attempt.outcome, attempt.reason) == ("RESUMING", "preempted", "SHUTDOWN")
    assert Checkpoint.objects.filter(step=attempt.to_step).exists()
    assert not Worker.objects.exists()


def test_a_worker_without_work_leaves(worker):
    with http_worker(worker, "training", TRAINOPS_WORKER_IDLE_EXIT="1s") as process:
        assert process.wait(60) == 0
    assert not Worker.objects.exists()
