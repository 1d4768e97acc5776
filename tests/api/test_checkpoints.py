"""Checkpoints and files over HTTP."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.checkpoints import storage
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.serializers import CheckpointDetailSerializer, CheckpointSerializer
from apps.operations.lifecycle import State
from tests.api.answers import data, error
from tests.api.saved import WEIGHTS, damage, saved
from tests.operations.rows import in_state


@pytest.fixture
def operation(operator):
    return in_state(State.CANCELLED, operator.user)


@pytest.fixture
def checkpoint(operation):
    return saved(operation, epoch=3, val_loss=float("nan"), training_history=[1, 2])


def test_the_list_sums_up_the_state(operator, operation, checkpoint):
    response = operator.get("checkpoints", operation_id=operation.pk)
    (row,) = data(response)
    assert response.json()["total_count"] == 1
    assert row.keys() == CheckpointSerializer().fields.keys()
    assert row["state_summary"] == {"epoch": 3, "val_loss": "NaN", "progress_percent": 0.0}
    assert (row["unit"], row["place"]) == ("step", "epoch 3")
    assert (row["checkpoint_id"], row["checkpoint_type"]) == (checkpoint.pk, "cancellation")
    assert 0 <= row["age_days"] < 1


def test_the_list_can_be_narrowed_down(operator, operation, checkpoint):
    old = saved(operation, step=5, type="periodic", metric=None)
    Checkpoint.objects.filter(pk=old.pk).update(
        created_at=timezone.now() - timedelta(days=40), pinned=True
    )
    for query, expected in {
        "older_than_days=30": [old.pk],
        "older_than_days=50": [],
        "type=periodic": [old.pk],
        "pinned=true": [old.pk],
        "health=corrupted": [],
        "operation_id=op_x": [],
        "ordering=step": [old.pk, checkpoint.pk],
    }.items():
        rows = data(operator.client.get(f"/api/v1/checkpoints?{query}"))
        assert [row["checkpoint_id"] for row in rows] == expected, query
    problem = error(operator.get("checkpoints", older_than_days="x"), 400, "VALIDATION_ERROR")
    assert "older_than_days" in problem["details"]["fields"]
    problem = error(operator.get("checkpoints", type="weekly"), 400, "VALIDATION_ERROR")
    assert "allowed: periodic" in problem["details"]["fields"]["type"]


def test_one_with_its_whole_state_and_files(viewer, operation, checkpoint):
    row = data(viewer.get(f"checkpoints/{operation.pk}/{checkpoint.pk}"))
    assert row.keys() == CheckpointDetailSerializer().fields.keys()
    assert row["state"]["training_history"] == [1, 2]
    assert {file["name"] for file in row["artifacts"]} == {"state.json", "model.pt"}
    error(viewer.get(f"checkpoints/{operation.pk}/x"), 404, "CHECKPOINT_NOT_FOUND")
    error(viewer.get(f"checkpoints/op_x/{checkpoint.pk}"), 404, "OPERATION_NOT_FOUND")


def test_deleting_one_then_all(operator, operation, checkpoint, django_capture_on_commit_callbacks):
    other = saved(operation, step=5, type="periodic")
    with django_capture_on_commit_callbacks(execute=True):
        one = data(operator.delete(f"checkpoints/{operation.pk}/{checkpoint.pk}"))
    assert (one["num_checkpoints"], one["freed_bytes"]) == (1, checkpoint.artifacts_size_bytes)
    assert not storage.directory(checkpoint.artifacts_path).exists()
    assert storage.directory(other.artifacts_path).exists()
    error(
        operator.delete(f"checkpoints/{operation.pk}/{checkpoint.pk}"),
        404,
        "CHECKPOINT_NOT_FOUND",
    )
    assert data(operator.delete(f"checkpoints/{operation.pk}"))["num_checkpoints"] == 1
    assert not Checkpoint.objects.exists()
    error(operator.delete("checkpoints/op_x"), 404, "OPERATION_NOT_FOUND")


def test_results_and_pinned_checkpoints_are_spared_unless_named(operator, operation):
    final = saved(operation, step=40, type="final")
    pinned, other = saved(operation, step=20), saved(operation, step=30)
    operator.post(f"checkpoints/{operation.pk}/{pinned.pk}/pin")
    for num_deleted in (1, 0):
        answer = data(operator.delete(f"checkpoints/{operation.pk}"))
        assert answer["num_checkpoints"] == num_deleted
        assert {each["checkpoint_id"] for each in answer["kept"]} == {final.pk, pinned.pk}
        assert "Kept:" in answer["message"]
    assert not Checkpoint.objects.filter(pk=other.pk).exists()
    for each in (final, pinned):
        answer = data(operator.delete(f"checkpoints/{operation.pk}/{each.pk}"))
        assert (answer["num_checkpoints"], answer["kept"]) == (1, [])
    error(operator.delete(f"checkpoints/{operation.pk}"), 404, "CHECKPOINT_NOT_FOUND")


def test_a_verification_heals_what_is_whole_again(operator, operation, checkpoint):
    one = f"checkpoints/{operation.pk}/{checkpoint.pk}"
    damage(checkpoint)
    assert data(operator.post(f"{one}/verify"))["health"] == "corrupted"
    assert not data(operator.get(f"operations/{operation.pk}"))["is_resumable"]
    damage(checkpoint)  # the same bit again
    assert data(operator.post(f"{one}/verify"))["health"] == "healthy"
    assert data(operator.get(f"operations/{operation.pk}"))["is_resumable"]


def test_missing_files_are_unavailable_and_are_tried_again(operator, operation, checkpoint):
    one = f"checkpoints/{operation.pk}/{checkpoint.pk}"
    file = storage.directory(checkpoint.artifacts_path) / "model.pt"
    file.rename(file.with_name("elsewhere"))
    answer = data(operator.post(f"{one}/verify"))
    assert (answer["health"], answer["missing_artifacts"]) == ("unavailable", ["model.pt"])
    refused = operator.post(f"operations/{operation.pk}/resume")
    assert error(refused, 409, "CHECKPOINT_CORRUPTED")["details"]["missing_artifacts"] == [
        "model.pt"
    ]
    file.with_name("elsewhere").rename(file)
    assert data(operator.post(f"operations/{operation.pk}/resume"))["status"] == "RESUMING"


def test_a_storage_that_is_away_is_said_and_marks_nothing(
    operator, operation, checkpoint, settings
):
    settings.CHECKPOINT_ROOT.rename(settings.CHECKPOINT_ROOT.with_name("elsewhere"))
    for path in (
        f"checkpoints/{operation.pk}/{checkpoint.pk}/verify",
        f"operations/{operation.pk}/resume",
    ):
        error(operator.post(path), 503, "STORAGE_UNAVAILABLE")
    checkpoint.refresh_from_db()
    assert checkpoint.health == "healthy"
    assert not settings.CHECKPOINT_ROOT.exists()


def test_checkpoints_of_a_newer_database_are_offered_and_recovered(operator, viewer, operation):
    old, newer = saved(operation, step=10), saved(operation, step=20)
    Checkpoint.objects.filter(pk=newer.pk).delete()
    address = f"operations/{operation.pk}/recovery"
    (found,) = data(viewer.get(address))["unrecorded"]
    assert (found["attempt"], found["step"]) == (1, 20)
    error(viewer.post(address), 403, "PERMISSION_DENIED")
    answer = data(operator.post(address))
    assert (answer["checkpoint_ids"], answer["problems"]) == ([newer.pk], [])
    assert data(viewer.get(address))["unrecorded"] == []
    assert {old.pk, newer.pk} == {row["checkpoint_id"] for row in data(viewer.get("checkpoints"))}


def test_an_expiry_leaves_an_event_with_actor_and_bytes(admin, operation, checkpoint):
    old = timezone.now() - timedelta(days=40)
    Checkpoint.objects.update(created_at=old)
    data(admin.post("checkpoints/cleanup"))
    event = operation.events.first()
    assert (event.what, event.actor) == ("CHECKPOINTS_EXPIRED", admin.user.username)
    assert event.note == f"1 checkpoint, {checkpoint.artifacts_size_bytes} bytes"


def test_checkpoints_in_use_are_not_deleted(operator, operation, checkpoint):
    operator.post(f"operations/{operation.pk}/resume")
    for path in (f"checkpoints/{operation.pk}", f"checkpoints/{operation.pk}/{checkpoint.pk}"):
        problem = error(operator.delete(path), 409, "OPERATION_ACTIVE")
        assert problem["details"]["current_status"] == "RESUMING"
    assert Checkpoint.objects.count() == 1


def test_others_checkpoints_are_not_touched(viewer, colleague, operation, checkpoint):
    one = f"checkpoints/{operation.pk}/{checkpoint.pk}"
    for stranger in (viewer, colleague):
        error(stranger.delete(one), 403, "PERMISSION_DENIED")
        error(stranger.delete(f"checkpoints/{operation.pk}"), 403, "PERMISSION_DENIED")
        error(stranger.post(f"{one}/pin"), 403, "PERMISSION_DENIED")
    assert Checkpoint.objects.filter(pinned=False).count() == 1


def test_pinning(operator, operation, checkpoint):
    one = f"checkpoints/{operation.pk}/{checkpoint.pk}"
    assert data(operator.post(f"{one}/pin"))["pinned"] is True
    assert Checkpoint.objects.get().pinned
    assert data(operator.post(f"{one}/unpin"))["pinned"] is False
    assert not Checkpoint.objects.get().pinned


def test_verifying_finds_a_single_flipped_bit(operator, operation, checkpoint):
    path = f"checkpoints/{operation.pk}/{checkpoint.pk}/verify"
    assert data(operator.post(path))["health"] == "healthy"
    damage(checkpoint)
    found = data(operator.post(path))
    assert (found["health"], found["altered_artifacts"]) == ("corrupted", ["model.pt"])
    assert Checkpoint.objects.get().health == "corrupted"


def test_cleaning_up_is_for_admins_and_can_be_tried_first(
    operator, admin, operation, checkpoint, django_capture_on_commit_callbacks
):
    Checkpoint.objects.update(created_at=timezone.now() - timedelta(days=31))
    error(operator.post("checkpoints/cleanup"), 403, "PERMISSION_DENIED")
    tried = data(admin.post("checkpoints/cleanup", {"dry_run": True}))
    assert (tried["num_checkpoints"], tried["freed_bytes"]) == (1, checkpoint.artifacts_size_bytes)
    assert Checkpoint.objects.exists()
    assert data(admin.post("checkpoints/cleanup", {"older_than_days": 40}))["num_checkpoints"] == 0
    with django_capture_on_commit_callbacks(execute=True):
        done = data(admin.post("checkpoints/cleanup"))
    assert (done["num_checkpoints"], done["dry_run"]) == (1, False)
    assert not storage.directory(checkpoint.artifacts_path).exists()
    problem = error(
        admin.post("checkpoints/cleanup", {"older_than_days": -1}), 400, "VALIDATION_ERROR"
    )
    assert "older_than_days" in problem["details"]["fields"]


def test_the_result_is_the_final_checkpoint_else_the_newest_and_others_have_names(
    viewer, operation
):
    assert data(viewer.get(f"operations/{operation.pk}/artifacts")) == []
    best = saved(operation, step=5, metric=0.1)
    newest = saved(operation, step=10, type="periodic", metric=0.2)
    for asked, expected in [
        ({}, newest),
        *(
            ({"checkpoint_id": name}, named)
            for name, named in [("latest", newest), ("best", best), (best.pk, best)]
        ),
    ]:
        files = data(viewer.get(f"operations/{operation.pk}/artifacts", **asked))
        assert {file["checkpoint_id"] for file in files} == {expected.pk}, asked
    for name, expected in [("latest", newest), ("best", best)]:
        found = data(viewer.get(f"checkpoints/{operation.pk}/{name}"))
        assert found["checkpoint_id"] == expected.pk
    final = saved(operation, step=20, type="final", metric=0.3)
    files = data(viewer.get(f"operations/{operation.pk}/artifacts"))
    assert {file["checkpoint_id"] for file in files} == {final.pk}


def test_a_file_is_downloaded_as_it_was_saved(viewer, operation, checkpoint):
    files = data(viewer.get(f"operations/{operation.pk}/artifacts"))
    (model,) = [file for file in files if file["name"] == "model.pt"]
    response = viewer.client.get(model["url"])
    assert b"".join(response.streaming_content) == WEIGHTS
    assert response["Content-Length"] == str(len(WEIGHTS)) == str(model["size_bytes"])
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["Content-Disposition"] == 'attachment; filename="model.pt"'


@pytest.mark.parametrize("name", ["manifest.json", "..%2Fmodel.pt", "%2e%2e", "x" * 200, "model"])
def test_no_other_file_is_ever_read(viewer, operation, checkpoint, name):
    response = viewer.get(f"operations/{operation.pk}/artifacts/{name}")
    assert response.status_code == 404
    assert response.json()["error"]["code"] in ("ARTIFACT_NOT_FOUND", "NOT_FOUND")


def test_an_altered_file_is_not_handed_out(viewer, operation, checkpoint):
    damage(checkpoint)
    problem = error(
        viewer.get(f"operations/{operation.pk}/artifacts/model.pt"), 409, "CHECKPOINT_CORRUPTED"
    )
    assert problem["details"]["altered_artifacts"] == ["model.pt"]
    assert Checkpoint.objects.get().health == "corrupted"


def test_a_link_in_place_of_a_file_is_not_followed(viewer, operation, checkpoint, tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(WEIGHTS)
    model = storage.directory(checkpoint.artifacts_path) / "model.pt"
    model.unlink()
    model.symlink_to(secret)
    path = f"operations/{operation.pk}/artifacts/model.pt"
    error(viewer.get(path), 409, "CHECKPOINT_CORRUPTED")
