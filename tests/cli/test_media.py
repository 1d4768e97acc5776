import json

import pytest

from apps.operations.lifecycle import State
from tests.api.test_media import logged
from tests.operations.rows import in_state
from trainops.client.problems import ExitCode
from trainops.media import Image, Table


@pytest.fixture
def operation(cli, ana):
    operation = in_state(State.COMPLETED, ana)
    for step in (1, 20):
        logged(operation, Image([[0.0]]), Image([[1.0]]), name="../a b", step=step)
    logged(operation, Table(["n"], [[1]]), name="t")
    return operation


def test_media_are_listed(cli, operation):
    ran = cli("media", operation.pk[-6:])
    assert ran.exit_code == ExitCode.OK
    assert [line.split()[-3:] for line in ran.stdout.splitlines()[1:]] == [
        ["image", "2", "20"], ["table", "1", "1"],
    ]  # fmt: skip
    (named,) = cli("media", operation.pk, "--name", "t", "-o", "json").json
    assert (named["name"], named["steps"][0]["step"]) == ("t", 1)


def test_media_are_written_to_files_whatever_their_names(cli, operation, tmp_path):
    ran = cli("media", operation.pk, "-d", tmp_path / "into")
    assert ran.exit_code == ExitCode.OK
    paths = sorted((tmp_path / "into").iterdir())
    assert sorted(ran.stdout.splitlines()) == [str(path) for path in paths]
    assert [path.name.rpartition("-")[0] for path in paths] == [
        *["_a_b-0000000001"] * 2, *["_a_b-0000000020"] * 2, "t-0000000001",
    ]  # fmt: skip
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert json.loads(paths[-1].read_bytes()) == {"columns": ["n"], "rows": [[1]]}


def test_an_unknown_name_is_an_error_with_those_that_there_are(cli, operation, tmp_path):
    ran = cli("media", operation.pk, "--name", "none", "-d", tmp_path)
    assert ran.exit_code == ExitCode.NOT_FOUND
    assert "no media named 'none'; there are: ../a b, t" in ran.stderr
