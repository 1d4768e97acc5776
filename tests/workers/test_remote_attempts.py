"""Attempts over HTTP, call by call: what comes late, what is gone, and how long a lease lasts."""

import pytest

from apps.checkpoints import storage
from apps.checkpoints.models import Checkpoint
from apps.operations import remote_attempts, remote_files
from tests.operations import rows
from trainops.engines.manifest import verify
from trainops.errors import Refusal

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]
STATE, WEIGHTS = b'{"step": 3}', b"weights" * 100


class Upload:
    """The body of a PUT; something happens while it is read."""

    def __init__(self, content, meanwhile):
        self.content, self.meanwhile = content, meanwhile

    def read(self, size):
        self.meanwhile()
        content, self.content, self.meanwhile = self.content, b"", lambda: None
        return content


@pytest.fixture
def operation(worker, person):
    worker.register(kinds=["training"])
    return rows.submitted(person)


def commit(worker, attempt, directory, *files):
    path = f"{attempt}/checkpoints/{directory}/commit"
    return worker.data("POST", path, {"files": list(files)})["checkpoint_id"]


def saved(worker, attempt, step, *more):
    directory = worker.open(attempt, step)
    state = worker.send(attempt, directory, "state.json", b'{"step": %d}' % step)
    return directory, commit(worker, attempt, directory, state, *more)


@pytest.mark.parametrize("late", [b"wei", b"x" * len(WEIGHTS)], ids=["broken", "whole"])
def test_an_upload_that_comes_after_the_commit_changes_nothing(worker, operation, late):
    attempt = worker.claim()
    directory = worker.open(attempt, 3)

    def send_again_and_commit():
        files = [
            worker.send(attempt, directory, "state.json", STATE),
            worker.send(attempt, directory, "model.pt", WEIGHTS),
        ]
        commit(worker, attempt, directory, *files)

    owned = remote_attempts.owned(worker_id=worker.worker_id, operation_id=operation.pk, attempt=1)
    upload = Upload(late, send_again_and_commit)
    with pytest.raises(Refusal):
        remote_files.receive(owned, directory, "model.pt", upload, size_bytes=len(WEIGHTS))
    checkpoint = Checkpoint.objects.get(operation=operation)
    path = storage.directory(checkpoint.artifacts_path)
    verify(path, checkpoint.manifest_digest)
    assert {each.name for each in path.iterdir()} == {"manifest.json", "model.pt", "state.json"}


def test_a_broken_upload_leaves_what_was_sent_before(worker, operation):
    attempt = worker.claim()
    directory = worker.open(attempt, 3)
    weights = worker.send(attempt, directory, "model.pt", WEIGHTS)
    owned = remote_attempts.owned(worker_id=worker.worker_id, operation_id=operation.pk, attempt=1)
    with pytest.raises(remote_files.FileRefused, match="by its Content-Length"):
        remote_files.receive(
            owned, directory, "model.pt", Upload(b"wei", lambda: None), size_bytes=len(WEIGHTS)
        )
    state = worker.send(attempt, directory, "state.json", STATE)
    commit(worker, attempt, directory, state, weights)


def test_a_refused_commit_can_be_mended(worker, operation):
    attempt = worker.claim()
    directory = worker.open(attempt, 3)
    state = worker.send(attempt, directory, "state.json", STATE)
    wrong = state | {"blake3": "0" * 64}
    path = f"{attempt}/checkpoints/{directory}/commit"
    worker.refused(400, "CHECKPOINT_CORRUPTED", "POST", path, {"files": [wrong]})
    commit(worker, attempt, directory, worker.send(attempt, directory, "state.json", STATE))


def test_an_unchanged_file_outlives_the_checkpoint_that_brought_it(worker, operation):
    attempt = worker.claim()
    first = worker.open(attempt, 1)
    weights = worker.send(attempt, first, "model.pt", WEIGHTS) | {"home": first}
    commit(worker, attempt, first, worker.send(attempt, first, "state.json", STATE), weights)
    for step in range(2, 6):
        _, newest = saved(worker, attempt, step, weights)
    assert not Checkpoint.objects.filter(artifacts_path=f"{operation.pk}/{first}").exists()
    checkpoint = Checkpoint.objects.get(pk=newest)
    verify(storage.directory(checkpoint.artifacts_path), checkpoint.manifest_digest)


def test_a_file_that_is_nowhere_any_more_is_sent(worker, operation):
    attempt = worker.claim()
    first = worker.open(attempt, 1)
    weights = worker.send(attempt, first, "model.pt", WEIGHTS)
    commit(worker, attempt, first, worker.send(attempt, first, "state.json", STATE), weights)
    (storage.operation_directory(operation.pk) / first / "model.pt").unlink()
    second = worker.open(attempt, 2)
    files = [worker.send(attempt, second, "state.json", STATE), weights | {"home": first}]
    path = f"{attempt}/checkpoints/{second}/commit"
    _, error = worker.refused(400, "HOME_GONE", "POST", path, {"files": files})
    assert error["details"]["names"] == ["model.pt"]
    worker.send(attempt, second, "model.pt", WEIGHTS)
    commit(worker, attempt, second, *files)
