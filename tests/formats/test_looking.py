"""verify, show, differences and weights: of our own checkpoints and of other tools' files."""

import json
import shutil

import pytest
import torch
from blake3 import blake3
from safetensors.torch import load_file

from tests.formats.conftest import Run, parse
from tests.formats.originals import NAMES, original, save, tree, with_pickle
from tests.thinning import quick_some
from trainops.files import foreign
from trainops.files.checks import Severity
from trainops.files.differences import FileDifference, differences
from trainops.files.errors import DamagedFile, FileTooLarge, FormatError, UnknownFormat
from trainops.files.show import OutlineRow, show
from trainops.files.verify import verify
from trainops.files.weights import export_weights
from trainops.runtime import lossless
from trainops.runtime.checkpoint.store import CheckpointStore, CheckpointType

pytestmark = pytest.mark.usefixtures("foreign")


@pytest.fixture
def run():
    return Run(parse(epochs=3, monitor="train_loss")).until(40)


@pytest.fixture
def own(run, tmp_path):
    return run.save(tmp_path / "op_1")


def failed(path):
    return [(check.name, check.detail) for check in verify(path).checks if not check.passed]


def rewrite(path, name, change):
    """Change a part of a checkpoint, its manifest with it: as someone would who wants to cheat."""
    file = path / name
    if name == "state.json":
        state = lossless.loads(file.read_bytes())
        change(state)
        file.write_text(lossless.dumps(state))
    else:
        with foreign.opened(file) as content:
            part = foreign.load(content, foreign.outline_in(content))
        change(part)
        torch.save(part, file)
    agree(path, name)


def agree(path, name):
    """Make the manifest agree with the file as it is now."""
    manifest = json.loads((path / "manifest.json").read_text())
    entry = next(each for each in manifest["artifacts"] if each["name"] == name)
    content = (path / name).read_bytes()
    entry.update(size_bytes=len(content), blake3=blake3(content).hexdigest())
    (path / "manifest.json").write_text(json.dumps(manifest))


def test_one_of_our_checkpoints_verifies(own):
    report = verify(own)
    assert report.passed, report.checks
    assert [check.name for check in report.checks] == [
        "manifest", "digests", "content", "fields", "finite numbers", "agreement", "load",
    ]  # fmt: skip
    assert "periodic checkpoint of step 40" in report.checks[0].detail


def test_a_damaged_one_does_not(own):
    content = bytearray((own / "model.pt").read_bytes())
    content[-1] ^= 1
    (own / "model.pt").write_bytes(content)
    ((name, detail),) = failed(own)
    assert name == "digests" and "altered: model.pt" in detail
    shutil.rmtree(own)
    own.mkdir()
    assert "no manifest.json" in failed(own)[0][1]


@pytest.mark.parametrize(
    ("name", "change", "check", "words"),
    quick_some([
        ("model.pt", lambda m: m["fc1.bias"].fill_(torch.nan), "finite numbers", "model.fc1.bias"),
        ("state.json", lambda s: s["cursor"].update(optimizer_steps=41), "agreement", "is 41"),
        ("state.json", lambda s: s.update(global_step=39), "agreement", "state.global_step"),
        ("state.json", lambda s: s.update(learning_rate=9.0), "agreement", "state.learning_rate"),
        ("scheduler.pt", lambda s: s[0].update(last_epoch=39), "agreement", "last_epoch: is 39"),
        (
            "optimizer.pt",
            lambda o: o[0]["state"][0]["step"].fill_(7),
            "agreement",
            "optimizer[0].state: is 7; the checkpoint is of step 40",
        ),
        ("optimizer.pt", lambda o: o[0].pop("param_groups"), "fields", "optimizer[0].param_groups"),
        ("optimizer.pt", lambda o: o.clear(), "fields", "optimizer: is empty"),
        ("optimizer.pt", lambda o: o[0]["param_groups"].clear(), "fields", "optimizer[0].state[0]"),
        ("state.json", lambda s: s.update(cursor=5), "fields", "state.cursor: is 5; must be"),
        ("state.json", lambda s: s["cursor"].clear(), "fields", "state.cursor.epoch: is missing"),
        ("model.pt", lambda m: m.update(extra=1), "fields", "model.extra: is 1"),
    ], every=4),
)  # fmt: skip
def test_one_that_contradicts_itself_does_not(own, name, change, check, words):
    rewrite(own, name, change)
    ((found, detail),) = failed(own)
    assert found == check and words in detail


@pytest.mark.slow
def test_values_nested_without_end_are_survived(own):
    with_pickle(own / "random.pt", b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".")
    agree(own, "random.pt")
    ((name, detail),) = failed(own)
    assert name == "content" and "nested more than 64 deep" in detail
    with pytest.raises(FileTooLarge, match="nested more than 64 deep"):
        differences(own, own)


def test_a_view_of_more_values_than_its_storage_is_refused_before_it_is_loaded(own):
    def claim(part):
        part["claimed"] = torch.zeros(1).expand(2 * 10**9)

    rewrite(own, "model.pt", claim)
    (name, detail), *_ = failed(own)
    assert name == "content" and "2000000000" in detail.replace(",", "")


def test_a_checkpoint_of_another_kind_of_operation_is_checked_as_far_as_it_goes(own):
    rewrite(own, "state.json", lambda state: state.clear())
    manifest = json.loads((own / "manifest.json").read_text()) | {"kind": "another"}
    (own / "manifest.json").write_text(json.dumps(manifest))
    report = verify(own)
    assert report.passed and report.level is Severity.WARNING
    assert "not loaded into a job" in report.checks[-1].detail


def test_show_tells_keys_types_shapes_and_bytes(own):
    lines = show(own)
    assert OutlineRow(0, "model", "dict", "9", 1460) in lines
    assert OutlineRow(1, "fc1.weight", "tensor float32", "20 x 10", 800) in lines
    assert OutlineRow(1, "bn1.num_batches_tracked", "tensor int64", "scalar", 8) in lines
    assert OutlineRow(1, "epoch", "int", "1") in lines
    assert OutlineRow(2, "betas", "tuple of float", "2") not in lines  # it is deeper
    assert any(line.key == "betas" and line.depth == 4 for line in lines)


@pytest.mark.parametrize("name", NAMES)
def test_show_loads_nothing(tmp_path, monkeypatch, name):
    path = original(name, tmp_path)

    def load(*args, **kwargs):
        raise AssertionError("torch was asked")

    monkeypatch.setattr(foreign.torch, "load", load)
    lines = show(path)
    assert [line.key for line in lines if line.depth == 0] == list(tree(name))


def test_show_cuts_long_lists_and_names_numbers(tmp_path):
    content = {
        "model_state_dict": {},
        "many": [{"x": i} for i in range(50)],
        "some": list(range(99)),
    }
    lines = show(save(content, tmp_path / "file.pt"))
    assert OutlineRow(0, "many", "list", "50") in lines
    assert OutlineRow(1, "…", "30 more") in lines
    assert OutlineRow(0, "some", "list of int", "99") in lines
    assert sum(line.key == "x" for line in lines) == 20


def test_the_same_checkpoint_has_no_differences(own, tmp_path):
    assert differences(own, own) == []
    path = original("rl", tmp_path)
    assert differences(path, path) == []


def test_differences_are_reported_by_place_and_size(run, tmp_path):
    with torch.no_grad():
        run.job.trainer.model.fc1.bias[3:5] = 1.0
    before = run.save(tmp_path / "op_0")
    with torch.no_grad():
        run.job.trainer.model.fc1.bias[3] += 0.5
        run.job.trainer.model.fc1.bias[4] -= 2.0
    run.job.progress.cursor.samples_seen += 1
    found = {each.place: each for each in differences(before, run.save(tmp_path / "op_2"))}
    assert found.keys() == {"model.fc1.bias", "state.cursor.samples_seen"}
    assert found["model.fc1.bias"] == FileDifference("model.fc1.bias", "2 of 20 values", 2.0)
    assert found["state.cursor.samples_seen"].largest == 1


def test_keys_that_only_one_has_and_other_shapes_are_reported(tmp_path):
    one = {
        "a": torch.zeros(2), "b": torch.zeros(3), "c": 1, "same": torch.tensor([torch.nan]),
        "e": torch.zeros(2), "f": torch.tensor([1.0, torch.inf]), "g": float("nan"),
        "h": 2**2000,
    }  # fmt: skip
    other = {
        "b": torch.zeros(4), "c": 1.0, "same": torch.tensor([torch.nan]), "d": "x",
        "e": torch.zeros(2, dtype=torch.int64), "f": torch.tensor([1.0, torch.nan]),
        "g": float("nan"), "h": -(2**2000),
    }  # fmt: skip
    found = {
        each.place: each
        for each in differences(save(one, tmp_path / "1.pt"), save(other, tmp_path / "2.pt"))
    }
    assert found["a"].what == "only in the first: a tensor float32 (2,)"
    assert found["d"].what == "only in the second: 'x'"
    assert found["b"].what == "a tensor float32 (3,) and a tensor float32 (4,)"
    assert found["e"].what == "a tensor float32 (2,) and a tensor int64 (2,)"
    assert found["f"] == FileDifference("f", "1 of 2 values")
    assert found["h"].largest is None
    assert found.keys() == {"a", "b", "c", "d", "e", "f", "h"}


def test_differences_between_one_of_ours_and_a_file(own, tmp_path):
    found = differences(own, original("training", tmp_path))
    assert any(each.what.startswith("only in the first") for each in found)
    assert any(each.what.startswith("only in the second") for each in found)


def test_arrays_are_compared_too(tmp_path):
    one, other = tree("federated_completed"), tree("federated_completed")
    other["server"]["parameters"][0].flat[7] += 3
    (found,) = differences(save(one, tmp_path / "1.pt"), save(other, tmp_path / "2.pt"))
    assert (found.place, found.largest) == ("server.parameters[0]", 3.0)


def test_the_best_model_is_exported_unless_the_last_is_asked_for(run, own, tmp_path):
    best, last = run.job.state_dict()["best_model"], run.job.trainer.model.state_dict()
    target = tmp_path / "out.safetensors"
    for which, expected in ((None, best), ("best", best), ("last", last)):
        written = export_weights(own, target, which)
        assert written.what == ("last model" if which == "last" else "best model")
        found = load_file(target)
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert list(tmp_path.glob(".*")) == []


def test_a_best_model_is_exported_by_its_metric(tmp_path):
    run = Run(parse(monitors={"train_loss": "max"})).until(38 * 2)
    path, target = run.save(tmp_path / "op_1"), tmp_path / "out.safetensors"
    parts = {"val_loss": "best_model", "train_loss": "best_model_train_loss"}
    for metric, part in parts.items():
        assert export_weights(path, target, None, metric).what == f"best model by {metric}"
        expected = run.job.state_dict()[part]
        assert all(torch.equal(each, expected[name]) for name, each in load_file(target).items())
    with pytest.raises(UnknownFormat, match="'val_iou'; allowed: train_loss, val_loss"):
        export_weights(path, target, None, "val_iou")


@pytest.mark.parametrize(
    ("names", "expected"), [(["net"], ["weight"]), (["one", "two"], ["one.weight", "two.weight"])]
)
def test_the_best_model_of_a_loop_has_the_tensors_of_its_modules(tmp_path, names, expected):
    best = {name: {"weight": torch.full((2,), float(n))} for n, name in enumerate(names)}
    path = CheckpointStore(tmp_path / "op_1", identity={}).write(
        CheckpointType.PERIODIC, step=1, state={"state": {"metric": None}, "best_model": best}
    ).path  # fmt: skip
    written = export_weights(path, tmp_path / "out.safetensors")
    assert list(written.tensors) == expected
    assert load_file(tmp_path / "out.safetensors")[expected[-1]].tolist() == [len(names) - 1.0] * 2


def test_a_checkpoint_without_a_best_model_gives_its_last(tmp_path):
    path = Run(parse()).until(3).save(tmp_path / "op_1")
    assert export_weights(path, tmp_path / "out.safetensors").what == "last model"
    with pytest.raises(UnknownFormat, match="no best model"):
        export_weights(path, tmp_path / "out.safetensors", "best")


@pytest.mark.parametrize(
    ("name", "what", "first"),
    [
        ("training", "last model", "bn1.bias"),
        ("rl", "q_network", "0.bias"),
        ("federated_mid_round", "global model", "model.0.conv.unit0.adn.A.weight"),
        ("federated_completed", "global model", "parameters.0"),
    ],
)
def test_weights_of_other_tools_files(tmp_path, name, what, first):
    path = original(name, tmp_path)
    written = export_weights(path, tmp_path / "out.safetensors")
    assert written.what == what
    found = load_file(tmp_path / "out.safetensors")
    assert min(found) == first
    if name == "federated_mid_round":
        expected = tree(name)["server"]["parameters"]
        assert found["model.0.conv.unit0.conv.weight"].numpy().tolist() == expected[0].tolist()
    with pytest.raises(UnknownFormat, match="holds one model"):
        export_weights(path, tmp_path / "out.safetensors", "best")


def test_tied_weights_are_written_apart(tmp_path):
    content = tree("training")
    content["model_state_dict"]["tied"] = content["model_state_dict"]["fc1.weight"]
    export_weights(save(content, tmp_path / "file.pt"), tmp_path / "out.safetensors")
    found = load_file(tmp_path / "out.safetensors")
    assert torch.equal(found["tied"], found["fc1.weight"])


def test_nothing_is_written_for_a_file_that_is_damaged(own, tmp_path):
    (own / "model.pt").write_bytes(b"")
    for path in (own, save([1], tmp_path / "file.pt")):
        with pytest.raises(FormatError):
            export_weights(path, tmp_path / "out.safetensors")
    assert not (tmp_path / "out.safetensors").exists()
    with pytest.raises(DamagedFile):
        show(own)
