"""All clients of a round at once: close to one after the other, and exact among themselves.

Close is right here, and only here: the sums of a batched multiplication are taken in another order,
so the last bits differ from those of one client alone. What is resumed must still be equal.
"""

import copy
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import nn

from tests.engines.contract import require_same_end
from tests.federated.runs import ServerLedger, case, go, make_job, run_through
from trainops.kind import KINDS
from trainops.kinds.federated import batches, metric_accumulation
from trainops.kinds.federated.fast.batched_clients import BatchedClients, require_stackable
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.errors import ConfigError, IncompatibleState, InputError, NonFiniteLoss

AT_ONCE = {"batched_clients": True}
UNEVEN = {"partition": {"by": "dirichlet", "alpha": 0.7}, "batch_size": 5, "fraction": 0.8}
CALM = {"parameters": {"dropout": 0.0}}  # dropout draws other masks for all than for each
CLOSE = {"rtol": 1e-4, "atol": 1e-6}
WAYS = [
    {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.1},
    {"optimizer": "sgd", "server": {"strategy": "fedprox", "proximal": 2.0}},
    {"optimizer": "adam", "weight_decay": 0.1, "local_epochs": 3},
    {"optimizer": "adamw", "weight_decay": 0.1, "server": {"strategy": "fedadam"}},
    {"optimizer": "sgd", "server": {"strategy": "median"}},
    {"optimizer": "sgd", "parameters": {"dropout": 0.0, "frozen": True, "tied": True}},
]


def ended(keeping="none", **config):
    reproducibility.seed_all(7)
    job = make_job(keeping, **config)
    run_through(job)
    return job


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_at_once_is_one_after_the_other_but_for_the_last_bits(way):
    config = {**UNEVEN, **CALM, **way}
    each, together = ended(**config), ended(**config, **AT_ONCE)
    assert together.step == each.step == each.total_steps
    sizes = {len(part) for part in each.context.parts}
    assert len(sizes) == 4, "clients of different sizes"
    torch.testing.assert_close(together.server.parameters, each.server.parameters, **CLOSE)
    assert not torch.equal(each.server.parameters, make_job(**config).server.parameters)
    for mine, other in zip(together.progress.history, each.progress.history, strict=True):
        assert mine == pytest.approx(other, rel=1e-4)
    for client, means in each.server.means.items():
        assert together.server.means[client] == pytest.approx(means, rel=1e-4)


@pytest.mark.parametrize("module", [batches, metric_accumulation], ids=["inputs", "outputs"])
@pytest.mark.parametrize("most", [1, 100])
def test_how_much_is_gathered_at_a_time_changes_nothing(module, most, monkeypatch):
    expected = ended(**UNEVEN, **CALM, **AT_ONCE)
    monkeypatch.setattr(module, "MOST_NUMBERS", most)
    found = ended(**UNEVEN, **CALM, **AT_ONCE)
    assert torch.equal(found.server.parameters, expected.server.parameters)
    for client, means in expected.server.means.items():
        assert found.server.means[client] == pytest.approx(means, rel=1e-6)


def test_clipped_updates_of_clients_at_once_are_those_of_each():
    config = {**UNEVEN, **CALM, "fraction": 1.0, "optimizer": "sgd", "learning_rate": 1.0,
              "privacy": {"max_update_norm": 0.5}}  # fmt: skip
    reproducibility.seed_all(7)
    each = make_job("user", **config)
    reproducibility.seed_all(7)
    together = make_job("user", **config, **AT_ONCE)._visit()
    together.train("", 1)
    for client, update in together.updates():
        local_training = each.server.receive(client, 1)
        local_training.train("", 1)
        ((_, alone),) = local_training.updates()
        assert not update.means and update.vector.norm() <= 0.5 * (1 + 1e-5)
        torch.testing.assert_close(update.vector, alone.vector, **CLOSE)


def run_round(job, steps):
    while job.step < steps:
        job.advance()


BUILT_IN = [
    ("federated_digits", {"network": "mlp", "hidden": 8}),
    ("federated_digits", {"network": "cnn", "norm": "group", "channels": 2, "hidden": 8}),
    ("federated_segmentation", {"images": 20, "size": 16, "channels": 2}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "parameters"), BUILT_IN, ids=str)
def test_built_in_networks_can_be_trained_at_once(recipe, parameters):
    config = {"recipe": recipe, "parameters": parameters, "rounds": 1, "clients": 3,
              "batch_size": 16, "optimizer": "sgd", "server": {"strategy": "fedavg"}}  # fmt: skip
    each, together = ended(**config), ended(**config, **AT_ONCE)
    torch.testing.assert_close(together.server.parameters, each.server.parameters, **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("keeping", ["none", "user"])
def test_killed_at_each_safe_point_it_ends_exactly(keeping, tmp_path):
    tried = case(keeping, **UNEVEN, **AT_ONCE, local_epochs=3, rounds=2, momentum=0.9)
    expected = go(tried, tmp_path / "whole", ServerLedger(), every_steps=1)
    steps = [each.step for each in expected.progress]
    assert len(steps) > 5 and max(b - a for a, b in pairwise(steps)) > 1
    for at in steps[1:-1]:
        root, ledger = tmp_path / str(at), ServerLedger()
        first = go(tried, root, ledger, at=at, dies=True, every_steps=1)
        second = go(tried, root, ledger, resume=first.checkpoints[::-1], number=2)
        before = steps[steps.index(at) - 1]
        assert second.progress[0].step == before, "nothing but the last epoch is done again"
        require_same_end(expected, [first, second])
    for at in steps[1:-1]:
        root, ledger = tmp_path / f"stop-{at}", ServerLedger()
        first = go(tried, root, ledger, at=at)
        second = go(tried, root, ledger, resume=first.checkpoints, number=2)
        assert all(receipt.exact for receipt in second.receipts)
        require_same_end(expected, [first, second])


def in_training(**config):
    """Return a job whose clients have done the first of two epochs of the second round."""
    reproducibility.seed_all(7)
    job = make_job(**{**AT_ONCE, **config})
    run_round(job, 12)
    assert isinstance(job.local_training, BatchedClients) and (
        job.progress.number,
        job.progress.epoch,
    ) == (2, 1)
    return job


@pytest.mark.parametrize("forgotten", ["parameters", "moments", "steps", "sums"])
def test_nothing_of_what_is_kept_may_be_left_out(forgotten):
    state = freeze(in_training().state_dict())
    expected, other = make_job(**AT_ONCE), make_job(**AT_ONCE)
    expected.load_state_dict(state)
    broken = copy.deepcopy(state)
    found = broken["clients"]["visit"]
    kept = {**found, "moments": found["optimizer"]["moments"][0],
            "steps": found["optimizer"]["steps"]}  # fmt: skip
    kept[forgotten].zero_()
    other.load_state_dict(broken)
    ends = []
    for job in (expected, other):
        reproducibility.seed_all(7)
        points = run_through(job)
        ends.append((points, job.server.parameters.tolist()))
    assert ends[0] != ends[1]


WRONG = [
    (("epoch",), 0, "a client is in epoch 0"),
    (("epoch",), 1.0, "clients.visit.epoch is 1.0"),
    (("clients",), [0, 1, 2, 3], "clients in training together: not those"),
    (("client",), 2, "client in training together: not those"),
    (("parameters",), torch.zeros(3), "clients.visit.parameters"),
    (("optimizer", "steps"), torch.zeros(3), "clients.visit.optimizer.steps"),
    (("optimizer", "moments"), [], "clients.visit.optimizer.moments"),
    (("sums",), torch.zeros(4, 2), "clients.visit.sums"),
]


@pytest.mark.parametrize(("path", "value", "problem"), WRONG, ids=str)
def test_a_state_that_does_not_fit_is_refused(path, value, problem):
    uneven = {**UNEVEN, "fraction": 1.0}
    state = copy.deepcopy(freeze(in_training(**uneven).state_dict()))
    owner = state["clients"]["visit"]
    for name in path[:-1]:
        owner = owner[name]
    owner[path[-1]] = value
    with pytest.raises(IncompatibleState, match=problem):
        make_job(**AT_ONCE, **uneven).load_state_dict(state)


def test_under_user_level_privacy_a_state_says_neither_who_they_are_nor_how_they_do():
    reproducibility.seed_all(7)
    job = make_job("user", ServerLedger(), **AT_ONCE, **UNEVEN)
    while not (job.local_training and job.progress.epoch):
        job.advance()
    state = freeze(job.state_dict())
    local_training = state["clients"]["visit"]
    assert (
        local_training.keys() == {"client", "epoch", "parameters", "optimizer"}
        and local_training["client"] == 0
    )
    assert state["state"]["chosen"] is None
    rows = job.local_training.rows
    kept = local_training["parameters"]["masked"].view(torch.float32).view_as(rows)
    assert not torch.equal(kept, rows)


@pytest.mark.parametrize("keeping", ["none", "user"])
def test_every_state_between_rounds_is_taken_over_also_without_clients(keeping):
    ledger = ServerLedger()
    reproducibility.seed_all(7)
    few = {"fraction": 0.15, "rounds": 6, **AT_ONCE}
    job = make_job(keeping, ledger, **few)
    if keeping == "user":
        assert () in [job.context.schedule.chosen(number) for number in range(1, 7)]
    while True:
        again = make_job(keeping, ServerLedger(ledger.spent()), **few)
        again.load_state_dict(freeze(job.state_dict()))
        assert (again.step, again.place) == (job.step, job.place)
        if job.step == job.total_steps:
            break
        job.advance()
    assert job.progress.is_over


def test_a_state_of_one_after_the_other_is_not_for_all_at_once():
    one = make_job()
    run_round(one, 3)
    with pytest.raises(IncompatibleState):
        make_job(**AT_ONCE).load_state_dict(freeze(one.state_dict()))
    with pytest.raises(IncompatibleState):
        make_job().load_state_dict(freeze(in_training().state_dict()))


def test_batch_normalisation_is_refused_with_the_way_out():
    with pytest.raises(InputError) as found:
        make_job(**AT_ONCE, parameters={"norm": True})
    assert "1.running_mean" in found.value.errors["batched_clients"]
    assert "parameters.norm = group" in found.value.errors["batched_clients"]


@pytest.mark.parametrize("mode", ["sample", "hybrid"])
def test_noise_for_each_example_is_refused_before_the_run(mode):
    engine = KINDS["federated"]
    config = {**case(mode).config, **AT_ONCE}
    with pytest.raises(ConfigError) as found:
        engine.parse_config(config)
    assert repr(mode) in found.value.errors["batched_clients"]


def test_a_model_that_cannot_be_stacked_is_refused():
    with pytest.raises(InputError) as found:
        make_job(**AT_ONCE, parameters={"decides": True})
    assert "cannot be stacked" in found.value.errors["batched_clients"]


def weighted(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, weight=torch.tensor([1.0, 5.0, 20.0]))


def some_ignored(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, ignore_index=0)


@pytest.mark.parametrize("loss", [weighted, some_ignored])
def test_a_loss_that_is_no_mean_of_examples_own_is_refused(loss):
    context = make_job(batch_size=16).context
    require_stackable(context)
    del context.losses
    context.ingredients = replace(context.ingredients, loss=loss)
    with pytest.raises(InputError) as found:
        require_stackable(context)
    assert "the mean of their own" in found.value.errors["batched_clients"]


def test_weights_of_classes_are_noticed_also_where_a_new_model_answers_all_alike():
    context = make_job(batch_size=16).context
    with torch.no_grad():
        for each in context.model[-1].parameters():
            each.zero_()
    require_stackable(context)
    del context.losses
    context.ingredients = replace(context.ingredients, loss=weighted)
    with pytest.raises(InputError, match="the mean of their own"):
        require_stackable(context)


def test_one_ignored_target_among_all_is_noticed():
    context = make_job(batch_size=4).context
    require_stackable(context)
    context.train.targets[-1] = -100  # what torch's cross entropy leaves out
    with pytest.raises(InputError, match="targets that are ignored"):
        require_stackable(context)


def test_shares_are_as_precise_as_the_model():
    job = make_job(batch_size=3)
    job.context.layout.values = job.context.layout.values.double()
    for found in batches.batches_of(job.context, job.progress.chosen, 1, 0):
        sums = found.shares.sum(dim=2)
        torch.testing.assert_close(sums, torch.ones_like(sums), rtol=1e-15, atol=0)


def test_a_loss_that_explodes_fails_the_step():
    job = make_job(**AT_ONCE, learning_rate=100.0, optimizer="sgd", rounds=200)
    with pytest.raises(NonFiniteLoss):
        run_through(job)


def test_the_place_tells_that_they_are_at_once():
    assert in_training().place == "1 of 3 rounds, 4 clients at once, 1 of 2 epochs"
