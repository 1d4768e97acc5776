"""Operations that move are written into the sinks of the installation."""

import logging
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.operations import outbox
from apps.operations.lifecycle import State
from apps.operations.models import MetricPoint, Operation
from apps.sinks import services
from apps.sinks.models import SinkWrite
from apps.workers import maintenance
from tests.operations import rows
from tests.sinks import readers
from trainops.sinks import known

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database, pytest.mark.slow]


def measured(operation, steps, attempt=1):
    MetricPoint.objects.bulk_create(
        MetricPoint(
            operation_id=operation.pk, attempt=attempt, name="loss", step=step,
            value=1.0 / step, at=timezone.now(),
        )
        for step in steps
    )  # fmt: skip


def due_now():
    SinkWrite.objects.update(next_at=timezone.now() - timedelta(seconds=1))


def written(directory, operation):
    return [step for _, step, _ in readers.tensorboard(directory / "tensorboard" / operation.pk)[0]]


def ended(operation, state=State.COMPLETED):
    assert operation.row.move(state, actor="test", note="")
    outbox.deliver()


def test_a_running_operation_is_written_again_and_an_ended_one_a_last_time(directory):
    operation = rows.claimed()
    measured(operation, [1, 2])
    outbox.deliver()
    services.write_due()
    assert written(directory, operation) == [1, 2]
    assert not SinkWrite.objects.filter(next_at=None).exists()
    measured(operation, [3])
    services.write_due()
    assert written(directory, operation) == [1, 2]  # not due yet
    due_now()
    services.write_due()
    assert written(directory, operation) == [1, 2, 3]
    measured(operation, [4])
    ended(operation)
    services.write_due()
    assert written(directory, operation) == [1, 2, 3, 4]
    assert SinkWrite.objects.filter(next_at=None).count() == 2


def test_points_that_a_resume_retired_are_removed(directory):
    operation = rows.claimed()
    measured(operation, range(1, 6))
    ended(operation, State.CANCELLED)
    services.write_due()
    rows.retire(operation, by=2, after_step=3)
    measured(operation, range(4, 8), attempt=2)
    due_now()
    services.write_due()
    assert written(directory, operation) == [*range(1, 8)]


def test_a_full_disk_is_one_line_in_the_log_and_retried(directory, monkeypatch, caplog):
    operation, other = rows.claimed(), rows.claimed()
    for each in (operation, other):
        measured(each, [1, 2])
    write = known.write

    def full(sink, target, details, pages):
        if details.id == operation.pk:
            raise OSError(28, "No space left on device")
        write(sink, target, details, pages)

    monkeypatch.setattr(known, "write", full)
    outbox.deliver()
    with caplog.at_level(logging.WARNING):
        services.write_due()
    lines = [each for each in caplog.records if each.name == "apps.sinks.services"]
    assert [each.getMessage() for each in lines] == [
        f"{operation.pk} in {sink} was not written and is retried: "
        "[Errno 28] No space left on device"
        for sink in ("tensorboard", "mlflow")
    ]
    assert not any(each.exc_info for each in lines)
    assert written(directory, other) == [1, 2]
    for row in SinkWrite.objects.filter(operation=operation):
        assert (row.num_failures, row.error) == (1, "[Errno 28] No space left on device")
        assert row.next_at > timezone.now()
    monkeypatch.setattr(known, "write", write)
    due_now()
    services.write_due()
    assert written(directory, operation) == [1, 2]


def test_an_end_during_a_write_leads_to_another_one(directory, monkeypatch):
    operation = rows.claimed()
    measured(operation, [1])
    outbox.deliver()
    details = services.details

    def ends_meanwhile(given):
        if Operation.objects.get(pk=operation.pk).state == State.RUNNING:
            measured(operation, [2])
            ended(operation)
        return details(given)

    monkeypatch.setattr(services, "details", ends_meanwhile)
    services.write_due()
    assert SinkWrite.objects.exclude(next_at=None).filter(sink="tensorboard").exists()
    services.write_due()
    assert written(directory, operation) == [1, 2]
    assert not SinkWrite.objects.exclude(next_at=None).exists()


def test_a_resume_during_a_write_discards_it(directory, monkeypatch):
    operation = rows.claimed()
    measured(operation, [1, 2])
    monkeypatch.setattr(services, "PAGE", 1)
    pages = services.pages(operation.pk)
    next(pages)
    operation.attempts.update(from_step=1)  # it begins to compute
    with pytest.raises(services.SinkPointsChanged):
        list(pages)


def test_a_writer_that_was_killed_is_replaced_after_a_while(directory, monkeypatch):
    operation = rows.claimed()
    measured(operation, [1])
    outbox.deliver()

    def killed(*_):
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(services, "_written", killed)  # after the files, before the row
        for _ in range(2):
            with pytest.raises(SystemExit):
                services.write_due()
    measured(operation, [2])
    services.write_due()
    assert written(directory, operation) == [1]  # it may still be writing
    due_now()
    services.write_due()
    assert written(directory, operation) == [1, 2]


def test_subtasks_are_not_written(directory):
    parent = rows.claimed()
    rows.subtask_of(parent, State.RUNNING).record(State.RUNNING, actor="test")
    outbox.deliver()
    assert set(SinkWrite.objects.values_list("operation_id", flat=True)) == {parent.pk}


@pytest.mark.parametrize(("sinks", "has_loop"), [((), False), (("mlflow",), True)])
def test_web_and_beat_write_only_where_sinks_are_set(settings, monkeypatch, sinks, has_loop):
    settings.SINKS = sinks
    started = []
    sweeper = maintenance.Sweeper()
    monkeypatch.setattr(sweeper.loops, "start", lambda _, task, name: started.append((name, task)))
    sweeper.start(actor="test")
    assert (("sinks", services.write_due) in started) is has_loop
