"""`exact: required`: a resume that is not exact fails, until a person accepts it."""

from dataclasses import replace

import pytest

from apps.checkpoints.models import Checkpoint
from apps.operations.attempts.preparation import Preparation
from apps.operations.lifecycle import Reason
from apps.operations.models import Operation
from apps.operations.requests import services
from tests.operations.attempts import Running, run, submit

pytestmark = [pytest.mark.faults, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def elsewhere(monkeypatch):
    """From now on attempts compute with another number of threads: in another environment."""
    start_message = Preparation.start_message

    def changed(preparation, **given):
        start = start_message(preparation, **given)
        return replace(start, config={**start.config, "threads": 3})

    return lambda: monkeypatch.setattr(Preparation, "start_message", changed)


def cancelled(runtime, person, **config):
    rarely = {"every_epochs": 1000}
    operation = submit(step_seconds=0.02, epochs=100, threads=1, checkpoint=rarely, **config)
    running = Running(runtime, operation).until_step(3)
    services.cancel(operation_id=running.operation.pk, actor=person)
    running.held.stop = Operation.Stop.CANCEL
    return running.ended()


@pytest.mark.slow
def test_a_resume_elsewhere_fails_and_one_that_accepts_it_continues(runtime, person, elsewhere):
    operation = cancelled(runtime, person, exact="required")
    saved, checkpoints = Checkpoint.objects.latest("step"), set(Checkpoint.objects.all())
    elsewhere()

    services.resume(operation_id=operation.pk, actor=person)
    failed = run(runtime, operation)

    assert (failed.state, failed.reason) == ("FAILED", Reason.NOT_EXACT)
    assert "threads: was 1, is 3" in failed.error["message"]
    assert set(Checkpoint.objects.all()) == checkpoints
    assert (failed.step, failed.attempts.count()) == (saved.step, 2)

    services.resume(operation_id=operation.pk, actor=person, accept_inexact=True)
    running = Running(runtime, operation).until_step(saved.step + 1)
    services.cancel(operation_id=operation.pk, actor=person)
    running.held.stop = Operation.Stop.CANCEL
    went_on = running.ended()

    assert went_on.state == "CANCELLED" and went_on.step > saved.step
    assert not went_on.attempts.first().receipt["exact"]
    assert "not exactly, if need be" in "".join(went_on.events.values_list("note", flat=True))


@pytest.mark.slow
def test_acceptance_ends_with_the_next_resume(runtime, person):
    operation = cancelled(runtime, person, exact="required")
    services.resume(operation_id=operation.pk, actor=person, accept_inexact=True)
    assert not services.get(operation.pk).requires_exact
    services.cancel(operation_id=operation.pk, actor=person)
    services.resume(operation_id=operation.pk, actor=person)
    assert services.get(operation.pk).requires_exact


@pytest.mark.slow
def test_without_it_a_resume_elsewhere_continues_and_says_so(runtime, person, elsewhere):
    operation = cancelled(runtime, person)
    elsewhere()
    services.resume(operation_id=operation.pk, actor=person)
    running = Running(runtime, operation).until_step(operation.step + 1)
    services.kill(operation_id=operation.pk, actor=person)
    running.held.stop = Operation.Stop.KILL
    assert not running.ended().attempts.first().receipt["exact"]
