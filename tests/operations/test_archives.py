"""All files of an operation as one zip, written while it is sent."""

import io
import json
import zipfile

import pytest
from django.test import Client

from apps.checkpoints import storage
from apps.checkpoints.models import Checkpoint
from apps.operations.files import archives, exports
from apps.operations.files.archives import OperationArchive
from tests.api.saved import WEIGHTS, saved
from tests.pages import making
from trainops.concurrency_limit import ServerBusy
from trainops.errors import DomainError

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


@pytest.fixture
def ana(settings, tmp_path):
    settings.CHECKPOINT_ROOT = tmp_path / "checkpoints"
    settings.DATA_DIR = tmp_path
    return making.person("ana", "operator")


@pytest.fixture
def operation(ana):
    made = making.operation(ana, "COMPLETED", name="söme name")
    making.curve(made)
    making.log(made, "a line\n")
    saved(made, step=10, type="periodic")
    saved(made, step=20, type="final")
    return made


def opened(archive):
    return zipfile.ZipFile(io.BytesIO(b"".join(archive)))


def path_of(checkpoint, name):
    return storage.directory(checkpoint.artifacts_path) / name


def test_it_holds_what_single_downloads_give(operation):
    with opened(OperationArchive(operation, person="ana")) as packed:
        assert packed.testzip() is None
        names = [name.removeprefix(f"{operation.pk}/") for name in packed.namelist()]
        final = "a0001-s0000000020-final"
        assert names == [
            f"{final}/manifest.json", f"{final}/state.json", f"{final}/model.pt",
            "operation.json", "log.txt", "points.csv",
        ]  # fmt: skip
        assert packed.read(f"{operation.pk}/{final}/model.pt") == WEIGHTS
        row = json.loads(packed.read(f"{operation.pk}/operation.json"))
        assert (row["name"], row["config"]) == ("söme name", operation.config)
        assert packed.read(f"{operation.pk}/log.txt") == b"--- attempt 1 ---\na line\n"
        lines = packed.read(f"{operation.pk}/points.csv").decode().splitlines()
        assert len(lines) == 1 + operation.points.count()


def test_files_of_checkpoints_are_stored_as_they_are_text_is_compressed(operation):
    with opened(OperationArchive(operation, person="ana")) as packed:
        types = {info.filename.rpartition("/")[2]: info.compress_type for info in packed.filelist}
    assert types["model.pt"] == zipfile.ZIP_STORED
    assert types["points.csv"] == types["log.txt"] == zipfile.ZIP_DEFLATED


def test_an_unfinished_operation_gives_its_best_and_its_latest_checkpoint(ana):
    operation = making.operation(ana, "RUNNING")
    best = saved(operation, step=5, type="periodic", metric=0.1)
    for step in (10, 15):
        saved(operation, step=step, type="periodic", metric=0.9)
    chosen = archives.checkpoints_of(operation.pk)
    assert {each.step for each in chosen} == {5, 15}
    assert best in chosen


def test_exports_that_are_kept_are_in_it(operation, monkeypatch):
    for number in (1, 2):
        directory = exports._root() / operation.pk / f"digest{number}"
        directory.mkdir(parents=True)
        (directory / exports.NAME).write_text("model.onnx")
        (directory / exports.CONTENT).write_bytes(b"%d" % number)
    with opened(OperationArchive(operation, person="ana")) as packed:
        assert packed.read(f"{operation.pk}/exports/model.onnx") == b"1"
        assert packed.read(f"{operation.pk}/exports/2-model.onnx") == b"2"


def test_large_files_and_long_archives_have_sizes_of_64_bits(operation, monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 1000)
    content = b"".join(OperationArchive(operation, person="ana"))
    assert b"PK\x06\x06" in content  # the end of a ZIP64
    monkeypatch.undo()
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        assert packed.testzip() is None


def test_a_damaged_first_file_is_refused_and_its_checkpoint_marked(operation):
    final = Checkpoint.objects.get(type="final")
    path_of(final, "state.json").write_bytes(b"{}")
    with pytest.raises(DomainError) as refused:
        OperationArchive(operation, person="ana")
    assert refused.value.code == "CHECKPOINT_CORRUPTED"
    final.refresh_from_db()
    assert final.health == Checkpoint.Health.CORRUPTED


def test_a_file_that_is_found_damaged_later_cuts_the_archive_off(operation, monkeypatch):
    monkeypatch.setattr(archives, "BLOCK_BYTES", 1)
    model = path_of(Checkpoint.objects.get(type="final"), "model.pt")
    model.write_bytes(WEIGHTS[:-1] + b"!")
    archive = OperationArchive(operation, person="ana")
    sent = []
    with pytest.raises(DomainError):
        sent += archive
    content = b"".join(sent)
    assert WEIGHTS[:1000] not in content
    assert not zipfile.is_zipfile(io.BytesIO(content))


def test_one_at_a_time_for_each_person_and_an_interrupted_one_leaves_nothing(
    operation, monkeypatch, tmp_path
):
    monkeypatch.setattr(archives, "BLOCK_BYTES", 1)
    OperationArchive(operation, person="ana").close()
    before = sorted(tmp_path.rglob("*"))
    archive = OperationArchive(operation, person="ana")
    with pytest.raises(ServerBusy):
        OperationArchive(operation, person="ana")
    OperationArchive(operation, person="ben").close()
    next(archive)
    archive.close()
    assert opened(OperationArchive(operation, person="ana")).testzip() is None
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("path", ["/operations/{}/archive.zip", "/api/v1/operations/{}/archive"])
def test_page_and_api_give_it_to_those_who_may_see_the_operation(operation, ana, path):
    client, stranger = Client(), Client()
    client.force_login(ana)
    stranger.force_login(making.person("stranger", None))
    response = client.get(path.format(operation.pk))
    assert response["Content-Type"] == "application/zip"
    assert f'filename="{operation.pk}.zip"' in response["Content-Disposition"]
    with zipfile.ZipFile(io.BytesIO(response.getvalue())) as packed:
        assert packed.testzip() is None
    assert stranger.get(path.format(operation.pk)).status_code == 403
    assert Client().get(path.format(operation.pk)).status_code in (302, 401)
    assert client.get(path.format("op_training_no_such")).status_code == 404
