"""Google Cloud Storage and Azure, by their own libraries and emulators, where these are installed.

The libraries are those of the extras `gcs` and `azure`; the emulators `gcp-storage-emulator` (PyPI)
and `azurite` (npm). They are no dependencies: the one brings old ones, the other needs Node.js.
"""

import shutil
import sys
import threading
import time
from contextlib import suppress
from importlib.util import find_spec

import httpx
import pytest

from apps.checkpoints import copies, place, remote, storage
from apps.checkpoints.models import Checkpoint
from apps.checkpoints.removals import REMOVALS
from apps.checkpoints.trying import StorageFailed
from apps.operations.requests import services
from apps.operations.scheduling import readiness
from tests.api.conftest import signed_in
from tests.checkpoints.conftest import serving
from tests.checkpoints.test_remote import staged, upload, uploaded
from tests.checkpoints.test_remote_runs import assert_identical, cancelled
from tests.operations import rows
from tests.operations.attempts import Running, run, submit
from trainops import checkpoint_storage
from trainops.runtime.checkpoint.manifest import read_manifest
from trainops.runtime.errors import CheckpointCorrupted

pytestmark = [
    pytest.mark.slow, pytest.mark.whole, pytest.mark.django_db(transaction=True),
    pytest.mark.filterwarnings("ignore::ImportWarning"),  # Google's, of its other protocol
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]  # fmt: skip
ACCOUNT = "devstoreaccount1"  # of every Azurite, as its key
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def is_installed(*modules):
    try:
        return all(find_spec(each) for each in modules)
    except ModuleNotFoundError:
        return False


@pytest.fixture(scope="module")
def google(tmp_path_factory):
    if not is_installed("google.cloud.storage", "gcp_storage_emulator"):
        pytest.skip("google-cloud-storage and gcp-storage-emulator are not installed")
    log = tmp_path_factory.mktemp("google") / "log"
    command = [sys.executable, "-m", "gcp_storage_emulator", "start", "--host=127.0.0.1",
               "--in-memory", "--default-bucket=kept", "--port"]  # fmt: skip
    with serving(command, log) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def azure(tmp_path_factory):
    azurite = shutil.which("azurite-blob")
    if not is_installed("azure.storage.blob") or azurite is None:
        pytest.skip("azure-storage-blob and azurite are not installed")
    directory = tmp_path_factory.mktemp("azure")
    command = [azurite, "--location", directory, "--skipApiVersionCheck", "--blobPort"]
    with serving(command, directory / "log") as port:
        yield f"http://127.0.0.1:{port}/{ACCOUNT}"


@pytest.fixture(params=["google", "azure"])
def cloud(request, settings, monkeypatch, tmp_path):
    """Checkpoints in a bucket of one of them."""
    address = request.getfixturevalue(request.param)
    settings.CHECKPOINT_ROOT = tmp_path / "first" / "checkpoints"
    if request.param == "google":
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", address)
        chosen = "gs://kept/of/tests?project_id=tests"
    else:
        connection = (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
            f"BlobEndpoint={address};"
        )
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection)
        chosen = f"azure://kept/of/tests?account_name={ACCOUNT}"
        _make_container(connection)
    settings.CHECKPOINT_BUCKET = checkpoint_storage.parse(chosen)
    yield remote.bucket().objects.store
    REMOVALS.join()
    store = remote.bucket().objects.store
    for name in [each.name for each in store.all()]:
        store.remove(name)
    remote._connected.cache_clear()
    remote.quick.cache_clear()


def _make_container(connection):
    from azure.core.exceptions import ResourceExistsError
    from azure.storage.blob import BlobServiceClient

    with suppress(ResourceExistsError):
        BlobServiceClient.from_connection_string(connection).create_container("kept")


@pytest.fixture(params=[(), (b"k" * 32,)], ids=["plain", "encrypted"])
def secret_keys(settings, request):
    settings.CHECKPOINT_SECRET_KEYS = request.param
    return request.param


def test_a_checkpoint_goes_there_and_back(cloud, secret_keys, settings, tmp_path):
    path, digest = staged(rows.submitted())
    before = {each.name: each.read_bytes() for each in storage.directory(path).iterdir()}
    upload(path)
    upload(path)  # again, as after an answer that was lost
    (found,) = remote.bucket().stored()
    assert (found.artifacts_path, found.is_whole) == (path, True)
    assert found.size_bytes == sum(map(len, before.values()))
    assert time.time() - found.changed_at < 600
    settings.CHECKPOINT_ROOT = tmp_path / "second" / "checkpoints"
    remote.bucket().download(path, digest, threading.Event())
    directory = storage.directory(path)
    assert {each.name: each.read_bytes() for each in directory.iterdir()} == before
    artifacts_of = read_manifest(directory).artifacts
    remote.bucket().look(path, artifacts_of)
    remote.bucket().verify(path, digest)
    remote.bucket().objects.remove(f"{path}/model.pt")
    remote.bucket().objects.remove(f"{path}/model.pt")  # nothing happens
    for call in (
        lambda: remote.bucket().look(path, artifacts_of),
        lambda: remote.bucket().verify(path, digest),
    ):
        with pytest.raises(CheckpointCorrupted) as refusal:
            call()
        assert refusal.value.missing == ["model.pt"]
    remote.bucket().remove(found.names)
    assert remote.bucket().stored() == []


def test_what_is_removed_while_it_is_listed_is_left_out(cloud):
    path, _ = staged(rows.submitted())
    upload(path)
    listing = remote.bucket().objects.all(f"{path}/")
    first = next(listing).name
    names = {f"{path}/{each}" for each in ("model.pt", "state.json", "manifest.json")} - {first}
    for name in names:
        remote.bucket().objects.remove(name)
    assert list(listing) == []


def test_a_person_gets_the_bytes(cloud, secret_keys, settings, tmp_path):
    """Through web where it is encrypted, or the credentials cannot sign, as a machine's account."""
    checkpoint = uploaded(rows.submitted())
    content = (storage.directory(checkpoint.artifacts_path) / "model.pt").read_bytes()
    settings.CHECKPOINT_ROOT = tmp_path / "second" / "checkpoints"
    address = f"/api/v1/operations/{checkpoint.operation_id}/artifacts/model.pt"
    response = signed_in("vera", "viewer").client.get(address)
    if settings.CHECKPOINT_BUCKET.scheme == "azure" and not secret_keys:
        assert httpx.get(response["Location"]).content == content
    else:
        assert response.status_code == 200 and b"".join(response) == content


def test_the_storage_is_known_and_ready(cloud):
    storage_id = place.require()
    assert place.here().read_id() == storage_id
    assert readiness._storage(readiness._expected_storage()) == ""


def test_a_bucket_that_is_not_there_is_not_taken_for_missing_files(cloud, settings):
    checkpoint = uploaded(rows.submitted())
    chosen = settings.CHECKPOINT_BUCKET
    settings.CHECKPOINT_BUCKET = checkpoint_storage.Bucket(
        chosen.scheme, "another", chosen.prefix, chosen.options
    )
    storage.remove(checkpoint.artifacts_path)
    with pytest.raises(StorageFailed):
        copies.make_local(checkpoint.artifacts_path, checkpoint.manifest_digest, threading.Event())
    with pytest.raises(StorageFailed):
        remote.bucket().has(f"{checkpoint.artifacts_path}/manifest.json")
    settings.CHECKPOINT_BUCKET = chosen
    checkpoint.refresh_from_db()
    assert checkpoint.health == Checkpoint.Health.HEALTHY


def test_a_machine_with_an_empty_disk_continues_to_the_identical_result(
    cloud, secret_keys, runtime, person, settings, tmp_path
):
    whole = run(runtime, submit(epochs=20))
    cancelling = submit(step_seconds=0.04, epochs=20, checkpoint={"every_epochs": 1000})
    operation = cancelled(runtime, person, Running(runtime, cancelling).until_step(10))
    services.resume(operation_id=operation.pk, actor=person)
    settings.CHECKPOINT_ROOT = tmp_path / "second" / "checkpoints"
    resumed = run(runtime, operation)
    assert resumed.attempts.first().from_step > 0
    assert_identical(resumed, whole)
