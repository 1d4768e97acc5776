"""A kind that is registered nowhere but here has its files read, checked and written, too."""

import json
import sys

import pytest
import torch
from safetensors.torch import load_file

from tests.formats.tally import TallyConfig
from tests.formats.tally_files import TallyFile
from tests.formats.test_looking import rewrite
from trainops.files.checks import Severity
from trainops.files.digests import beside
from trainops.files.directory import newest_healthy
from trainops.files.errors import DamagedFile, UnknownFormat
from trainops.files.exchange import answer
from trainops.files.reading import read
from trainops.files.show import show
from trainops.files.verify import verify
from trainops.files.weights import export_weights
from trainops.files.writing import write
from trainops.kind import KINDS
from trainops.runtime.checkpoint.manifest import Candidate
from trainops.runtime.checkpoint.store import CheckpointStore, CheckpointType

SUMS = [0.5, 1.0, 1.5]


@pytest.fixture(autouse=True)
def _registered(tmp_path_factory, monkeypatch):
    """Install a distribution with the kind's entry point for one test."""
    root = tmp_path_factory.mktemp("site")
    installed = root / "tally-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: tally\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(
        "[trainops.kinds]\ntally = tests.formats.tally:KIND"
    )
    monkeypatch.setattr(sys, "path", [*sys.path, str(root)])
    vars(KINDS).pop("_kinds", None)  # found anew
    assert "tally" in KINDS
    yield
    vars(KINDS).pop("_kinds", None)


def written(path, sums=SUMS, by=0.5):
    write(TallyFile(torch.tensor(sums), by), path)
    return path


def request(direction, **more):
    config = TallyConfig().model_dump(mode="json")
    body = {"direction": direction, "kind": "tally", "config": config, "inputs": {}}
    found = answer(json.loads(json.dumps(body | more)))
    assert "refused" not in found, found
    return found


def saved(root, identity):
    """Save a checkpoint of three steps."""
    config = TallyConfig()
    job = KINDS["tally"].make_job(config)
    for _ in SUMS:
        job.advance()
    store = CheckpointStore(root, identity=identity)
    return store.write(CheckpointType.PERIODIC, step=job.step, state=job.state_dict())


def named(path, name):
    return next(each for each in verify(path).checks if each.name == name)


def test_its_file_is_recognised_read_and_verified(tmp_path):
    path = written(tmp_path / "tally.pt")
    assert beside(path).exists(), "its tool asks for a digest"
    report = verify(path)
    assert report.level is Severity.OK, report.checks
    details = {each.name: each.detail for each in report.checks}
    assert (details["version"], details["fields"]) == ("a tally", "3 sums")
    file = read(path)
    assert isinstance(file, TallyFile) and file.sums.tolist() == SUMS
    assert [line.key for line in show(path)] == ["tally", "by"]


def test_what_does_not_agree_in_its_file_fails(tmp_path):
    path = written(tmp_path / "tally.pt", by=0.25)
    found = named(path, "agreement")
    assert found.level is Severity.FAILED and "begins with 0.5, by is 0.25" in found.detail


def test_its_weights_are_written(tmp_path):
    found = export_weights(written(tmp_path / "tally.pt"), tmp_path / "tally.safetensors")
    assert found.what == "sums"
    assert load_file(tmp_path / "tally.safetensors")["sums"].tolist() == SUMS


def test_the_keys_and_names_of_its_files_are_reported(tmp_path):
    torch.save({"something": 1}, tmp_path / "other.pt")
    with pytest.raises(UnknownFormat, match=r"a tally has tally and by, .* a model nothing but"):
        read(tmp_path / "other.pt")
    with pytest.raises(DamagedFile, match=r"none of .*tally_N\.pt, last_checkpoint"):
        newest_healthy(tmp_path)


def test_the_newest_of_its_files_is_taken(tmp_path):
    for number in (9, 10):
        written(tmp_path / f"tally_{number}.pt")
    assert newest_healthy(tmp_path) == (tmp_path / "tally_10.pt", [])


def test_its_file_becomes_a_checkpoint_and_that_the_same_file(tmp_path):
    path = written(tmp_path / "tally.pt")
    identity = {"operation_id": "op", "kind": "tally", "config": TallyConfig().model_dump()}
    answered = request("import", file=str(path), directory=str(tmp_path / "op"), identity=identity)
    place = tmp_path / "op" / answered["staged"]["directory"]
    state = CheckpointStore(place.parent, identity={}).load(
        Candidate(place, answered["staged"]["digest"])
    )
    assert state["sums"].tolist() == SUMS
    assert named(place, "fields").detail == "a state of tallies"
    assert named(place, "agreement").detail.endswith("numbers of sums; they agree")
    assert named(place, "load").detail.startswith("loaded into a fresh job of kind tally")
    assert verify(place).level is Severity.OK
    again = request(
        "export",
        checkpoint=str(place),
        digest=answered["staged"]["digest"],
        name="it",
        file=str(tmp_path / "again.pt"),
        which="last",
        agent=None,
        entries=[],
    )
    assert again["name"] == "tally_3.pt"
    assert (tmp_path / "again.pt").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("identity", [{"kind": "tally"}, {}], ids=["named", "of an older version"])
def test_what_does_not_agree_in_its_checkpoint_fails(tmp_path, identity):
    place = saved(tmp_path / "op", identity).path
    assert verify(place).passed
    rewrite(place, "state.json", lambda state: state.update(counted=9))
    assert named(place, "agreement").detail == "state.counted: is 9; expected 3"


def test_a_checkpoint_that_lacks_what_its_kind_has_is_no_other_kind_s(tmp_path):
    place = saved(tmp_path / "op", {"kind": "tally"}).path
    rewrite(place, "state.json", lambda state: state.pop("counted"))
    found = named(place, "agreement")
    assert found.level is Severity.FAILED and "cannot be read: KeyError('counted')" in found.detail


def test_its_table_is_written_as_csv(tmp_path):
    place = saved(tmp_path / "op", {"kind": "tally"})
    target = tmp_path / "sums.csv"
    answered = request("tabulate", checkpoint=str(place.path), digest=place.digest, table="sums",
                   file=str(target))  # fmt: skip
    assert target.read_text() == "sum\n0.5\n1.0\n1.5\n"
    assert answered["size_bytes"] == target.stat().st_size
