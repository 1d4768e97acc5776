"""Operations over a registered directory, in real children."""

import pytest

from apps.checkpoints.models import Checkpoint
from apps.datasets.directories import child, registration
from apps.datasets.errors import DatasetInUse
from apps.datasets.services import delete
from apps.operations.lifecycle import Reason
from apps.operations.requests import services
from tests.directories import making
from tests.operations.attempts import Running, run
from trainops.runtime.errors import ConfigError

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.django_db(transaction=True)]
SMALL = {"epochs": 2, "batch_size": 4, "side": 8, "channels": 2}


@pytest.fixture
def photos(settings, tmp_path, monkeypatch):
    """A directory of images that can be registered."""
    monkeypatch.setattr(registration, "call", lambda module, request, _: child.answer(request))
    settings.DATASET_ROOTS = (tmp_path,)
    root = tmp_path / "photos"
    making.image_folders(root)
    return root


def submit(dataset, **more):
    parameters = SMALL | {"directory": dataset.pk} | more
    config = {"recipe": "image_folders", "parameters": parameters}
    return services.submit(kind="loop", config=config, owner=None)


def again(runtime, operation):
    """The next attempt, without the pause before it."""
    operation.row.update(not_before=None)
    return run(runtime, operation)


def final(operation):
    rows = Checkpoint.objects.get(operation=operation, type="final").manifest
    return {each["name"]: each["blake3"] for each in rows}


def test_a_training_reads_the_directory_where_it_is(runtime, photos):
    dataset, _ = registration.add_or_find(str(photos))
    operation = submit(dataset)
    with pytest.raises(DatasetInUse):
        delete(dataset_id=dataset.pk)
    done = run(runtime, operation)
    assert done.state == "COMPLETED", done.error
    assert done.result["final"]["val_accuracy"] >= 0


def test_a_directory_that_changed_after_the_submission_fails_the_operation(runtime, photos):
    dataset, _ = registration.add_or_find(str(photos))
    operation = submit(dataset)
    making.save_image(photos / "class 0" / "000.png", 99)
    making.save_image(photos / "class 9" / "new.png", 99)
    failed = run(runtime, operation)
    assert (failed.state, failed.reason) == ("FAILED", Reason.INPUT_ERROR)
    problem = failed.error["message"]
    assert "is not the directory that was registered" in problem and "class 9/new.png" in problem


def test_an_attempt_waits_for_a_directory_that_is_not_on_the_worker(runtime, photos):
    dataset, _ = registration.add_or_find(str(photos))
    whole = run(runtime, submit(dataset))
    operation = submit(dataset)
    photos.rename(photos.with_name("unmounted"))
    waiting = run(runtime, operation)
    assert (waiting.state, waiting.reason) == ("RESUMING", Reason.DATASET_AWAY)
    note = waiting.attempts.get().note
    assert note == f"{photos} of dataset {dataset.pk} is not on this worker"
    photos.with_name("unmounted").rename(photos)
    done = again(runtime, waiting)
    assert done.state == "COMPLETED", done.error
    assert final(done) == final(whole)


def test_a_directory_that_goes_away_during_the_training_is_waited_for(runtime, photos):
    dataset, _ = registration.add_or_find(str(photos))
    whole = run(runtime, submit(dataset, epochs=60))
    running = Running(runtime, submit(dataset, epochs=60)).until_step(1)
    photos.rename(photos.with_name("unmounted"))
    waiting = running.ended()
    assert (waiting.state, waiting.reason) == ("RESUMING", Reason.DATASET_AWAY), waiting.error
    photos.with_name("unmounted").rename(photos)
    done = again(runtime, waiting)
    assert done.state == "COMPLETED", done.error
    assert final(done) == final(whole)


def test_a_table_is_refused_where_a_directory_is_needed(photos, tmp_path, in_process):
    from apps.datasets import services as datasets

    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n")
    with path.open("rb") as file:
        table = datasets.add_table(file, filename="t.csv")
    with pytest.raises(ConfigError, match=r"parameters.directory: got the upload .*; allowed"):
        submit(table)
