"""A warm start of agents and of a federation has their networks, and is otherwise a new run."""

import pytest
import torch

from tests.engines.contract import Case, ScriptedSupervisor, attempt, bits, undisturbed
from tests.federated import runs
from tests.rl import cases as rl
from trainops.kind import KINDS
from trainops.process.warm_start import _filled, warm_start
from trainops.runtime.checkpoint.store import Candidate, CheckpointStore
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.ledger import MemoryLedger
from trainops.runtime.loop import Succeeded

pytestmark = pytest.mark.slow
DQN = Case("rl", "dqn", dict(rl.CASES[0][1]), ())
SEPARATE = Case("rl", "separate", dict(rl.CASES[4][1]), ())
PPO = Case("rl", "ppo", dict(rl.CASES[5][1]), ())
TOY = Case("training", "toy", {"recipe": "toy", "epochs": 1, "batch_size": 8}, ())
STATISTICS = ("bias", "running_mean", "running_var", "weight")  # of a batch norm
CASES = [DQN, SEPARATE, PPO, runs.case(), runs.case("sample"), runs.case("user", fraction=0.8)]


def config_of(case, **changes):
    return KINDS[case.kind].parse_config({"seed": 7, **case.config, **changes})


def warmed(case, source, root, ledger=None, **changes):
    return warm_start(
        KINDS[case.kind],
        source=Candidate(source.path, source.digest),
        config=config_of(case, **changes),
        inputs={},
        store=CheckpointStore(root, identity={"attempt": 0}),
        ledger=ledger,
    )


def state_of(checkpoint):
    candidate = Candidate(checkpoint.path, checkpoint.digest)
    return CheckpointStore(checkpoint.path.parent, identity={}).load(candidate)


def new_ledger():
    return MemoryLedger(secret=b"of the new operation")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}-{case.name}")
def test_it_starts_with_the_weights_and_is_otherwise_new(tmp_path, case):
    source = undisturbed(case, tmp_path / "source").checkpoints[-1]
    begun, receipt = warmed(case, source, tmp_path / "warm", new_ledger(), seed=8)
    networks = ["model", "target"] if "target" in state_of(source) else ["model"]
    found, given = state_of(begun), state_of(source)["model"]
    new = KINDS[case.kind].make_job(config_of(case, seed=8), {}, new_ledger()).state_dict()
    assert [item.part for item in receipt.items] == networks
    assert all(item.exact and f"{len(given)} of" in item.note for item in receipt.items)
    assert all(bits(found[name]) == bits(given) for name in networks)
    assert all(bits(new["model"]) != bits(given) for name in networks)
    others = new.keys() - {*networks, "random"}
    assert {name: bits(found[name]) for name in others} == {
        name: bits(new[name]) for name in others
    }

    heard, ledger = ScriptedSupervisor(), new_ledger()
    outcome = attempt(case, tmp_path / "warm", heard, resume=[begun], ledger=ledger, seed=8)
    assert isinstance(outcome, Succeeded), outcome
    assert heard.receipts[0].exact and heard.receipts[0].step == 0


def test_networks_of_more_agents_start_as_new_ones_and_are_named(tmp_path):
    source = undisturbed(SEPARATE, tmp_path / "source").checkpoints[-1]
    begun, receipt = warmed(SEPARATE, source, tmp_path / "warm", agents=4)
    given, found = state_of(source)["model"], state_of(begun)["model"]
    assert all(torch.equal(found[name], given[name]) for name in given)
    missing = sorted(found.keys() - given.keys())
    assert missing and all(name.startswith("3.") for name in missing)
    assert f"missing: {', '.join(missing)}" in receipt.items[0].note


def test_networks_of_fewer_agents_are_named_as_unexpected(tmp_path):
    source = undisturbed(SEPARATE, tmp_path / "source").checkpoints[-1]
    begun, receipt = warmed(SEPARATE, source, tmp_path / "warm", agents=2)
    given, found = state_of(source)["model"], state_of(begun)["model"]
    assert all(torch.equal(given[name], found[name]) for name in found)
    unexpected = sorted(given.keys() - found.keys())
    assert unexpected and all(name.startswith("2.") for name in unexpected)
    item = receipt.items[0]
    assert f"unexpected: {', '.join(unexpected)}" in item.note
    assert "missing" not in item.note and "shape" not in item.note
    assert item.restored and not item.exact


def test_weights_of_another_shape_start_as_new_ones_and_are_named(tmp_path):
    source = undisturbed(TOY, tmp_path / "source").checkpoints[-1]
    begun, receipt = warmed(TOY, source, tmp_path / "warm", parameters={"width": 5})
    given, found = state_of(source)["model"], state_of(begun)["model"]
    new = KINDS["training"].make_job(config_of(TOY, parameters={"width": 5}), {}).state_dict()
    fitting = {"1.num_batches_tracked", "2.batches", "4.bias"}
    for name, each in found.items():
        assert torch.equal(each, (given if name in fitting else new["model"])[name]), name
    (item,) = receipt.items
    assert item.note == (
        f"3 of {len(found)} tensors; of another shape: 0.weight (6, 4), not (5, 4), "
        + "".join(f"1.{name} (6,), not (5,), " for name in STATISTICS)
        + "4.weight (3, 6), not (3, 5)"
    )
    assert item.restored and not item.exact


def test_of_many_names_the_first_are_listed_with_the_number_of_the_others():
    given = {f"layer{number:02}": torch.zeros(1) for number in range(14)}
    taken, item = _filled("model", {"layer00": torch.ones(1)}, given)
    assert torch.equal(taken["layer00"], given["layer00"])
    names = ", ".join(f"layer{number:02}" for number in range(1, 11))
    assert item.note == f"1 of 1 tensors; unexpected: {names} and 3 more"


def test_weights_of_another_algorithm_are_refused(tmp_path):
    source = undisturbed(DQN, tmp_path / "source").checkpoints[-1]
    with pytest.raises(IncompatibleState, match=r"none of the weights can be taken .*missing"):
        warmed(PPO, source, tmp_path / "warm")
    assert not (tmp_path / "warm").exists()
