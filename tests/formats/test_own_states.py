"""What `checkpoints verify` compares within checkpoints of federated training and of backtests."""

import copy
from itertools import product

import pytest
import torch

from tests.backtest.market import make_job as make_backtest
from tests.backtest.market import walk
from tests.federated.runs import ServerLedger, make_job
from tests.thinning import quick_some
from trainops.files.verify import verify
from trainops.kinds.backtest.files.state import backtest_disagreements
from trainops.kinds.federated.files.state import federated_disagreements
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.checkpoint.store import CheckpointStore, CheckpointType


def federated(keeping="none", at=13, **config):
    job = make_job(keeping, ServerLedger(), **config)
    while job.step < at:
        job.advance()
    return freeze(job.state_dict())


def backtest(root, at=40):
    config = {"recipe": "sma_crossover", "parameters": {"fast": 2, "slow": 4, "entry": "limit"}}
    job = make_backtest(walk(100), root, chunk_bars=10, **config)
    while job.step < at:
        job.advance()
    return freeze(job.state_dict())


@pytest.mark.parametrize(
    ("at", "keeping"),
    quick_some([*product([0, 3, 8, 13, 24], ["none", "sample", "user", "hybrid"])], every=3),
)
def test_a_sound_federated_checkpoint_agrees(keeping, at):
    assert federated_disagreements(at, federated(keeping, at)) == {}


@pytest.mark.parametrize(
    ("at", "config"),
    [
        (4, {"batched_clients": True}),
        (12, {"batched_clients": True}),
        (6, {"fraction": 0.5}),
        (13, {"monitor": "val_accuracy", "mode": "max"}),
    ],
)
def test_other_federated_configs_agree_too(at, config):
    assert federated_disagreements(at, federated(at=at, **config)) == {}


def plain(**changes):
    return lambda state: state["state"].update(changes)


def line(**changes):
    return lambda state: state["state"]["round_history"][0].update(changes)


FEDERATED = {
    "no model": lambda state: state.pop("model"),
    "no server": lambda state: state.pop("server"),
    "no clients": lambda state: state.pop("clients"),
    "another client": plain(client=99),
    "another epoch": plain(client_epoch=77),
    "another round": plain(round=1000),
    "fewer rounds": plain(rounds=0),
    "more clients": plain(clients_done=9),
    "another order": plain(chosen=[3, 2, 1, 0]),
    "a line less": lambda state: state["state"]["round_history"].clear(),
    "a line's number": line(round=2),
    "a line's clients": line(clients=3),
    "the best metric": plain(best_metric=0.0),
    "the best round": plain(best_round=None),
    "no best model": lambda state: state.pop("best_model"),
    "a best model of other shapes": lambda state: state.update(
        best_model={"0.weight": torch.ones(1)}
    ),
    "a result less": lambda state: state["clients"]["done"].popitem(),
    "no client in training": lambda state: state["clients"].update(visit=None),
    "what was spent": lambda state: state.update(spent=None),
}


@pytest.mark.parametrize("name", quick_some(FEDERATED, every=3))
def test_a_federated_checkpoint_whose_parts_disagree_is_found(name):
    state = copy.deepcopy(federated())
    FEDERATED[name](state)
    assert federated_disagreements(13, state), name


def test_a_federated_checkpoint_of_another_step_is_found():
    assert federated_disagreements(14, federated()) == {
        "state": "is 13; by the rest of the checkpoint 14"
    }


@pytest.mark.parametrize("at", [0, 10, 40, 100])
def test_a_sound_backtest_agrees(at, tmp_path):
    assert backtest_disagreements(at, backtest(tmp_path, at)) == {}


BACKTEST = {
    "no broker": lambda state: state.pop("broker"),
    "no strategy": lambda state: state.pop("strategy"),
    "no equity": lambda state: state.update(equity=torch.ones(40)),
    "another bar": plain(bar_index=41),
    "other cash": plain(cash=1.0),
    "other cash of the account": lambda state: state["broker"]["account"].update(cash=1.0),
    "other equity": plain(equity=1.0),
    "a lower peak": plain(peak_equity=1.0),
    "more trades": plain(closed_trades=1000),
    "open trades": plain(open_trades=1000),
    "orders": plain(open_orders=1000),
    "an account's orders": lambda state: state["broker"]["account"].update(num_orders=1000),
    "the strategy's memory": lambda state: state["strategy"].pop("remembered"),
}


@pytest.mark.parametrize("name", BACKTEST)
def test_a_backtest_whose_parts_disagree_is_found(name, tmp_path):
    state = copy.copy(backtest(tmp_path))
    state |= {part: copy.deepcopy(state[part]) for part in ("state", "broker", "strategy")}
    BACKTEST[name](state)
    assert backtest_disagreements(40, state), name
    assert backtest_disagreements(41, backtest(tmp_path))


def test_verify_compares_and_says_what(tmp_path):
    """With fresh digests, so only the contents give it away."""
    store = CheckpointStore(tmp_path / "op", identity={})
    for step, state, words in (
        (13, federated(), "the best round"),
        (40, backtest(tmp_path), "equity and its peak"),
    ):
        sound = verify(store.write(CheckpointType.PERIODIC, step=step, state=state).path)
        (check,) = (each for each in sound.checks if each.name == "agreement")
        assert check.passed and words in check.detail
        wrong = {**state, "state": {**state["state"], "round": 7, "bar_index": 7}}
        report = verify(store.write(CheckpointType.PERIODIC, step=step + 1, state=wrong).path)
        (check,) = (each for each in report.checks if each.name == "agreement")
        assert not report.passed and not check.passed
