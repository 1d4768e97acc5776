"""A checkpoint's directory, carried to another installation: it goes on exactly there."""

import io
import json
import shutil

import pyarrow.parquet as pq
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command

from apps.checkpoints import storage
from apps.checkpoints.models import Checkpoint
from apps.datasets import services as datasets
from apps.operations.models import Operation
from apps.operations.requests import services
from tests import storages
from tests.api.conftest import signed_in
from tests.backtest import market
from tests.backtest.test_model import waves
from tests.operations.attempts import run
from tests.operations.test_supervisor import curve
from trainops.files import packed
from trainops.files.checks import Severity
from trainops.files.verify import verify

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
KEPT = {"keep_last": 1000, "keep_after_success": True}
CASES = {
    "training": {
        "recipe": "digits", "epochs": 3, "batch_size": 64, "scheduler": "cosine",
        "checkpoint": {"every_steps": 10, **KEPT},
    },
    "rl": {
        "recipe": "grid_corridor", "agents": 2, "environment_steps": 1200,
        "dqn": {"learning_starts": 100}, "replay": {"capacity": 2000},
        "checkpoint": {"every_steps": 150, **KEPT},
    },
    "federated": {
        "recipe": "crowd", "rounds": 2, "clients": 3, "local_epochs": 2, "batch_size": 6,
        "threads": 1, "optimizer": "adam", "checkpoint": {"every_steps": 2, **KEPT},
    },
    "backtest": {
        "recipe": "sma_crossover", "parameters": {"fast": 3, "slow": 8},
        "chunk_bars": 20, "checkpoint": {"every_steps": 40, "least_seconds": 0.0, **KEPT},
    },
}  # fmt: skip


@pytest.fixture(autouse=True)
def _installation(settings, tmp_path):
    move(settings, tmp_path / "first")


def move(settings, root):
    """Have a fresh database, and empty storages below `root`."""
    storages.place(settings, root)
    settings.DATA_DIR = root / "var"


def config_of(kind, api):
    """Return the case's config, its dataset uploaded here."""
    if kind != "backtest":
        return CASES[kind]
    file = io.BytesIO()
    pq.write_table(waves(400), file)
    file.seek(0)
    dataset = datasets.add_table(file=file, filename="waves.parquet", owner=api.user).pk
    return CASES[kind] | {"dataset": dataset}


def finals(operation):
    rows = Checkpoint.objects.get(operation=operation, type="final").manifest
    return {each["name"]: each["blake3"] for each in rows}


def middle(operation):
    """Return a checkpoint from about the middle."""
    rows = Checkpoint.objects.filter(operation=operation, type="periodic").order_by("step")
    return rows[len(rows) // 2]


def carried(checkpoint, target):
    """Copy its directory, as a person does."""
    return shutil.copytree(storage.directory(checkpoint.artifacts_path), target)


def take_in(api, directory, tmp_path, **changes):
    manifest = json.loads((directory / "manifest.json").read_text())
    file = tmp_path / f"{directory.name}.zip"
    file.unlink(missing_ok=True)
    packed.pack(directory, packed.names_in(directory), file)
    wanted = {"kind": manifest["kind"], "config": manifest["config"] | changes}
    upload = SimpleUploadedFile(directory.name, file.read_bytes())
    form = {"file": upload, "operation": json.dumps(wanted)}
    return api.client.post("/api/v1/operations/import", form)


@pytest.fixture
def compiled(tmp_path_factory):
    """Have numba's machine code on the disk: nobody renews the lease of a child that compiles."""
    market.run(market.walk(30), tmp_path_factory.mktemp("compiled"), recipe="sma_crossover")


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("kind", CASES)
def test_it_continues_to_the_identical_result(runtime, db, settings, tmp_path, kind):
    api = signed_in("otto", "operator")
    whole = run(runtime, services.submit(kind=kind, config=config_of(kind, api), owner=api.user))
    assert whole.state == "COMPLETED", whole.error
    chosen = middle(whole)
    expected, step, later = finals(whole), chosen.step, curve(whole)
    answer = api.post(f"checkpoints/{whole.pk}/{chosen.pk}/verify").json()["data"]
    assert (answer["health"], answer["level"]) == ("healthy", "ok"), answer["checks"]
    directory = carried(chosen, tmp_path / "carried")
    manifest = json.loads((directory / "manifest.json").read_text())
    assert manifest["config"] == whole.config
    assert manifest["inputs"].keys() == ({whole.config["dataset"]} if kind == "backtest" else set())

    call_command("flush", interactive=False, verbosity=0)
    move(settings, tmp_path / "second")
    api = signed_in("olga", "operator")
    config_of(kind, api)
    answer = take_in(api, directory, tmp_path)
    assert answer.status_code == 202, answer.content
    operation = services.get(answer.json()["data"]["id"])
    assert operation.step == step and Operation.objects.count() == 1
    event = operation.events.get(what="IMPORTED")
    assert event.note.startswith("carried, ")
    assert f"{operation.unit} {step}" in event.note
    done = run(runtime, operation)

    assert done.state == "COMPLETED", done.error
    assert finals(done) == expected
    assert curve(done) == [point for point in later if point[1] > step]


def refused(answer, status=400):
    assert answer.status_code == status, answer.content
    assert not Operation.objects.exclude(state="COMPLETED").exists()
    return answer.json()["error"]


@pytest.fixture
def source(runtime, db, tmp_path):
    api = signed_in("otto", "operator")
    whole = run(runtime, services.submit(kind="training", config=CASES["training"], owner=api.user))
    return api, carried(middle(whole), tmp_path / "carried")


def test_what_a_fork_may_change_may_be_changed_and_nothing_else(source, tmp_path):
    api, directory = source
    error = refused(take_in(api, directory, tmp_path, batch_size=32))
    assert error["code"] == "INVALID_CONFIG"
    assert "a fork keeps 64" in error["details"]["fields"]["batch_size"]
    assert take_in(api, directory, tmp_path, threads=1).status_code == 202


def test_altered_bytes_are_refused_and_nothing_is_left(source, tmp_path):
    api, directory = source
    content = bytearray((directory / "model.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (directory / "model.pt").write_bytes(content)
    assert refused(take_in(api, directory, tmp_path), 409)["code"] == "CHECKPOINT_CORRUPTED"
    (directory / "model.pt").unlink()
    assert refused(take_in(api, directory, tmp_path), 409)["code"] == "CHECKPOINT_CORRUPTED"


def test_one_of_another_kind_is_refused(source, tmp_path):
    api, directory = source
    manifest = json.loads((directory / "manifest.json").read_text()) | {"kind": "rl"}
    (directory / "manifest.json").write_text(json.dumps(manifest))
    form = {"kind": "training", "config": CASES["training"]}
    file = tmp_path / "packed.zip"
    packed.pack(directory, packed.names_in(directory), file)
    upload = {"file": SimpleUploadedFile("x", file.read_bytes()), "operation": json.dumps(form)}
    error = refused(api.client.post("/api/v1/operations/import", upload))
    assert "it is of kind 'rl', the operation of 'training'" in error["message"]


def test_a_private_one_is_refused_since_its_ledger_is_elsewhere(runtime, db, tmp_path):
    api = signed_in("otto", "operator")
    whole = run(
        runtime, services.submit(kind="federated", config=CASES["federated"], owner=api.user)
    )
    directory = carried(middle(whole), tmp_path / "carried")
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest["config"]["privacy"] |= {"mode": "sample", "noise_multiplier": 1.0}
    (directory / "manifest.json").write_text(json.dumps(manifest))
    error = refused(take_in(api, directory, tmp_path))
    assert "database of the other installation" in error["message"]


def test_a_path_is_verified_with_its_own_config(source):
    _, directory = source
    report = verify(directory)
    assert report.level is Severity.OK, report.checks
    assert "loaded into a fresh job of kind training" in report.checks[-1].detail
