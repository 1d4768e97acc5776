"""The checkpoint storage is unmounted, or is another installation's: nothing is lost."""

import shutil
from contextlib import contextmanager

import pytest

from tests.journey.stack import running
from tests.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.journey, pytest.mark.slow]
CONFIG = {
    "recipe": "scripted",
    "parameters": {"step_seconds": 0.02},
    "epochs": 60,
    "batch_size": 16,
    "checkpoint": {"every_steps": 20, "keep_last": 3},
}
RECIPES = {"TRAINOPS_RECIPES": "tests.recipes.scripted:RECIPE"}


@contextmanager
def unmounted(data_dir):
    """What an unmounted share looks like: the mount point is there, and empty."""
    root = data_dir / "checkpoints"
    root.rename(data_dir / "share")
    root.mkdir()
    try:
        yield root
    finally:
        assert not any(root.iterdir()), "something was written below the mount point"
        root.rmdir()
        (data_dir / "share").rename(root)


def cancelled(stack):
    operation_id = stack.submit(**CONFIG)
    stack.wait_step(operation_id, 60)
    stack.post(f"operations/{operation_id}/cancel")
    stack.wait(operation_id, "CANCELLED")
    return operation_id


def waits_for(stack, operation_id, code):
    def reached():
        waiting = stack.get(f"operations/{operation_id}")["waiting_for"]
        return waiting if waiting and waiting["code"] == code else None

    return wait_until(reached)


def healths(stack, operation_id):
    found = stack.get("checkpoints", operation_id=operation_id)
    return {each["health"] for each in found}


def test_a_storage_that_is_away_and_back_costs_no_checkpoint(tmp_path):
    data_dir = tmp_path / "var"
    with running(data_dir, **RECIPES) as stack:
        undisturbed = stack.submit(**CONFIG)
        stack.wait(undisturbed, "COMPLETED")
        operation_id = cancelled(stack)
        with unmounted(data_dir):
            assert stack.client.get("ready").status_code == 503
            refused = stack.client.post(f"operations/{operation_id}/resume", json={})
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "STORAGE_UNAVAILABLE"
            assert healths(stack, operation_id) == {"healthy"}
            other = stack.submit(**CONFIG)
            assert "identity file" in waits_for(stack, other, "STORAGE_AWAY")["message"]
            waiting = stack.get(f"operations/{other}")
            # A worker may have claimed it before it noticed, and hands it back then.
            assert waiting["state"] in {"PENDING", "RESUMING"} and waiting["attempt"] <= 1
        assert wait_until(lambda: stack.client.get("ready").status_code == 200)
        stack.post(f"operations/{operation_id}/resume")
        for each in (operation_id, other):
            stack.wait(each, "COMPLETED")
            assert stack.artifacts(each) == stack.artifacts(undisturbed)


@pytest.mark.exhaustive
def test_a_start_while_the_storage_is_away_waits_for_it(tmp_path):
    data_dir = tmp_path / "var"
    with running(data_dir, **RECIPES) as stack:
        operation_id = cancelled(stack)
        stack.post(f"operations/{operation_id}/resume")
        stack.wait(operation_id, "RUNNING")
        step = stack.get(f"operations/{operation_id}")["step"]
    with unmounted(data_dir), running(data_dir, **RECIPES) as stack:
        waits_for(stack, operation_id, "STORAGE_AWAY")
        assert healths(stack, operation_id) == {"healthy"}
        assert stack.get(f"operations/{operation_id}")["state"] == "RESUMING"
    assert "is not mounted" in (tmp_path / "up.log").read_text()
    with running(data_dir, **RECIPES) as stack:
        done = stack.wait(operation_id, "COMPLETED")
        assert done["step"] > step


@pytest.mark.exhaustive
def test_a_fresh_database_neither_starts_on_nor_sweeps_another_installations_storage(tmp_path):
    data_dir, other = tmp_path / "var", tmp_path / "other"
    with running(data_dir, **RECIPES) as stack:
        cancelled(stack)
    storage = data_dir / "checkpoints"
    before = sorted(storage.rglob("*"))
    shared = {"TRAINOPS_CHECKPOINT_STORAGE": str(storage), "TRAINOPS_UNOWNED_FILE_AGE_SECONDS": "1"}
    with pytest.raises(AssertionError), running(other, **RECIPES, **shared):
        pass  # it never comes up
    assert "belongs to another installation" in (tmp_path / "up.log").read_text()
    assert sorted(storage.rglob("*")) == before

    shutil.rmtree(other)
    with running(other, "--take-over-storage", **RECIPES, **shared) as stack:
        done = stack.post("checkpoints/cleanup")
        assert (done["num_checkpoints"], done["num_unowned"]) == (0, 0)
        assert done["num_trashed"] > 0
    assert [
        path for path in sorted(storage.rglob("*")) if path.name != "trainops-storage.json"
    ] == [path for path in before if path.name != "trainops-storage.json"]


@pytest.mark.exhaustive
def test_a_worker_that_was_killed_continues_long_before_its_lease_runs_out(tmp_path):
    """One worker, which `up` starts again under the same name."""
    lease = {"TRAINOPS_ORPHAN_TIMEOUT_SECONDS": "120", "TRAINOPS_CHILD_DEADLINE_SECONDS": "100"}
    with running(tmp_path / "var", **RECIPES, **lease) as stack:
        operation_id = stack.submit(**CONFIG)
        stack.wait_step(operation_id, 60)
        for process in stack.processes("trainops.celery worker"):
            process.kill()
        stack.wait(operation_id, "COMPLETED")
        attempts = stack.get(f"operations/{operation_id}/attempts")
        assert [each["outcome"] for each in attempts] == ["completed", "lost"]
        (worker,) = [
            each for each in stack.get("workers") if each["status"] in ("AVAILABLE", "BUSY")
        ]
        assert worker["pid"] in {each.pid for each in stack.processes("trainops.celery worker")}
