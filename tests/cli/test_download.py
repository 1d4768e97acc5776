import pytest

from apps.operations.lifecycle import State
from tests.api.saved import WEIGHTS, saved
from tests.operations.rows import in_state
from trainops.client.problems import ExitCode

pytestmark = pytest.mark.slow


@pytest.fixture
def operation(cli, ana):
    """An operation with two checkpoints; the later one is the result."""
    operation = in_state(State.COMPLETED, ana)
    saved(operation, step=10, type="periodic")
    saved(operation, step=20, type="final")
    return operation


def test_all_files_are_downloaded_and_compared(cli, operation, tmp_path):
    ran = cli("download", operation.pk[-6:], "-d", tmp_path / "into")
    assert ran.exit_code == ExitCode.OK
    paths = [*map(str, (tmp_path / "into").iterdir())]
    assert sorted(ran.stdout.splitlines()) == sorted(paths) and len(paths) > 1
    assert (tmp_path / "into" / "model.pt").read_bytes() == WEIGHTS
    (row,) = cli("download", operation.pk, "model.pt", "-d", tmp_path, "-o", "json").json
    assert row == {
        "name": "model.pt", "path": str(tmp_path / "model.pt"), "size_bytes": len(WEIGHTS),
    }  # fmt: skip
    assert not (tmp_path / "state.json").exists()


def test_a_download_names_what_is_missing(cli, operation, ana, tmp_path):
    ran = cli("download", operation.pk, "none.pt", "-d", tmp_path / "into")
    assert ran.exit_code == ExitCode.NOT_FOUND and "allowed: " in ran.stderr
    assert "model.pt" in ran.stderr and not (tmp_path / "into").exists()
    ran = cli("download", operation.pk, "--checkpoint", "none")
    assert ran.exit_code == ExitCode.NOT_FOUND
    ran = cli("download", in_state(State.FAILED, ana).pk, "-d", tmp_path)
    assert ran.exit_code == ExitCode.NOT_FOUND and "has no files yet" in ran.stderr
    (tmp_path / "file").write_text("")
    ran = cli("download", operation.pk, "-d", tmp_path / "file")
    assert ran.exit_code == ExitCode.FAILED and "File exists" in ran.stderr
