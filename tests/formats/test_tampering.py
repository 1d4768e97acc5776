"""A training checkpoint that was changed, its digests with it, is found to be."""

import json

import pytest
import torch

from tests.formats.conftest import Run, parse
from tests.formats.originals import original
from tests.formats.other_trainer import Trainer
from tests.formats.test_looking import failed, rewrite
from tests.thinning import quick_some
from trainops.files import packed
from trainops.files.checks import Severity
from trainops.files.exchange import answer
from trainops.files.verify import verify
from trainops.kinds.training.files.exchange import read_training
from trainops.kinds.training.files.importing import import_training
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.store import CheckpointStore, CheckpointType
from trainops.runtime.job import StateDict

pytestmark = pytest.mark.usefixtures("foreign")


def saved(root, state: StateDict, step, config):
    plain = config.model_dump(mode="json")
    store = CheckpointStore(root, identity={"kind": "training", "config": plain})
    return store.write(CheckpointType.PERIODIC, step=step, state=state).path


def without(path, name):
    """Take a part away, and out of the manifest."""
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["artifacts"] = [
        each for each in manifest["artifacts"] if not each["name"].startswith(name)
    ]
    (path / "manifest.json").write_text(json.dumps(manifest))


def lower(optimizer, factor):
    for group in optimizer[0]["param_groups"]:
        group["lr"] *= factor


def lower_both(path, factor):
    rewrite(path, "optimizer.pt", lambda o: lower(o, factor))
    rewrite(path, "state.json", lambda s: s.update(learning_rate=s["learning_rate"] * factor))


TAMPERINGS = {
    "another batch": lambda p: rewrite(p, "state.json", lambda s: s["cursor"].update(next_batch=5)),
    "another epoch": lambda p: rewrite(p, "state.json", lambda s: s["cursor"].update(epoch=0)),
    "no samples seen": lambda p: rewrite(
        p, "state.json", lambda s: s["cursor"].update(samples_seen=0)
    ),
    "emptied moments": lambda p: rewrite(p, "optimizer.pt", lambda o: o[0]["state"].clear()),
    "moments of one missing": lambda p: rewrite(p, "optimizer.pt", lambda o: o[0]["state"].pop(2)),
    "moment of another shape": lambda p: rewrite(
        p, "optimizer.pt", lambda o: o[0]["state"][0].update(exp_avg=torch.zeros(3))
    ),
    "other count of steps": lambda p: rewrite(
        p, "optimizer.pt", lambda o: o[0]["state"][0]["step"].fill_(7)
    ),
    "no schedule": lambda p: without(p, "scheduler"),
    "schedule elsewhere": lambda p: rewrite(
        p, "scheduler.pt", lambda s: s[0].update(last_epoch=39)
    ),
    "rate x 50": lambda p: lower_both(p, 50),
    "rate / 10^9": lambda p: lower_both(p, 1e-9),
    "no history": lambda p: without(p, "history"),
    "no best model": lambda p: without(p, "best_model"),
    "no random streams": lambda p: without(p, "random"),
    "a random stream missing": lambda p: rewrite(p, "random.pt", lambda r: r.pop("torch")),
    "a tensor missing": lambda p: rewrite(p, "model.pt", lambda m: m.pop("fc2.bias")),
    "a tensor of another shape": lambda p: rewrite(
        p, "model.pt", lambda m: m.update({"fc2.bias": torch.zeros(4)})
    ),
    "best metric": lambda p: rewrite(p, "state.json", lambda s: s.update(best_metric=0.0)),
    "not finite": lambda p: rewrite(p, "model.pt", lambda m: m["fc2.bias"].fill_(torch.inf)),
    "running means": lambda p: rewrite(p, "state.json", lambda s: s.pop("epoch_means")),
    "another step": lambda p: (p / "manifest.json").write_text(
        json.dumps(json.loads((p / "manifest.json").read_text()) | {"step": 41})
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", quick_some(["step", "none"], every=2))
@pytest.mark.parametrize("name", quick_some(TAMPERINGS, every=3))
def test_a_checkpoint_that_was_changed_fails(tmp_path, name, scheduler):
    if scheduler == "none" and "schedule" in name:
        pytest.skip("there is no schedule")
    config = parse(epochs=3, monitor="train_loss", scheduler=scheduler)
    path = Run(config).until(40).save(tmp_path / "op_1")
    assert verify(path).level is Severity.OK, verify(path).checks
    TAMPERINGS[name](path)
    assert failed(path), verify(path).checks


CONFIGS = [
    {},
    {"scheduler": "none"},
    {"scheduler": "cosine"},
    {"scheduler": "onecycle"},
    {"scheduler": "warmup_cosine", "warmup_fraction": 0.3},
    {"optimizer": "sgd", "momentum": 0.0, "scheduler": "none"},
    {"optimizer": "sgd", "momentum": 0.9},
    {"optimizer": "adam", "gradient_accumulation": 3},
    {"early_stopping_patience": 1, "monitor": "train_loss"},
    {"parameters": {"optimizers": 2}},
]


@pytest.mark.slow
@pytest.mark.parametrize("config", quick_some(CONFIGS, every=len(CONFIGS)), ids=str)
def test_checkpoints_of_all_places_are_ok(tmp_path, config):
    run = Run(parse(**{"epochs": 3, **config}))
    total = run.job.total_steps
    for step in (0, 1, 7, total // 3, total // 2, total - 1, total):
        report = verify(run.until(step).save(tmp_path / "op_1"))
        assert report.level is Severity.OK, (step, report.checks)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", quick_some(["step 57", "end of epoch 0", "step 38", "end of training"], every=4)
)
@pytest.mark.parametrize("schedule", quick_some(["step", "cosine"], every=2))
def test_imported_ones_are_ok_then_and_later(tmp_path, name, schedule):
    config = parse(epochs=4, scheduler=schedule)
    imported = import_training(Trainer(schedule).run(every_steps=19).files[name], config)
    path = saved(tmp_path / "op_1", imported.state, imported.step, config)
    assert verify(path).level is Severity.OK, verify(path).checks
    run = Run(config).load(imported.state)
    for steps in (1, 30):
        path = run.until(imported.step + steps).save(tmp_path / "op_1")
        assert verify(path).level is Severity.OK, verify(path).checks


@pytest.mark.slow
def test_imported_ones_with_fewer_optimizers_are_not_failed(tmp_path):
    config = parse(epochs=3, parameters={"optimizers": 2}, scheduler="none")
    file = Trainer("step").run(every_steps=19).files["step 57"]
    imported = import_training(file, config)
    assert imported.step == 57
    path = saved(tmp_path / "op_1", imported.state, imported.step, config)
    report = verify(path)
    assert report.level is Severity.WARNING and report.passed
    assert "optimizer[1].state has no moments of 2 of the 2" in report.checks[-1].detail
    run = Run(config).load(imported.state).until(60)
    path = run.save(tmp_path / "op_1")
    assert verify(path).level is Severity.OK, verify(path).checks
    rewrite(path, "optimizer.pt", lambda o: o[0]["state"][0]["step"].fill_(7))
    assert failed(path)


def test_an_imported_one_of_the_originals_layout_is_ok(tmp_path):
    imported = import_training(read_training(original("training", tmp_path)), parse())
    path = saved(tmp_path / "op_1", imported.state, imported.step, parse())
    assert verify(path).passed, verify(path).checks


def test_one_whose_data_have_another_content_here_is_not_imported(tmp_path):
    path = Run(parse()).until(5).save(tmp_path / "op_1")
    manifest = json.loads((path / "manifest.json").read_text()) | {"inputs": {"ds_1": "aa"}}
    (path / "manifest.json").write_text(json.dumps(manifest))
    packed.pack(path, packed.names_in(path), tmp_path / "packed.zip")
    request = {
        "direction": "import", "kind": "training", "config": manifest["config"], "inputs": {},
        "file": str(tmp_path / "packed.zip"), "directory": str(tmp_path / "op_2"),
        "identity": {"kind": "training", "inputs": {"ds_1": "bb"}},
    }  # fmt: skip
    refused = answer(request)["refused"]
    assert refused["code"] == "INCOMPATIBLE_FILE"
    assert "ds_1 has a different content here: bb, not aa" in refused["message"]
    request["identity"]["inputs"]["ds_1"] = "aa"
    assert answer(request)["staged"]["step"] == 5


def test_verifying_leaves_the_process_as_it_was(tmp_path):
    path = Run(parse()).until(5).save(tmp_path / "op_1")
    torch.manual_seed(11)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    verify(path)
    assert torch.equal(torch.get_rng_state(), before) and torch.get_num_threads() == threads
    assert reproducibility.environment()["deterministic"]


def test_one_whose_recipe_is_not_here_is_a_warning(tmp_path, monkeypatch):
    path = Run(parse()).until(5).save(tmp_path / "op_1")
    for name in ("config",):
        manifest = json.loads((path / "manifest.json").read_text())
        manifest[name]["recipe"] = "elsewhere"
        (path / "manifest.json").write_text(json.dumps(manifest))
    report = verify(path)
    assert report.level is Severity.WARNING
    assert "its config is not valid here" in report.checks[-1].detail


def test_one_whose_data_are_not_here_is_a_warning_that_names_them(tmp_path):
    path = Run(parse()).until(5).save(tmp_path / "op_1")
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["config"] = {"recipe": "tabular", "parameters": {"dataset": "ds_0123456789abcdef",
                                                              "target": "x"}}  # fmt: skip
    (path / "manifest.json").write_text(json.dumps(manifest))
    report = verify(path)
    assert report.level is Severity.WARNING
    assert "ds_0123456789abcdef" in report.checks[-1].detail
