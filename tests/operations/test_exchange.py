"""An operation that begins with another tool's file, and a checkpoint given out as one."""

import hashlib
import json
import os
import struct
import tracemalloc
import zipfile

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from apps.checkpoints import storage
from apps.checkpoints.models import Checkpoint
from apps.operations.attempts import work
from apps.operations.attempts.children import ForkServer
from apps.operations.models import Attempt, Operation
from apps.operations.requests import services
from apps.operations.requests.initial_checkpoints import Import
from apps.operations.scheduling.slots import Slots
from tests.api.conftest import signed_in
from tests.formats.originals import original, save, tree
from tests.formats.step_trainer import train
from tests.formats.test_rl_exchange import FITTING as RL_FITTING
from tests.operations.attempts import run
from tests.operations.releases import append, spent_by
from tests.parsing import parsed_configs
from tests.waiting import wait_until
from trainops.errors import DomainError
from trainops.files import packed
from trainops.files.verify import verify
from trainops.kinds.federated.account import Account
from trainops.kinds.federated.files.exchange import read_federated
from trainops.kinds.federated.releases import Release

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
FITTING = {
    "recipe": "foreign", "batch_size": 8, "epochs": 2, "optimizer": "adamw", "weight_decay": 0.01,
    "scheduler": "step", "scheduler_step_epochs": 1,
    "checkpoint": {"every_steps": 38, "keep_last": 100, "keep_after_success": True},
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _foreign():
    """The recipe whose network the other tool's training file is of."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            "TRAINOPS_RECIPES",
            f"{os.environ['TRAINOPS_RECIPES']},tests.formats.recipe:RECIPE,"
            "tests.federated.other_tool:RECIPE",
        )
        yield


@pytest.fixture(scope="module")
def forkserver(_foreign):
    forkserver = ForkServer()
    forkserver.open()
    wait_until(lambda: forkserver.is_ready)
    yield forkserver
    forkserver.close()


@pytest.fixture
def runtime(forkserver):
    runtime = work.WorkerRuntime()
    runtime.worker_id, runtime.forkserver = "worker-1", forkserver
    runtime.slots = Slots(count=1)
    return runtime


@pytest.fixture(autouse=True)
def _storage_of_its_own(settings, tmp_path):
    settings.CHECKPOINT_ROOT = tmp_path / "checkpoints"
    settings.DATA_DIR = tmp_path / "var"


@pytest.fixture
def operator(db):
    return signed_in("otto", "operator")


def take_in(api, path, submission=None, **config):
    """Import a file as a person does."""
    wanted = {"kind": "training", "config": FITTING | config} if submission is None else submission
    upload = SimpleUploadedFile(path.name, path.read_bytes())
    form = {"file": upload, "operation": json.dumps(wanted)}
    return api.client.post("/api/v1/operations/import", form)


@pytest.mark.exhaustive
def test_the_config_of_an_import_is_validated_once(operator, tmp_path, monkeypatch):
    parsed = parsed_configs(monkeypatch)
    assert take_in(operator, original("training", tmp_path)).status_code == 202
    assert [len(each) for each in parsed.values()] == [1, 1]


def test_a_file_that_its_digest_was_not_written_for_is_refused(operator, tmp_path):
    path = original("training", tmp_path)
    wanted = {"operation": json.dumps({"kind": "training", "config": FITTING})}

    def answer(digest):
        upload = SimpleUploadedFile(path.name, path.read_bytes())
        form = {"file": upload, "digest": digest, **wanted}
        return operator.client.post("/api/v1/operations/import", form)

    refused = answer(f"{'0' * 64}\n")
    assert refused.status_code == 400 and "says 0000" in refused.json()["error"]["message"]
    assert answer("no digest").status_code == 400
    assert Operation.objects.count() == 0
    right = hashlib.sha256(path.read_bytes()).hexdigest()
    assert answer(f"{right}  {path.name}\n").status_code == 202


def give_out(api, operation, target, **query):
    answer = api.get(f"operations/{operation.pk}/export", **query)
    assert answer.status_code == 200, answer.content
    target.write_bytes(b"".join(answer.streaming_content))
    return target


def final(operation):
    rows = Checkpoint.objects.get(operation=operation, type="final").manifest
    return {each["name"]: each["blake3"] for each in rows}


def test_the_other_tools_file_is_imported_and_trained_to_the_end(runtime, operator, tmp_path):
    answer = take_in(operator, original("training", tmp_path))
    assert answer.status_code == 202, answer.content
    operation = services.get(answer.json()["data"]["id"])
    assert (operation.state, operation.step) == ("PENDING", 25)
    assert Checkpoint.objects.get().attempt == 0
    event = operation.events.get(what="IMPORTED")
    assert event.actor == "otto" and event.note.startswith("training.pt, epoch 0, step 25; ")
    assert "3 loaders" in event.note
    done = run(runtime, operation)
    assert (done.state, done.step) == ("COMPLETED", 76)
    attempt = Attempt.objects.get()
    assert (attempt.number, attempt.from_step) == (1, 25)
    assert verify(storage.directory(Checkpoint.objects.get(type="final").artifacts_path)).passed
    assert not list((tmp_path / "var" / "uploads").iterdir())


@pytest.mark.usefixtures("own_process")
def test_what_goes_out_and_comes_back_ends_with_the_same_bits(runtime, operator, tmp_path):
    straight = run(runtime, services.submit(kind="training", config=FITTING, owner=operator.user))
    middle = Checkpoint.objects.get(operation=straight, step=38)  # an epoch's end
    path = give_out(operator, straight, tmp_path / "file.ckpt", checkpoint_id=middle.pk)
    assert verify(path).passed
    detour = services.get(take_in(operator, path).json()["data"]["id"])
    assert detour.step == 38
    run(runtime, detour)
    one, other = final(straight), final(detour)
    assert one["model.pt"] == other["model.pt"] and one["optimizer.pt"] == other["optimizer.pt"]


def sent(directory, target):
    """Pack a directory as the command line does."""
    packed.pack(directory, packed.names_in(directory), target)
    return target


def test_a_directory_of_another_tool_is_imported_and_continues(runtime, operator, tmp_path):
    train(tmp_path / "theirs", epochs=1)
    path = sent(tmp_path / "theirs" / "recovery_checkpoint", tmp_path / "recovery_checkpoint")
    answer = take_in(operator, path, scheduler="none")
    assert answer.status_code == 202, answer.content
    operation = services.get(answer.json()["data"]["id"])
    assert operation.step == 32
    assert operation.events.get(what="IMPORTED").note.startswith(
        "recovery_checkpoint, epoch 0, step 32"
    )
    assert run(runtime, operation).step == 76
    assert not list((tmp_path / "var" / "uploads").iterdir())


def test_a_model_alone_is_imported_as_a_warm_start(runtime, operator, tmp_path):
    path = save(tree("training")["model_state_dict"], tmp_path / "model.pt")
    answer = take_in(operator, path)
    assert answer.status_code == 202, answer.content
    operation = services.get(answer.json()["data"]["id"])
    assert operation.step == 0
    assert "the file holds weights only" in operation.events.get(what="IMPORTED").note
    assert run(runtime, operation).step == 76


def test_a_directory_with_a_missing_file_is_refused_and_nothing_is_left(operator, tmp_path):
    train(tmp_path / "theirs", epochs=1)
    (tmp_path / "theirs" / "last_checkpoint" / "pytorch_model.bin").unlink()
    path = sent(tmp_path / "theirs" / "last_checkpoint", tmp_path / "last_checkpoint")
    error = refused(take_in(operator, path), "UNUSABLE_FILE")
    assert "pytorch_model.bin is missing" in error["message"]
    assert not list((tmp_path / "var" / "uploads").iterdir())


def refused(answer, code):
    assert answer.status_code == 400, answer.content
    error = answer.json()["error"]
    assert error["code"] == code, error
    assert not Operation.objects.exists() and not list(storage.stored())
    return error


def test_a_file_of_another_format_is_refused_and_nothing_is_left(operator, tmp_path):
    error = refused(take_in(operator, original("rl", tmp_path)), "UNUSABLE_FILE")
    assert "training" in error["message"]


def test_a_file_of_other_shapes_is_refused(operator, tmp_path):
    answer = take_in(operator, original("training", tmp_path), parameters={"width": 21})
    assert "fc1" in refused(answer, "INCOMPATIBLE_FILE")["message"]


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_what_would_execute_is_refused_and_named(operator, tmp_path):
    proof = tmp_path / "executed"
    path = save(tree("training") | {"model_state_dict": Bomb(proof)}, tmp_path / "file.ckpt")
    assert "posix.mkdir" in refused(take_in(operator, path), "UNUSABLE_FILE")["message"]
    assert not proof.exists()


def archive_of_entries(path, num_entries, *, version=20):
    """Write a zip that is only a central directory: for each entry a reader makes an object."""
    entry = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, version, *[0] * 7, 1, *[0] * 6) + b"a"
    content = entry * num_entries
    size = len(content)
    end_64 = (44, 45, 45, 0, 0, num_entries, num_entries, size, 0)
    content += struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", *end_64)
    content += struct.pack("<4sIQI", b"PK\x06\x07", 0, size, 1)
    content += struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, *[2**16 - 1] * 2, *[2**32 - 1] * 2, 0)
    path.write_bytes(content)
    return path


def test_the_web_process_reads_no_archive(operator, tmp_path):
    """It would take 360 MiB for 45 MiB of entries, and an error for a version that none has."""
    file = archive_of_entries(tmp_path / "entries.zip", 100_000)
    tracemalloc.start()
    with pytest.raises(DomainError) as refused:
        services.submit(
            kind="training",
            config=FITTING,
            owner=operator.user,
            initial_checkpoint=Import(file, ""),
        )
    assert tracemalloc.get_traced_memory()[1] < file.stat().st_size
    tracemalloc.stop()
    assert refused.value.code == "UNUSABLE_FILE"
    answer = take_in(operator, archive_of_entries(tmp_path / "version.zip", 1, version=99))
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "UNUSABLE_FILE")


def test_a_wrong_config_is_reported_before_the_file_is_read(operator, tmp_path):
    path = original("training", tmp_path)
    error = refused(take_in(operator, path, epochs=-1), "INVALID_CONFIG")
    assert "epochs" in error["details"]["fields"]
    assert "operation" in str(refused(take_in(operator, path, "no"), "VALIDATION_ERROR"))


def test_who_may_only_look_may_not_import(tmp_path):
    viewer = signed_in("vera", "viewer")
    assert take_in(viewer, original("training", tmp_path)).status_code == 403
    assert not Operation.objects.exists()


def test_an_altered_checkpoint_is_not_exported(runtime, operator, tmp_path):
    operation = run(runtime, services.submit(kind="training", config=FITTING, owner=operator.user))
    directory = storage.directory(Checkpoint.objects.get(type="final").artifacts_path)
    content = bytearray((directory / "model.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (directory / "model.pt").write_bytes(content)
    answer = operator.get(f"operations/{operation.pk}/export")
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "CHECKPOINT_CORRUPTED"


@pytest.mark.exhaustive
def test_a_file_of_agents_is_imported_continues_and_is_exported(operator, runtime, tmp_path):
    path = original("rl", tmp_path)
    wanted = {"kind": "rl", "config": {**RL_FITTING, "environment_steps": 260}}
    answer = take_in(operator, path, wanted)
    assert answer.status_code == 202, answer.content
    operation = Operation.objects.get(pk=answer.json()["data"]["id"])
    assert operation.step == 240 and operation.kind == "rl"
    imported = operation.events.get(what="IMPORTED").note
    assert "step 240" in imported and "epsilon: 0.99 in the file" in imported
    run(runtime, operation)
    operation.refresh_from_db()
    assert operation.state == "COMPLETED" and operation.step == 260
    answer = operator.get(f"operations/{operation.pk}/export")
    assert 'filename="checkpoint_ep0000' in answer["Content-Disposition"]
    given = tmp_path / "given.pt"
    given.write_bytes(b"".join(answer.streaming_content))
    assert verify(given).passed
    digest = hashlib.sha256(given.read_bytes()).hexdigest()
    kept = operator.get(f"operations/{operation.pk}/export")
    assert answer["X-Digest"] == kept["X-Digest"] == digest
    both = operator.get(f"operations/{operation.pk}/export", packed=True)
    assert "X-Digest" not in both
    kept.close()
    both.close()
    packed = give_out(operator, operation, tmp_path / "packed.zip", packed=True)
    with zipfile.ZipFile(packed) as archive:
        name, digest = archive.namelist()
        assert name.startswith("checkpoint_ep0000") and digest == f"{name}.sha256"
        archive.extractall(tmp_path / "unpacked")
    assert (tmp_path / "unpacked" / name).read_bytes() == given.read_bytes()
    found = verify(tmp_path / "unpacked" / name)
    assert found.passed and "nothing to compare with" not in str(found)
    saved = Checkpoint.objects.get(operation=operation, type="final")
    answer = operator.client.get(f"/operations/{operation.pk}/agents/{saved.pk}.zip")
    assert answer.status_code == 200 and f'filename="{name}.zip"' in answer["Content-Disposition"]
    (tmp_path / "page.zip").write_bytes(b"".join(answer.streaming_content))
    with zipfile.ZipFile(tmp_path / "page.zip") as archive:
        assert archive.namelist() == [name, digest]
    answer = operator.client.get(f"/operations/{operation.pk}/agents/{saved.pk}0.zip")
    assert answer.status_code == 404
    answer = operator.get(f"operations/{operation.pk}/export", agent=1)
    assert answer.status_code == 400 and "share one" in answer.json()["error"]["message"]


def test_a_file_of_agents_that_does_not_fit_is_refused(operator, tmp_path):
    config = {**RL_FITTING, "network": {"hidden_sizes": [8]}}
    answer = take_in(operator, original("rl", tmp_path), {"kind": "rl", "config": config})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "INCOMPATIBLE_FILE"
    assert "q_network has" in answer.json()["error"]["message"]
    assert not Operation.objects.exists()


FEDERATED = {
    "recipe": "other_tool", "rounds": 3, "clients": 2, "local_epochs": 5, "batch_size": 6,
    "learning_rate": 0.001, "momentum": 0.9, "monitor": "val_dice", "mode": "max", "threads": 1,
    "privacy": {"mode": "sample", "noise_multiplier": 2.0},
}  # fmt: skip


def test_a_federated_file_is_imported_continues_and_is_exported_again(runtime, operator, tmp_path):
    wanted = {"kind": "federated", "config": FEDERATED}
    answer = take_in(operator, original("federated_mid_round", tmp_path), wanted)
    assert answer.status_code == 202, answer.content
    operation = services.get(answer.json()["data"]["id"])
    assert operation.step in (20, 23, 28)
    carried, under_way = spent_by(operation.pk)
    note = operation.events.get(what="IMPORTED").note
    assert carried.carried > 14 and "epsilon 14.2" in note
    assert under_way.carried > 9 and "privacy: round in progress: epsilon 9.1" in note
    middle = give_out(operator, operation, tmp_path / "again.pt")
    assert read_federated(middle).round.total == 3
    done = run(runtime, operation)
    assert (done.state, done.step) == ("COMPLETED", 30), done.error
    assert done.result["privacy"]["epsilon"] > carried.carried + under_way.carried
    files = {which: give_out(operator, done, tmp_path / f"{which}.pt", which=which)
             for which in ("last", "best")}  # fmt: skip
    for path in files.values():
        assert verify(path).passed
    assert read_federated(files["last"]).round.status == "completed"
    assert read_federated(files["best"]).round.current == done.result["best"]["round"]
    left = Release(noise="f" * 32, step=28, round=3, client=1, level="sample",
                 noise_multiplier=1.0, sample_rate=0.5, steps=400)  # fmt: skip
    append(operation.pk, 1, [left])  # on a way that was left
    spent = spent_by(operation.pk)
    account = Account(done.config["privacy"]["delta"])
    account.add(spent)
    for which in ("last", "best"):
        path = give_out(operator, done, tmp_path / f"all-{which}.pt", which=which)
        figure = read_federated(path).privacy.cumulative_sample_epsilon
        assert figure == account.epsilon > done.result["privacy"]["epsilon"]


def test_of_one_without_a_result_the_newest_is_exported_and_it_says_which(runtime, operator):
    done = run(runtime, services.submit(kind="training", config=FITTING, owner=operator.user))
    Checkpoint.objects.filter(type="final").update(type="cancellation")
    newest, *_, oldest = done.checkpoints.newest_first()
    done.checkpoints.update(is_best=False)
    done.checkpoints.filter(pk=oldest.pk).update(is_best=True)
    for query, expected in [
        ({}, newest),
        ({"which": "last"}, newest),
        ({"which": "best"}, oldest),
        ({"checkpoint_id": "latest"}, newest),
        ({"checkpoint_id": "best"}, oldest),
        ({"checkpoint_id": oldest.pk}, oldest),
    ]:
        answer = operator.get(f"operations/{done.pk}/export", **query)
        assert answer["X-Checkpoint"] == f"{expected.pk}; {expected}", query
        answer.close()
    done.checkpoints.update(is_best=False)
    answer = operator.get(f"operations/{done.pk}/export", which="best")
    assert answer.status_code == 404 and "'best'" in answer.json()["error"]["message"]
