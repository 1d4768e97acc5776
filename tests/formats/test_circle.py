"""Every export is verified: import, train, export, verify and import of each fixture."""

import json
import os
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path

import pytest
import torch

from tests.federated.runs import ServerLedger
from tests.formats.conftest import parse
from tests.formats.originals import ALL, original
from tests.formats.test_federated_exchange import config as federated_config
from tests.formats.test_rl_exchange import config as rl_config
from tests.thinning import quick_some
from trainops.files import exchange
from trainops.files.verify import verify
from trainops.kind import KINDS
from trainops.kinds.federated.releases import Release
from trainops.kinds.rl.files.exchange import read_rl
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.store import Candidate, CheckpointStore, CheckpointType
from trainops.runtime.ledger import Entry

SECRET = "5e" * 32
RECIPES = "tests.formats.recipe:RECIPE,tests.federated.other_tool:RECIPE"
CONFIGS = {
    "training": lambda: parse(),
    "federated": lambda: federated_config(privacy={"mode": "sample", "noise_multiplier": 1.0}),
    "rl": lambda: rl_config(),
}


@pytest.fixture(autouse=True)
def _recipes_of_the_files(monkeypatch):
    monkeypatch.setenv("TRAINOPS_RECIPES", f"{os.environ['TRAINOPS_RECIPES']},{RECIPES}")


def kind_of(source):
    name = str(source)
    is_federated = "federated" in name or "fedmed" in name
    is_rl = "rl" in Path(name).stem or "hamlet" in name or "ep0" in Path(name).name
    return "federated" if is_federated else "rl" if is_rl and "epoch" not in name else "training"


def request(direction, config, **more):
    body = {"direction": direction, "kind": config.kind, "inputs": {}, "secret": SECRET,
            "config": config.model_dump(mode="json")}  # fmt: skip
    return exchange.answer(json.loads(json.dumps({**body, **more})))


def imported(file, config, root):
    answer = request("import", config, file=str(file), directory=str(root), identity={})
    assert "refused" not in answer, answer
    staged = answer["staged"]
    place = Candidate(root / staged["directory"], staged["digest"])
    return place, [Release.from_entry(Entry(**each)) for each in answer["entries"]]


def state_at(place):
    state = CheckpointStore(place.path.parent, identity={}).load(place)
    return {name: part for name, part in state.items() if name != "random"}


def trained(place, config, spent, root, steps):
    """Go on for some steps; return the next checkpoint, and all that was spent."""
    ledger = ServerLedger(spent, secret=bytes.fromhex(SECRET))
    job = KINDS[config.kind].make_job(config, {}, ledger)
    job.load_state_dict(state_at(place))
    before = job.step
    for _ in range(min(steps, job.total_steps - job.step)):
        job.advance()
    assert job.step > before
    written = CheckpointStore(root, identity={}).write(
        CheckpointType.PERIODIC,
        step=job.step,
        state=job.state_dict() | {"random": reproducibility.state_dict()},
    )
    return Candidate(written.path, written.digest), ledger.spent()


def exported(place, config, spent, file):
    entries = [asdict(each.to_entry()) for each in spent]
    return request("export", config, checkpoint=str(place.path), digest=place.digest,
                   file=str(file), name="circle", which="last", entries=entries)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("source", quick_some(ALL, every=4), ids=str)
def test_a_file_goes_in_is_trained_on_goes_out_and_comes_in_again(source, tmp_path):
    config = CONFIGS[kind_of(source)]()
    first, spent = imported(original(source, tmp_path), config, tmp_path / "first")
    second, spent = trained(first, config, spent, tmp_path / "second", steps=4)
    file = tmp_path / "out.pt"
    answer = exported(second, config, spent, file)
    assert "refused" not in answer, answer
    assert verify(file).passed
    third, again = imported(file, config, tmp_path / "third")
    mine, theirs = state_at(second), state_at(third)
    for name, weights in mine["model"].items():
        assert torch.equal(weights, theirs["model"][name]), name
    assert third.path.name.split("-")[1] == second.path.name.split("-")[1], "the same step"
    if config.kind == "federated":
        figures = [each["state"]["privacy"]["epsilon"] for each in (mine, theirs)]
        assert figures[1] >= figures[0] * (1 - 1e-12) > 0
    trained(third, config, again, tmp_path / "fourth", steps=2)


@pytest.mark.parametrize("source", ["training", "federated_completed", "rl"])
def test_a_file_that_fails_its_own_checks_is_not_exported(source, tmp_path, monkeypatch):
    config = CONFIGS[source.partition("_")[0]]()
    place, spent = imported(original(source, tmp_path), config, tmp_path / "first")
    spoil = {
        "training": ("export_training", lambda f: replace(f, global_step=0)),
        "federated": ("export_federated", lambda f: replace(
            f, privacy=replace(f.privacy, target_delta=2.0))),
        "rl": ("export_rl", lambda f: replace(f, action_dim=3)),
    }  # fmt: skip
    name, change = spoil[config.kind]
    theirs = import_module(f"trainops.kinds.{config.kind}.files.exchange")
    whole = getattr(theirs, name)
    monkeypatch.setattr(theirs, name, lambda *args, **more: change(whole(*args, **more)))
    file = tmp_path / "out.pt"
    refused = exported(place, config, spent, file)["refused"]
    assert refused["code"] == "EXPORT_NOT_VERIFIED"
    assert "fails its own checks" in refused["message"]
    assert not list(tmp_path.glob("out.pt*"))


@pytest.mark.slow
def test_a_ring_that_a_fork_enlarged_is_exported_as_one_that_is_not_full(tmp_path):
    """The other tool would learn from rows that nobody wrote, and verify refuses the file."""
    small = rl_config(replay={"capacity": 100})
    large = rl_config(replay={"capacity": 256})
    first, _ = imported(original("rl", tmp_path), small, tmp_path / "first")
    answer = request("fork", large, config_before=small.model_dump(mode="json"),
                     checkpoint=str(first.path), digest=first.digest,
                     directory=str(tmp_path / "fork"), identity={})  # fmt: skip
    assert "refused" not in answer, answer
    staged = answer["staged"]
    forked = Candidate(tmp_path / "fork" / staged["directory"], staged["digest"])
    second, _ = trained(forked, large, [], tmp_path / "second", steps=20)
    assert "refused" not in exported(second, large, [], tmp_path / "out.pt")
    ring = read_rl(tmp_path / "out.pt")[0].population.replay
    assert (ring.size, ring.position, ring.capacity) == (120, 120, 256)
    third, _ = imported(tmp_path / "out.pt", large, tmp_path / "third")
    mine, theirs = (
        state_at(each)["replay"].column("transition")[-120:] for each in (second, third)
    )
    assert torch.equal(mine, theirs) and bool((mine != 0).any(1).all())
