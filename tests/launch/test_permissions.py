"""Other users of the machine read nothing of an installation."""

import os
import stat

import pytest

from tests.journey.stack import running
from trainops.launch import checks
from trainops.launch.refusal import CannotStart


def open_to_others(directory):
    return {
        str(path.relative_to(directory)): oct(stat.S_IMODE(path.lstat().st_mode))
        for path in [directory, *directory.rglob("*")]
        if not path.is_symlink() and path.lstat().st_mode & 0o077
    }


def test_a_directory_that_was_open_is_closed_with_what_is_in_it(tmp_path):
    data = tmp_path / "data"
    (data / "log").mkdir(parents=True)
    (data / "trainops.sqlite3").touch(mode=0o644)
    data.chmod(0o755)
    assert checks.close_to_others(data)
    assert open_to_others(data) == {}
    assert not checks.close_to_others(data)
    data.chmod(0o711)  # where PostgreSQL's user has to pass
    (data / "log").chmod(0o755)
    assert not checks.close_to_others(data)
    assert set(open_to_others(data)) == {"."}


def test_a_group_may_share_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINOPS_UMASK", "007")
    tmp_path.chmod(0o775)
    checks.close_to_others(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o770
    monkeypatch.setenv("TRAINOPS_UMASK", "x")
    with pytest.raises(CannotStart, match="TRAINOPS_UMASK: got 'x'"):
        checks.umask()


@pytest.mark.slow
@pytest.mark.journey
def test_nothing_that_an_installation_writes_is_open(tmp_path):
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    before = os.umask(0o022)
    try:
        with running(data) as stack:
            operation_id = stack.submit(recipe="digits", epochs=1)
            stack.wait(operation_id, "COMPLETED")
            assert {k: v for k, v in open_to_others(stack.data_dir).items() if k != "."} == {}
    finally:
        os.umask(before)
