"""A database that is older than the storage: newer checkpoints are found, offered, taken over."""

import os
import time

import pytest
from django.contrib.auth.models import Group

from apps.checkpoints import cleaning, storage
from apps.checkpoints.models import Checkpoint
from apps.operations.attempts import recovery, work
from apps.operations.errors import NotAllowed
from apps.operations.lifecycle import State
from apps.operations.models import Attempt, Operation
from apps.operations.requests import deletion, services
from tests.api.saved import damage, saved
from tests.operations import rows
from tests.operations.attempts import Running, run, submit
from tests.waiting import wait_until

pytestmark = [pytest.mark.django_db, pytest.mark.database]


@pytest.fixture
def operator(person):
    person.groups.add(Group.objects.get_or_create(name="operator")[0])
    return person


def restore(rows_kept, operation, **fields):
    """Make the rows what a backup from then holds; the storage has all that was saved since."""
    Checkpoint.objects.filter(operation=operation).exclude(pk__in=rows_kept).delete()
    operation.row.update(**fields)


def cancelled(person, **fields):
    operation = rows.in_state(State.CANCELLED, person)
    operation.row.update(attempt=1)
    return services.get(operation.pk)


def test_newer_whole_checkpoints_are_offered_and_recovered(operator):
    operation = cancelled(operator)
    old, newer, newest = (saved(operation, step=step) for step in (10, 20, 30))
    saved(operation, step=40, attempt=2)
    restore([old.pk], operation)

    assert [each.step for each in recovery.unrecorded(operation)] == [40, 30, 20]
    done = recovery.recover(operation_id=operation.pk, actor=operator)

    assert (done.problems, done.message) == ([], "Recovered 3 checkpoints, the newest at step 40")
    assert recovery.unrecorded(services.get(operation.pk)) == []
    assert {newer.pk, newest.pk} < {each.pk for each in done.checkpoints}
    resumed = services.resume(operation_id=operation.pk, actor=operator)
    assert resumed.checkpoint.step == 40
    # Attempt 2 was given out once: no later one may have its number, and so its directories.
    assert rows.claim().attempt == 3
    events = [each.what for each in operation.events.all()]
    assert events.count("CHECKPOINT_RECOVERED") == 3


def test_what_is_damaged_or_of_another_config_is_not_recovered(operator):
    operation = cancelled(operator)
    old, _, bad = (saved(operation, step=step) for step in (10, 20, 30))
    damage(bad)
    restore([old.pk], operation)
    done = recovery.recover(operation_id=operation.pk, actor=operator)
    assert [each.step for each in done.checkpoints] == [20]
    assert "altered: model.pt" in done.problems[0]

    restore([old.pk], operation, config_hash="another")
    done = recovery.recover(operation_id=operation.pk, actor=operator)
    assert done.checkpoints == []
    assert any("config_hash" in each for each in done.problems)


def test_nothing_is_recovered_of_an_operation_that_may_run(operator):
    with pytest.raises(NotAllowed, match="in use"):
        recovery.recover(operation_id=rows.claimed(operator).pk, actor=operator)


def test_what_was_deleted_on_purpose_is_not_offered(operator):
    operation = cancelled(operator)
    checkpoint = saved(operation)
    deletion.delete_checkpoints(operation_id=operation.pk, actor=operator)
    assert storage.directory(checkpoint.artifacts_path).exists()  # no commit comes in this test
    assert recovery.unrecorded(operation) == []


def test_what_is_newer_than_the_database_is_not_swept(operator, settings):
    operation = cancelled(operator)
    old, newer = saved(operation, step=10), saved(operation, step=20)
    restore([old.pk], operation)
    age(settings.CHECKPOINT_ROOT, days=2)
    freed = cleaning.sweep_unowned()
    assert (freed.num_unowned, freed.num_trashed) == (0, 0)

    age(settings.CHECKPOINT_ROOT, days=settings.THRESHOLDS.checkpoint_max_age_days + 1)
    assert cleaning.sweep_unowned().num_trashed == 1
    assert storage.directory(newer.artifacts_path).exists()


def age(root, *, days):
    then = time.time() - days * 86_400
    for path in [*root.rglob("*"), root]:
        os.utime(path, (then, then))


GIVEN = {
    "epochs": 20,
    "step_seconds": 0.05,
    "checkpoint": {"every_steps": 10, "keep_last": 1, "keep_best": 0},
}


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.django_db(transaction=True)
class TestAnAttempt:
    """What an attempt that begins does by itself."""

    def stopped(self, runtime, at_least=40):
        """Run until some checkpoints have come and gone, then stop it like a worker that ends."""
        running = Running(runtime, submit(**GIVEN)).until_step(at_least)
        runtime.slots.close(gone_in_seconds=10)
        operation = running.ended()
        runtime.slots.gone_at = None
        assert operation.state == "RESUMING"
        return operation

    def backup(self, operation, **fields):
        """The rows of a backup that was made at step 10: of files that retention removed since."""
        newest = Checkpoint.objects.get(operation=operation)
        directory = newest.artifacts_path.replace(
            f"s{newest.step:010d}-shutdown", "s0000000010-periodic"
        )
        Checkpoint.objects.filter(pk=newest.pk).delete()
        newest.pk, newest.artifacts_path, newest.step = "from-the-backup", directory, 10
        newest.save(force_insert=True)
        operation.row.update(**fields)

    def undisturbed(self, runtime):
        return run(runtime, submit(**GIVEN | {"step_seconds": 0})).result

    def test_a_restored_database_continues_from_the_newest_in_the_storage(self, runtime):
        expected = self.undisturbed(runtime)
        operation = self.stopped(runtime)
        step = operation.step
        self.backup(operation)

        done = run(runtime, operation)

        assert (done.state, done.result) == ("COMPLETED", expected)
        events = {each.what: each.note for each in operation.events.all()}
        assert f"step {step}" in events["CHECKPOINT_RECOVERED"]
        assert Attempt.objects.get(operation=operation, number=2).from_step == step

    def test_a_database_from_before_the_first_attempt_continues_as_well(self, runtime):
        operation = self.stopped(runtime)
        step = operation.step
        Checkpoint.objects.all().delete()
        Attempt.objects.all().delete()
        operation.row.update(attempt=0, state=State.PENDING)

        done = run(runtime, operation)

        assert done.state == "COMPLETED"
        assert Attempt.objects.get(operation=operation).from_step == step

    def test_what_was_staged_and_not_committed_is_computed_again(self, runtime):
        """Its metric points were lost with it, and a curve has no holes."""
        operation = self.stopped(runtime)
        saved_at = Checkpoint.objects.get(operation=operation)
        newer = storage.directory(saved_at.artifacts_path)
        staged = newer.with_name(f"a0001-s{saved_at.step + 4:010d}-periodic")
        staged.mkdir()
        for file in newer.iterdir():
            os.link(file, staged / file.name)
        run(runtime, operation)
        events = {each.what for each in operation.events.all()}
        assert "CHECKPOINT_RECOVERED" not in events
        assert Attempt.objects.get(operation=operation, number=2).from_step == saved_at.step


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.django_db(transaction=True)
class TestAStorageThatIsAway:
    def test_nothing_is_claimed_until_it_is_back(self, runtime, settings, person):
        running = Running(runtime, submit(epochs=20, step_seconds=0.05)).until_step(10)
        operation = running.operation
        running.held.stop = Operation.Stop.CANCEL
        running.ended()
        services.resume(operation_id=operation.pk, actor=person)
        root = settings.CHECKPOINT_ROOT
        root.rename(root.with_name("elsewhere"))
        root.mkdir()

        runtime.look_at_storage()
        assert "identity file" in runtime.storage_problem
        assert work._work_once(runtime) is False
        assert services.get(operation.pk).state == "RESUMING"
        assert not Checkpoint.objects.exclude(health="healthy").exists()
        assert not any(root.iterdir())

        root.rmdir()
        root.with_name("elsewhere").rename(root)
        runtime.look_at_storage()
        assert run(runtime, operation).state == "COMPLETED"

    def test_what_is_claimed_just_then_is_handed_back_with_nothing_marked(
        self, runtime, settings, person
    ):
        running = Running(runtime, submit(epochs=20, step_seconds=0.05)).until_step(10)
        operation = running.operation
        running.held.stop = Operation.Stop.CANCEL
        running.ended()
        services.resume(operation_id=operation.pk, actor=person)
        runtime.look_at_storage()
        root = settings.CHECKPOINT_ROOT
        root.rename(root.with_name("elsewhere"))
        root.mkdir()

        operation = run(runtime, operation)

        assert (operation.state, operation.reason) == ("RESUMING", "STORAGE_ERROR")
        assert not Checkpoint.objects.exclude(health="healthy").exists()

    def test_what_runs_continues_and_saves_once_it_is_back(self, runtime, settings):
        given = {"epochs": 40, "step_seconds": 0.02, "checkpoint": {"every_steps": 10}}
        expected = run(runtime, submit(**given)).result
        running = Running(runtime, submit(**given)).until_step(15)
        root = settings.CHECKPOINT_ROOT
        root.rename(root.with_name("elsewhere"))
        root.mkdir()
        operation = running.operation
        wait_until(lambda: operation.events.filter(what="SAVE_FAILED").exists())
        assert "identity file" in operation.events.filter(what="SAVE_FAILED").first().note
        assert not any(root.iterdir())
        root.rmdir()
        root.with_name("elsewhere").rename(root)
        done = running.ended()
        assert (done.state, done.result) == ("COMPLETED", expected)
