"""An operation that was killed and resumed: the tools read the curve of an undisturbed run."""

import pytest

from apps.checkpoints.models import Checkpoint
from apps.operations import outbox
from apps.operations.models import MetricPoint, Operation
from apps.operations.requests import services as operations
from apps.sinks import services
from tests.operations.attempts import Running, run, submit
from tests.sinks import readers
from tests.sinks.test_writing import due_now
from tests.waiting import wait_until
from trainops.media.names import SYSTEM
from trainops.sinks import mlflow

pytestmark = [pytest.mark.slow, pytest.mark.faults, pytest.mark.django_db(transaction=True)]
TOOLS = ("tensorboard", "mlflow", *(["wandb"] if readers.HAS_WANDB else []))
GIVEN = {"epochs": 6, "log_every_steps": 1, "checkpoint": {"every_steps": 8}}


def standing(operation):
    points = MetricPoint.objects.filter(operation=operation, retired_by=None)
    return [*points.order_by("name", "step").values_list("name", "step", "value")]


def curve(operation):
    """Return the points that a resume reproduces, without those that are measured by the clock."""
    return [point for point in standing(operation) if not point[0].startswith(SYSTEM)]


def has_points_since_its_checkpoint(operation):
    newest = Checkpoint.objects.filter(operation=operation).order_by("step").last()
    points = MetricPoint.objects.filter(operation=operation, retired_by=None)
    return newest is not None and points.filter(step__gt=newest.step).exists()


def killed(runtime, operation, step):
    """Kill an attempt that has points after its last checkpoint, and write what there is then."""
    running = Running(runtime, operation).until_step(step)
    wait_until(lambda: has_points_since_its_checkpoint(operation))
    running.held.stop = Operation.Stop.KILL
    operation = running.ended()
    outbox.deliver()
    due_now()
    services.write_due()
    return operation


def test_an_operation_killed_twice_has_each_point_once(runtime, ana, directory, cli, settings):
    settings.SINKS = TOOLS
    operation = submit(step_seconds=0.25, **GIVEN)
    for step in (9, 17):
        killed(runtime, operation, step)
        found, _ = readers.tensorboard(directory / "tensorboard" / operation.pk)
        assert found == readers.single(standing(operation))
        operations.resume(operation_id=operation.pk, actor=ana)
    operation = run(runtime, operations.get(operation.pk))
    outbox.deliver()
    services.write_due()
    assert operation.state == "COMPLETED" and operation.points.exclude(retired_by=None).exists()
    assert curve(operation) == curve(run(runtime, submit(**GIVEN)))
    whole = standing(operation)
    assert len({(name, step) for name, step, _ in whole}) == len(whole)

    exported = directory / "exported"
    for tool in TOOLS:
        ran = cli("export-points", operation.pk, "--to", tool, "--directory", exported / tool)
        assert ran.exit_code == 0, ran.stderr
        assert f"{len(whole)} points" in ran.stdout
    for root in (directory, exported):
        found, text = readers.tensorboard(root / "tensorboard" / operation.pk)
        assert found == readers.single(whole)
        assert '"recipe": "scripted"' in text
    for found in readers.mlflow(directory / "mlflow", exported / "mlflow"):
        run_found = found[operation.pk]
        points = sorted((name, step, value) for name, step, value, _ in run_found["points"])
        names = {name for name, _, _ in whole}
        assert points == sorted(
            (mlflow.file_name(name, names), step, value) for name, step, value in whole
        )
        assert (run_found["status"], run_found["params"]["recipe"]) == ("FINISHED", "scripted")
    if "wandb" in TOOLS:
        for root in (directory, exported):
            assert readers.wandb(root / "wandb") == {operation.pk: sorted(whole)}
