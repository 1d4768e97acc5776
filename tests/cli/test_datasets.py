"""The group `datasets` of the command line."""

import pytest

from apps.datasets.directories import child, registration
from apps.datasets.models import Dataset, Upload
from apps.datasets.uploads import files
from trainops import dataset_buckets
from trainops.cli import uploading
from trainops.client.api import Api
from trainops.client.problems import ExitCode, Unreachable

pytestmark = pytest.mark.slow


@pytest.fixture
def photos(settings, tmp_path, monkeypatch):
    monkeypatch.setattr(registration, "call", lambda module, request, _: child.answer(request))
    settings.DATASET_ROOTS = (tmp_path,)
    root = tmp_path / "photos"
    for label in ("cat", "dog"):
        (root / label).mkdir(parents=True)
        (root / label / "1.png").write_bytes(b"")
    return root


def test_a_directory_is_added_listed_and_verified(cli, photos, monkeypatch):
    monkeypatch.chdir(photos)
    added = cli("datasets", "add", ".", "--name", "Photos")
    assert added.exit_code == ExitCode.OK
    dataset_id = added.stdout.strip()
    assert "Photos: Images in class folders, 2 files" in added.stderr and "cat: 1" in added.stderr
    assert dataset_id in cli("datasets", "ls").stdout
    assert cli("datasets", "verify", dataset_id).stdout == f"{dataset_id} is unchanged.\n"
    wrong = cli("datasets", "verify", dataset_id, "--fraction", "2")
    assert wrong.exit_code == ExitCode.USAGE
    assert "fraction: got 2.0; allowed: above 0 and at most 1" in wrong.stderr
    sample = cli("datasets", "verify", dataset_id, "--sample", "1", "--seed", "7")
    assert sample.stdout == f"{dataset_id} is unchanged in the sample.\n"
    assert "Read 0 of" not in sample.stderr and "drawn with --seed 7" in sample.stderr
    (photos / "cat" / "1.png").unlink()
    changed = cli("datasets", "verify", dataset_id)
    assert changed.exit_code == ExitCode.FAILED and "cat/1.png is missing" in changed.stderr


def test_a_refusal_says_what_is_allowed(cli, photos, tmp_path):
    refused = cli("datasets", "add", "/etc")
    assert refused.exit_code == ExitCode.FAILED
    assert f"allowed: directories below {tmp_path}" in refused.stderr


def test_a_prefix_of_a_bucket_is_sent_as_it_is_given(cli, settings):
    given = {dataset_buckets.VARIABLE: "s3://data/shared"}
    settings.DATASET_BUCKETS = dataset_buckets.read(given)
    refused = cli("datasets", "add", "s3://data/other/photos")
    assert refused.exit_code == ExitCode.FAILED
    problem = "got 's3://data/other/photos'; allowed: prefixes below s3://data/shared"
    assert problem in " ".join(refused.stderr.split())


@pytest.fixture
def table(tmp_path, monkeypatch, in_process):
    """A CSV file of 10 parts, the last one shorter."""
    monkeypatch.setattr(uploading, "PART_BYTES", 100)
    monkeypatch.setattr(uploading, "POLL_SECONDS", 0)
    path = tmp_path / "large.csv"
    path.write_text("number\n" + "".join(f"{number:06d}\n" for number in range(130)))
    assert 900 < path.stat().st_size < 1000
    return path


@pytest.fixture
def offsets(monkeypatch):
    """The offset of each part that is sent; `offsets.errors` maps its number to an error after it,
    or, if negative, before it."""

    class Offsets(list):
        def __init__(self):
            super().__init__()
            self.errors = {}

    sent, send_part = Offsets(), Api.send_part

    def send(api, path, offset, part):
        sent.append(offset)
        if error := sent.errors.get(-len(sent)):
            raise error
        result = send_part(api, path, offset, part)
        if error := sent.errors.get(len(sent)):
            raise error
        return result

    monkeypatch.setattr(Api, "send_part", send)
    return sent


def test_a_file_is_sent_in_parts_and_becomes_a_dataset(cli, table, offsets):
    added = cli("datasets", "add", table, "--name", "Numbers")
    assert added.exit_code == ExitCode.OK, added.stderr
    assert offsets == list(range(0, 1000, 100))
    dataset = Dataset.objects.get()
    assert added.stdout == f"{dataset.pk}\n"
    assert (dataset.name, dataset.num_rows) == ("Numbers", 130)
    assert "Numbers: 130 rows, 1 columns" in added.stderr


def test_the_same_command_continues_after_ctrl_c(cli, table, offsets):
    offsets.errors = {3: KeyboardInterrupt()}
    stopped = cli("datasets", "add", table)
    assert stopped.exit_code == ExitCode.INTERRUPTED and uploading.AGAIN in stopped.stderr
    assert files.received(Upload.objects.get().pk) == 300 and not Dataset.objects.exists()
    offsets.clear()
    offsets.errors = {}
    added = cli("datasets", "add", table)
    assert added.exit_code == ExitCode.OK, added.stderr
    assert "Continuing at 0 of 1 MB." in added.stderr
    assert offsets == list(range(300, 1000, 100))
    assert Dataset.objects.get().num_rows == 130
    offsets.clear()
    assert cli("datasets", "add", table).stdout == added.stdout and offsets == []


def test_a_lost_connection_is_tried_again_from_what_the_server_has(cli, table, offsets):
    offsets.errors = {-2: Unreachable("No server."), 4: Unreachable("The response was lost.")}
    added = cli("datasets", "add", table)
    assert added.exit_code == ExitCode.OK, added.stderr
    # The second part did not arrive; the third did, and its response was lost.
    assert offsets == [0, 100, 100, 200, 200, *range(300, 1000, 100)]
    assert "No server. Trying again." in added.stderr


def test_a_busy_server_is_asked_to_finish_again(cli, table, busy_once, monkeypatch):
    monkeypatch.setitem(uploading.PASSING, "BUSY", 0)
    added = cli("datasets", "add", table)
    assert added.exit_code == ExitCode.OK, added.stderr
    assert Dataset.objects.get().num_rows == 130 and len(busy_once) == 2


def test_a_server_that_stays_away_is_reported_with_what_to_do(cli, table, offsets, monkeypatch):
    monkeypatch.setattr(uploading, "PATIENCE_SECONDS", 0)
    offsets.errors = {-2: Unreachable("No server.")}
    given_up = cli("datasets", "add", table)
    assert given_up.exit_code == ExitCode.FAILED and uploading.AGAIN in given_up.stderr


def test_a_file_that_changed_is_another_upload(cli, table, offsets):
    offsets.errors = {3: KeyboardInterrupt()}
    cli("datasets", "add", table)
    content = table.read_bytes()
    table.write_bytes(content[:-2] + b"7\n")  # of the same size
    offsets.clear()
    offsets.errors = {}
    assert cli("datasets", "add", table).exit_code == ExitCode.OK
    assert offsets[0] == 0
    assert Dataset.objects.get().columns[0]["distinct"] == 129  # 129 became 127


def test_a_file_that_changes_while_it_is_sent_is_refused(cli, table, monkeypatch):
    send_part = Api.send_part

    def send(api, path, offset, part):
        return send_part(api, path, offset, part.replace(b"000007", b"000008"))

    monkeypatch.setattr(Api, "send_part", send)
    refused = cli("datasets", "add", table)
    assert refused.exit_code == ExitCode.USAGE and "changed while it was sent" in refused.stderr
    assert not Dataset.objects.exists() and not Upload.objects.exists()


def test_progress_is_reported_in_megabytes(capsys):
    progress = uploading.UploadProgress(uploading.Out(), 4_096_000_000)
    assert progress.text(312_999_999) == "312 of 4,096 MB"
