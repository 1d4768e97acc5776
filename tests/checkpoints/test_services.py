import os
import time

import pytest

from apps.checkpoints import cleaning, integrity, services, storage
from apps.checkpoints.models import Checkpoint
from apps.operations.lifecycle import State
from apps.operations.models import Attempt
from tests.operations import rows
from trainops.runtime.checkpoint.manifest import CheckpointType, StagedCheckpoint
from trainops.runtime.errors import CheckpointCorrupted

pytestmark = [pytest.mark.django_db, pytest.mark.database]


def commit(operation, step, metric=None, kind="periodic", attempt=1, **further):
    """Commit a checkpoint; `further`: what else was measured on its weights, by metric."""
    directory = f"a{attempt:04d}-s{step:010d}-{kind}"
    path = storage.operation_directory(operation.pk) / directory
    path.mkdir(parents=True)
    (path / "state.json").write_text("{}")
    lines = {name: {"metric": value} for name, value in further.items()}
    staged = StagedCheckpoint(
        directory, CheckpointType(kind), step, f"{step}", (), {"monitored": lines}, metric
    )
    return services.commit(operation_id=operation.pk, attempt=attempt, staged=staged)


def altered(checkpoint):
    """What a reader finds that meets a changed byte."""
    return CheckpointCorrupted(storage.directory(checkpoint.artifacts_path), altered=["model.pt"])


def best():
    return [each.step for each in Checkpoint.objects.filter(is_best=True)]


def kept():
    return sorted(Checkpoint.objects.values_list("step", flat=True))


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "expected"), [("min", [20]), ("max", [10])])
def test_the_best_is_the_best_by_the_operations_own_metric(mode, expected):
    operation = rows.submitted(mode=mode)
    for step, metric in [(10, 0.3), (20, 0.1), (30, 0.2)]:
        commit(operation, step, metric)
    assert best() == expected


def test_no_checkpoint_of_a_backtest_is_the_best():
    """Its metric is that of the bars so far: the last one is not better than the others."""
    operation = rows.submitted()
    operation.row.update(kind="backtest")
    for step, metric in [(10, 1.1), (20, 1.3)]:
        commit(operation, step, metric)
    assert best() == []


def test_when_the_best_goes_bad_the_next_best_takes_its_place():
    operation = rows.submitted()
    for step, metric in [(10, 0.3), (20, 0.1), (30, 0.2)]:
        last = commit(operation, step, metric)
    bad = Checkpoint.objects.get(step=20)
    integrity.mark(bad.artifacts_path, altered(bad))
    assert best() == [30]
    services.delete(Checkpoint.objects.filter(pk=last.pk))
    assert best() == [10]


def test_retention_keeps_the_newest_the_best_and_the_pinned():
    operation = rows.submitted()
    for step, metric in [(10, 0.5), (20, 0.1), (30, 0.4), (40, 0.3), (50, 0.2)]:
        commit(operation, step, metric)
    services.pin(Checkpoint.objects.get(step=10).pk, pinned=True)
    services.retain(operation.pk, keep_last=2, keep_best=1, better="min")
    assert kept() == [10, 20, 40, 50]


def test_the_best_by_each_monitored_metric_is_marked_named_and_kept():
    operation = rows.submitted(monitors={"val_accuracy": "max", "train_loss": "min"})
    values = [(10, 0.5, 0.7), (20, 0.1, 0.6), (30, 0.4, 0.9), (40, 0.3, 0.9), (50, 0.2, 0.8)]
    for step, metric, accuracy in values:
        commit(
            operation, step, metric, val_accuracy=accuracy, train_loss=metric if step < 40 else None
        )
        services.retain(operation.pk, **{**operation.retention, "keep_last": 1})
    assert kept() == [20, 30, 50]
    assert {c.step: c.best_of for c in Checkpoint.objects.all()} == {
        20: ["train_loss"], 30: ["val_accuracy"], 50: [],
    }  # fmt: skip
    named = Checkpoint.objects.named
    for name, step in [("val_accuracy", 30), ("train_loss", 20), ("val_loss", 20)]:
        assert named(operation.pk, f"best:{name}").get().step == step
    assert not named(operation.pk, "best:other").exists()
    commit(operation, 60, 0.9, val_accuracy=0.95)
    assert named(operation.pk, "best:val_accuracy").get().step == 60
    assert Checkpoint.objects.get(step=30).best_of == []


def test_no_checkpoint_is_the_best_where_a_better_value_was_measured_between_two():
    operation = rows.submitted(monitors={"val_accuracy": "max"})
    commit(operation, 10, val_accuracy=0.5)
    last = commit(operation, 20, val_accuracy=0.7)
    lines = {"val_accuracy": {"metric": 0.7, "best_metric": 0.8, "best_epoch": 1}}
    Checkpoint.objects.filter(pk=last.pk).update(state={"monitored": lines})
    services.elect_best(operation.pk)
    assert [each.best_of for each in Checkpoint.objects.all()] == [[], []]


def test_retention_prefers_the_branch_that_continues_to_one_that_was_left():
    operation = rows.submitted()
    for step in (100, 400, 500):
        commit(operation, step)
    for step in (200, 300):
        commit(operation, step, attempt=2)
    services.retain(operation.pk, keep_last=2, keep_best=0, better="min")
    assert kept() == [200, 300]


def test_a_failure_checkpoint_never_displaces_a_good_one():
    operation = rows.submitted()
    for step in (10, 20):
        commit(operation, step)
    commit(operation, 25, kind="failure")
    services.retain(operation.pk, keep_last=2, keep_best=0, better="min")
    assert kept() == [10, 20, 25]


def test_files_without_a_row_go_by_age_and_ownership(settings):
    operation = rows.in_state(State.CANCELLED)
    owned = commit(operation, 10)
    unowned = storage.operation_directory(operation.pk) / "a0001-s0000000011-periodic"
    young = storage.operation_directory(operation.pk) / "a0001-s0000000012-periodic"
    for path in (unowned, young):
        path.mkdir()
        (path / "model.pt").write_bytes(b"x" * 10)
    long_ago = time.time() - settings.THRESHOLDS.unowned_file_age_seconds - 1
    for path in (unowned, unowned / "model.pt", storage.directory(owned.artifacts_path)):
        os.utime(path, (long_ago, long_ago))

    freed = cleaning.sweep_unowned()

    assert (freed.num_unowned, freed.freed_bytes) == (1, 10)
    assert storage.directory(owned.artifacts_path).exists()
    assert young.exists()
    assert not unowned.exists()


def test_what_an_attempt_may_be_writing_stays_whatever_the_clock_says(settings):
    operation = begun(rows.claimed(), of=2)
    before, now, next_one = old_directories(operation, settings)

    cleaning.sweep_unowned()

    assert [path.exists() for path in (before, now, next_one)] == [False, True, True]


def test_what_the_next_attempt_may_adopt_stays_until_it_has_begun(settings):
    """Whatever the clock says, and though the next one owns the operation already."""
    operation = begun(rows.claimed(), of=1)
    operation.row.update(attempt=2)
    left, _, _ = old_directories(operation, settings, name=storage.RECOVERY_RECORD)
    cleaning.sweep_unowned()
    assert left.exists()

    begun(operation, of=2)
    cleaning.sweep_unowned()
    assert not left.exists()


def begun(operation, *, of):
    """Say that its attempt of this number has restored what it starts from."""
    operation.row.update(attempt=of)
    Attempt.objects.update_or_create(
        {"receipt": {"exact": True}}, operation_id=operation.pk, number=of
    )
    return operation


def old_directories(operation, settings, name="model.pt"):
    """Make a directory of each of the first three attempts, older than any age allowed."""
    root = storage.operation_directory(operation.pk)
    made = [root / f"a{n:04d}-s0000000011-periodic" for n in (1, 2, 3)]
    age = settings.THRESHOLDS.unowned_file_age_seconds * cleaning.WILL_AGES + 3600
    for path in made:
        path.mkdir(parents=True)
        (path / name).write_bytes(b"x")
        for each in (path / name, path):
            os.utime(each, (time.time() - age,) * 2)
    return made


@pytest.mark.parametrize("name", ["../op_training_20240101_000000_abcdef", "op_x/../../etc", ""])
def test_an_id_that_is_not_ours_never_becomes_a_path(name):
    with pytest.raises(ValueError, match="not a"):
        storage.operation_directory(name)
