"""Directories of a transformer trainer, and models without a training."""

import json
import os
import shutil
import zipfile

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.formats.conftest import Run, parse
from tests.formats.originals import save, tree
from tests.formats.step_trainer import train
from tests.formats.test_exchange import same
from tests.formats.test_originals import loaded
from tests.thinning import quick_some
from trainops.files import packed
from trainops.files.checks import Severity
from trainops.files.directory import newest_healthy
from trainops.files.errors import DamagedFile, FileTooLarge, FormatError, UnknownFormat
from trainops.files.show import show
from trainops.files.verify import verify
from trainops.files.weights import export_weights
from trainops.kinds.training.files.exchange import read_training
from trainops.kinds.training.files.importing import import_training
from trainops.runtime.errors import IncompatibleState

pytestmark = [pytest.mark.usefixtures("foreign"), pytest.mark.slow]
BOTH = ["pytorch_model.bin", "model.safetensors"]


@pytest.fixture(scope="module", params=quick_some(BOTH, every=2))
def trained(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("trained")
    return root, train(root, weights=request.param)


@pytest.fixture
def directory(tmp_path):
    train(tmp_path, epochs=1)
    return tmp_path / "recovery_checkpoint"


def change(directory, **values):
    path = directory / "training_state.pth"
    torch.save(loaded(path) | values, path)
    return directory


def failed(path):
    return [(check.name, check.detail) for check in verify(path).checks if not check.passed]


def warned(path):
    report = verify(path)
    assert report.level is Severity.WARNING, report.checks
    return "; ".join(each.detail for each in report.checks if each.level is Severity.WARNING)


def test_each_directory_verifies(trained):
    root, saved = trained
    assert len(saved) == 6
    for name in saved:
        report = verify(root / name)
        assert report.level is Severity.OK, report.checks
        assert [check.name for check in report.checks] == [
            "files", "content", "fields", "finite numbers", "agreement",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "step", "place"),
    [
        ("checkpoint_epoch1_step16", 16, (0, 16)),
        ("checkpoint_epoch1_step32", 32, (0, 32)),
        ("checkpoint_epoch2_step16", 38 + 16, (1, 16)),
        ("recovery_checkpoint", 38 + 32, (1, 32)),
        ("last_checkpoint", 2 * 38, (2, 0)),
    ],
)
def test_each_continues_at_its_batch(trained, name, step, place):
    root, saved = trained
    config = parse(epochs=3, scheduler="none")
    imported = import_training(read_training(root / name), config)
    cursor = imported.state["state"]["cursor"]
    assert imported.step == step and (cursor["epoch"], cursor["next_batch"]) == place
    assert same(imported.state["model"], saved[name])
    counts = {int(each["step"]) for each in imported.state["optimizer"][0]["state"].values()}
    assert counts == {step}
    assert Run(config).load(imported.state).to_the_end().job.step == 3 * 38


def test_accumulated_batches_are_steps(tmp_path):
    train(tmp_path, accumulation=4, epochs=2)
    config = parse(epochs=3, scheduler="none", gradient_accumulation=4)
    for name, step in (("last_checkpoint", 20), ("recovery_checkpoint", 18)):
        assert verify(tmp_path / name).level is Severity.OK
        assert import_training(read_training(tmp_path / name), config).step == step


def test_a_step_of_all_batches_is_a_finished_epoch(directory):
    change(directory, step=38)
    file = read_training(directory)
    assert (file.epoch, file.loaders.train.total_batches, file.global_step) == (1, 0, 38)


def test_a_directory_of_them_gives_the_furthest_healthy_one(trained, tmp_path):
    root = shutil.copytree(trained[0], tmp_path / "copy")
    assert newest_healthy(root) == (root / "last_checkpoint", [])
    found = [root / "last_checkpoint" / each for each in BOTH]
    weights = next(each for each in found if each.exists())
    weights.write_bytes(weights.read_bytes()[:-50])
    path, (problem,) = newest_healthy(root)
    assert path.name in ("recovery_checkpoint", "checkpoint_epoch2_step32")
    assert problem.startswith("last_checkpoint: content: ")


@pytest.mark.parametrize("missing", ["training_state.pth", "pytorch_model.bin"])
def test_a_missing_file_is_named(directory, missing):
    (directory / missing).unlink()
    ((name, detail),) = failed(directory)
    assert name == "files" and missing in detail and "is missing" in detail
    with pytest.raises(DamagedFile, match="is missing"):
        read_training(directory)


@pytest.mark.parametrize("text", [None, "", "[1]", "{", "[" * 100_000])
def test_a_config_that_only_the_other_tool_needs_is_a_warning(directory, text):
    path = directory / "config.json"
    path.unlink()
    if text is not None:
        path.write_text(text)
    assert "config.json is" in warned(directory)
    assert read_training(directory).global_step == 32


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"epoch": -1}, "epoch: is -1"),
        ({"epoch": 0}, "epoch: is 0 at batch 32; epochs count from 1"),
        ({"step": "x"}, "step: is 'x'"),
        ({"total_batches": 1.5}, "total_batches: is 1.5"),
        ({"optimizer_state_dict": None}, "optimizer_state_dict: is None; must be a dict"),
        ({"scheduler_state_dict": 4}, "scheduler_state_dict: is 4"),
        ({"best_val_f1": "high"}, "best_val_f1: is 'high'"),
    ],
)
def test_a_wrong_field_is_named(directory, values, where):
    ((name, detail),) = failed(change(directory, **values))
    assert name == "fields" and where in detail


def test_more_steps_than_batches_are_a_failure(directory):
    ((name, detail),) = failed(change(directory, step=30))
    assert name == "agreement" and "moved 32 times in 30 steps" in detail


def test_odd_values_are_warnings(directory):
    schedule = loaded(directory / "training_state.pth")
    moved = schedule["scheduler_state_dict"] | {"last_epoch": 31}
    assert "the schedule stands at 31, after 32" in warned(
        change(directory, scheduler_state_dict=moved)
    )
    change(directory, scheduler_state_dict=schedule["scheduler_state_dict"])
    assert "best_val_f1 is 1.5" in warned(change(directory, best_val_f1=1.5))
    change(directory, best_val_f1=0.5)
    assert "total_batches is missing" in warned(change(directory, total_batches=0))
    assert "step is 32 of 20 batches" in warned(change(directory, total_batches=20))
    optimizer = schedule["optimizer_state_dict"]
    optimizer["param_groups"][0]["lr"] = 1e-12
    change(directory, total_batches=38, optimizer_state_dict=optimizer)
    assert "param_groups[0].lr is 1e-12; less than 1e-08" in warned(directory)


def test_steps_that_no_accumulation_makes_are_a_warning(directory):
    optimizer = loaded(directory / "training_state.pth")
    for each in optimizer["optimizer_state_dict"]["state"].values():
        each["step"].fill_(17)
    change(directory, optimizer_state_dict=optimizer["optimizer_state_dict"])
    assert "17 steps of the optimizer fit no gradient accumulation" in warned(directory)


def test_nan_and_flipped_bytes_are_found(directory):
    weights = loaded(directory / "pytorch_model.bin")
    weights["fc1.bias"][3] = torch.nan
    torch.save(weights, directory / "pytorch_model.bin")
    assert failed(directory)[0][0] == "finite numbers"
    content = bytearray((directory / "training_state.pth").read_bytes())
    content[len(content) // 2] ^= 8
    (directory / "training_state.pth").write_bytes(content)
    ((name, detail),) = failed(directory)
    assert name == "content" and "training_state.pth" in detail


def test_what_would_execute_is_refused(directory, tmp_path):
    class Wish:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    change(directory, extra=Wish())
    ((name, detail),) = failed(directory)
    assert name == "content" and "posix.mkdir" in detail
    assert not (tmp_path / "executed").exists()


def test_show_and_weights_read_it(trained, tmp_path):
    root, saved = trained
    lines = show(root / "last_checkpoint")
    assert {"training_state.pth", "optimizer_state_dict", "fc1.weight"} <= {
        each.key for each in lines
    }
    export_weights(root / "last_checkpoint", tmp_path / "out.safetensors")
    assert same(load_file(tmp_path / "out.safetensors"), saved["last_checkpoint"])


# Models without a training


@pytest.fixture(params=["state dict", "safetensors"])
def model(request, tmp_path):
    weights = {name: each.clone() for name, each in tree("training")["model_state_dict"].items()}
    if request.param == "state dict":
        return save(weights, tmp_path / "model.pt"), weights
    save_file(weights, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors", weights


def test_a_model_alone_is_a_warm_start_that_says_so(model):
    path, weights = model
    report = verify(path)
    assert report.passed
    assert "weights only: a state dict of 9 tensors" in report.checks[2].detail
    imported = import_training(read_training(path), parse())
    assert imported.step == 0 and same(imported.state["model"], weights)
    items = {each.part: each for each in imported.receipt.items}
    assert "training starts at step 0" in items["model"].note
    assert items["optimizer"].note == "the file holds weights only" and not items["optimizer"].exact
    assert Run(parse()).load(imported.state).until(3).job.step == 3


def test_a_model_of_other_shapes_is_refused(model):
    path, _ = model
    with pytest.raises(IncompatibleState, match=r"model_state_dict.fc1.weight"):
        import_training(read_training(path), parse(parameters={"width": 21}))


def test_a_model_with_nan_fails(tmp_path):
    path = save({"a": torch.tensor([1.0, torch.nan])}, tmp_path / "model.pt")
    assert failed(path)[0][0] == "finite numbers"


@pytest.mark.parametrize(
    "content", [{}, {"a": 1}, {"a": {"b": torch.zeros(2)}}, {1: torch.ones(1)}]
)
def test_what_is_no_state_dict_is_none(tmp_path, content):
    path = save(content, tmp_path / "file.pt")
    with pytest.raises(FormatError):
        read_training(path)


def test_damaged_safetensors_are_refused(tmp_path):
    save_file({"a": torch.arange(100.0)}, tmp_path / "a.safetensors")
    content = (tmp_path / "a.safetensors").read_bytes()
    for damaged in (content[:-1], content[:20], content + b"x", content.replace(b"F32", b"F99")):
        (tmp_path / "a.safetensors").write_bytes(damaged)
        assert failed(tmp_path / "a.safetensors")[0][0] == "content"


# Directories on their way over HTTP


def test_a_packed_directory_is_unpacked_as_it_was(directory, tmp_path):
    (directory / "notes.txt").write_text("not part of it")
    target = tmp_path / "packed.zip"
    packed.pack(directory, packed.names_in(directory), target)
    assert packed.is_one(target)
    packed.unpack(target, tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "config.json", "pytorch_model.bin", "training_state.pth",
    ]  # fmt: skip
    for path in (tmp_path / "out").iterdir():
        assert path.read_bytes() == (directory / path.name).read_bytes()


def test_files_of_torch_are_no_packed_directories(tmp_path):
    assert not packed.is_one(save(tree("training"), tmp_path / "file.pt"))
    (tmp_path / "text").write_text("text")
    assert not packed.is_one(tmp_path / "text")


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("../evil", {}, DamagedFile),
        ("/evil", {}, DamagedFile),
        ("a/b", {}, DamagedFile),
        (".hidden", {}, DamagedFile),
        ("a\\b", {}, DamagedFile),
        ("x" * 200, {}, DamagedFile),
        ("large", {"compression": zipfile.ZIP_DEFLATED}, FileTooLarge),
    ],
)
def test_names_that_lead_elsewhere_and_compressed_ones_are_refused(tmp_path, name, options, error):
    with zipfile.ZipFile(tmp_path / "packed.zip", "w", **options) as archive:
        archive.writestr("manifest.json", "{}")
        archive.writestr(name, b"0" * 1000)
    with pytest.raises(error):
        packed.unpack(tmp_path / "packed.zip", tmp_path / "out")
    assert not (tmp_path / "out").exists() and not (tmp_path / "evil").exists()


def test_a_file_twice_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        archive.writestr("manifest.json", "{}")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("manifest.json", json.dumps({}))
    with pytest.raises(DamagedFile, match="twice"):
        packed.unpack(tmp_path / "packed.zip", tmp_path / "out")


def test_a_directory_of_nothing_known_is_reported(tmp_path):
    with pytest.raises(DamagedFile, match=r"it contains none of checkpoint_epNNNNN.pt, epoch_"):
        newest_healthy(tmp_path)
    with pytest.raises(UnknownFormat):
        read_training(save({"x": 1}, tmp_path / "file.pt"))
