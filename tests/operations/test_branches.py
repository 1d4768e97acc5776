"""Resumes from any checkpoint, in any order: the standing curve is that of an undisturbed run."""

import pytest

from apps.checkpoints import storage
from apps.checkpoints.models import Checkpoint
from apps.operations.attempts import branches
from apps.operations.models import Operation
from apps.operations.requests import services
from tests.operations.attempts import Running, run, submit
from tests.operations.test_supervisor import curve, weights
from tests.thinning import some_of
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.faults,
    pytest.mark.django_db(transaction=True),
    pytest.mark.database,
    pytest.mark.postgres,
]
GIVEN = {"epochs": 10, "log_every_steps": 1}
OFTEN = {"checkpoint": {"every_steps": 2, "keep_last": 1000, "keep_after_success": True}}


def killed(runtime, operation, at):
    """Kill an attempt once it has come to a step and has a checkpoint: nothing more is saved."""
    running = Running(runtime, operation).until_step(at)
    wait_until(Checkpoint.objects.filter(operation=operation).exists)
    running.held.stop = Operation.Stop.KILL
    return running.ended()


def require_whole_curve(runtime, operation):
    whole = run(runtime, submit(**GIVEN))
    assert operation.state == whole.state == "COMPLETED"
    assert weights(operation) == weights(whole)
    assert curve(operation) == curve(whole)
    standing = branches.standing(operation.pk)
    for point in operation.points.all():
        last = standing.get(point.attempt, -1)
        assert (point.retired_by is None) == (last is None or point.step <= last)


@pytest.mark.parametrize("choices", some_of([[3, 0, 4], [0, 5], [0, 6, 1]], every=3))
def test_resumed_from_checkpoints_that_a_person_chooses(runtime, person, choices):
    operation = killed(runtime, submit(step_seconds=0.1, **GIVEN, **OFTEN), 14)
    first = list(Checkpoint.objects.filter(operation=operation).order_by("step"))
    chosen = [min(number, len(first) - 1) for number in choices]  # under load, some are skipped
    for place, number in enumerate(chosen, start=1):
        services.resume(operation_id=operation.pk, actor=person, checkpoint_id=first[number].pk)
        resumed = services.get(operation.pk)
        is_last = place == len(chosen)
        operation = run(runtime, resumed) if is_last else killed(runtime, resumed, resumed.step + 1)
        assert operation.attempts.first().from_step == first[number].step
    require_whole_curve(runtime, operation)


def test_resumed_from_an_older_one_while_newer_ones_were_away(runtime, person):
    operation = killed(runtime, submit(step_seconds=0.1, **GIVEN, **OFTEN), 14)
    older, *newer = Checkpoint.objects.filter(operation=operation).order_by("step")
    directories = [storage.directory(each.artifacts_path) for each in newer]
    for each in directories:
        each.rename(each.with_name(f"away-{each.name}"))
    services.resume(operation_id=operation.pk, actor=person)
    operation = killed(runtime, services.get(operation.pk), older.step + 1)
    assert operation.attempts.first().from_step == older.step
    Checkpoint.objects.filter(attempt=2).delete()
    for each in directories:
        each.with_name(f"away-{each.name}").rename(each)
    services.resume(operation_id=operation.pk, actor=person)
    operation = run(runtime, services.get(operation.pk))
    assert operation.attempts.first().from_step == newer[-1].step
    require_whole_curve(runtime, operation)
