"""Files of the other tools are read, verified, and written again with the same keys."""

import hashlib
from dataclasses import replace

import pytest
import torch

from tests.formats.originals import (
    ALL,
    IN_HEX,
    NAMES,
    REAL,
    as_numpy_1,
    key_tree,
    original,
    save,
    tree,
)
from trainops.files.errors import UnsupportedVersion
from trainops.files.foreign import load, opened, outline_in
from trainops.files.known import format_of
from trainops.files.reading import read
from trainops.files.show import show
from trainops.files.verify import verify
from trainops.files.writing import write
from trainops.kinds.federated.files.file import FederatedFile
from trainops.kinds.rl.files.file import RlFile
from trainops.kinds.training.files.file import TrainingFile

KINDS = {"training": TrainingFile, "rl": RlFile, "federated_mid_round": FederatedFile}
LEFT_OUT = ("/resume_state/rng/", "/resume_state/choice_rng/")


def loaded(path):
    with opened(path) as content:
        return load(content, outline_in(content))


@pytest.fixture(params=ALL, ids=str)
def path(request, tmp_path):
    return original(request.param, tmp_path)


def test_it_verifies(path):
    report = verify(path)
    assert report.passed, report.checks
    assert [check.name for check in report.checks] == [
        "digest", "content", "version", "fields", "finite numbers", "agreement",
    ]  # fmt: skip


def test_it_verifies_as_numpy_1_wrote_it(path):
    assert verify(as_numpy_1(path)).passed


def test_what_we_write_has_the_keys_of_the_original(path, tmp_path):
    """But for the pickles in disguise, and what the format's description asks for besides."""
    before = loaded(path)
    write(read(path), tmp_path / "ours.pt")
    ours = loaded(tmp_path / "ours.pt")
    if "model_state_dict" in before:
        assert ours.pop("is_multi_dataloader_only") is True
        for name in ("rng", "choice_rng"):
            assert isinstance(before["resume_state"].pop(name), dict)
            assert ours["resume_state"].pop(name) is None
        assert IN_HEX not in repr(ours)
    assert key_tree(ours) == key_tree(before)
    assert list(ours) == list(before)


def test_what_we_write_is_accepted_and_means_the_same(path, tmp_path):
    file = read(path)
    write(file, tmp_path / "ours.pt")
    assert verify(tmp_path / "ours.pt").passed
    again = read(tmp_path / "ours.pt")
    assert key_tree(format_of(again).to_tree(again)) == key_tree(format_of(file).to_tree(file))
    assert type(again) is type(file)


@pytest.mark.parametrize("name", KINDS)
def test_each_is_recognised(name, tmp_path):
    assert isinstance(read(original(name, tmp_path)), KINDS[name])


def test_the_originals_are_what_the_descriptions_say():
    """Skipped without them; the descriptions were made from them."""
    if not REAL:
        pytest.skip("TRAINOPS_FOREIGN_FILES names no directory")
    known = {"\n".join(key_tree(tree(name))) for name in NAMES}
    for path in REAL:
        assert "\n".join(key_tree(loaded(path))) in known, path.name


def test_a_digest_is_written_beside_a_file_that_has_one(tmp_path):
    file = read(original("rl", tmp_path))
    write(file, tmp_path / file.name)
    content = (tmp_path / "checkpoint_ep00001.pt").read_bytes()
    digest = (tmp_path / "checkpoint_ep00001.pt.sha256").read_text()
    assert digest == hashlib.sha256(content).hexdigest() + "\n"
    assert "sha256 " in verify(tmp_path / file.name).checks[0].detail


@pytest.mark.parametrize(
    "text",
    ["{digest}\n", "{digest}  file.pt\n", "{digest} *file.pt\n", "{DIGEST}", "\\{digest}  a\n"],
)
def test_a_digest_is_read_alone_or_as_sha256sum_writes_it(tmp_path, text):
    path = original("rl", tmp_path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    beside = tmp_path / "rl.pt.sha256"
    beside.write_text(text.format(digest=digest, DIGEST=digest.upper()))
    assert verify(path).passed
    beside.write_text(text.format(digest="0" * 64, DIGEST="0" * 64))
    report = verify(path)
    assert [check.name for check in report.checks] == ["digest"]
    assert digest in report.checks[0].detail and "0" * 64 in report.checks[0].detail


@pytest.mark.parametrize("text", ["", "abc", "x" * 100_000, "\0" * 64, "zz" * 32])
def test_a_digest_that_is_none(tmp_path, text):
    path = original("rl", tmp_path)
    (tmp_path / "rl.pt.sha256").write_text(text)
    assert not verify(path).passed


def test_writing_over_a_file_never_leaves_a_foreign_digest(tmp_path, monkeypatch):
    """Killed between the file and its digest, it is a file without one: a notice, no damage."""
    file = read(original("rl", tmp_path))
    target = tmp_path / "target.pt"
    write(file, target)
    monkeypatch.setattr("trainops.files.digests.write", lambda path: None)
    write(replace(file, episode=7), target)
    assert verify(target).passed
    assert "to compare with" in verify(target).checks[0].detail


@pytest.mark.parametrize("moment", ["torch.save", "os.fsync", "pathlib.Path.rename"])
def test_an_error_while_writing_leaves_the_earlier_file(tmp_path, monkeypatch, moment):
    file = read(original("training", tmp_path))
    target = tmp_path / "target" / file.name
    target.parent.mkdir()
    write(file, target)
    before = target.read_bytes()

    def fail(*args, **kwargs):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(moment, fail)
    with pytest.raises(OSError, match="Input/output error"):
        write(replace(file, epoch=3), target)
    assert target.read_bytes() == before
    assert list(target.parent.iterdir()) == [target]


def test_a_view_does_not_drag_its_storage_into_the_file(tmp_path):
    file = read(original("rl", tmp_path))
    whole = torch.zeros(1_000_000)
    network = dict(file.population.q_network)
    network["0.bias"] = whole[:32]
    population = replace(file.population, q_network=network)
    write(replace(file, population=population), tmp_path / "ours.pt")
    assert (tmp_path / "ours.pt").stat().st_size < 1.1 * (tmp_path / "rl.pt").stat().st_size


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"format_version": 2, "model_state_dict": {}}, "format_version is 2"),
        ({"format_version": "1", "model_state_dict": {}}, "format_version is '1'"),
        ({"version": "1.5", "server": {}, "clients": {}}, "version '1.5'; 2.x is expected"),
        ({"version": 2, "server": {}, "clients": {}}, "version 2; 2.x is expected"),
        ({"parameters": [], "round": 3, "dice": 0.5}, "version '1.0'; 2.x is expected"),
        ({"model": {}, "dice": 0.5}, "version '1.0'; 2.x is expected"),
        ({"version": 2, "episode": 4}, "version 2; 3 is expected.*retrain"),
        ({"population_state": {}}, "version 1; 3 is expected.*retrain"),
        ({"version": 4, "episode": 4}, "version is 4; 3 is expected"),
    ],
)
def test_another_version_is_refused_naming_both(tmp_path, tree, words):
    path = save(tree, tmp_path / "file.pt")
    with pytest.raises(UnsupportedVersion, match=words):
        read(path)


@pytest.mark.parametrize("tree", [{"state_dict": {}, "hyper": 1}, {}, [1, 2], torch.zeros(3), 7])
def test_a_file_of_no_known_format_is_still_shown(tmp_path, tree):
    path = save(tree, tmp_path / "file.pt")
    report = verify(path)
    assert [check.passed for check in report.checks] == [True, True, False]
    assert show(path) or tree == {}
