"""The job beside the contract: states that do not fit, masking, buffers, what a state tells."""

import copy
import math
from itertools import product

import pytest
import torch

from tests.federated.runs import ServerLedger, make_job, run_through
from trainops.kinds.federated import job as federated_job
from trainops.kinds.federated import server
from trainops.kinds.federated.masking import mask, unmask
from trainops.kinds.federated.options import ServerConfig
from trainops.kinds.federated.parameter_layout import average_of
from trainops.kinds.federated.rng import Secrets, begin_streams
from trainops.kinds.federated.strategies.strategy import FederatedStrategy
from trainops.media.names import CLIENTS
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.errors import IncompatibleState, NonFiniteLoss

MEANS = FederatedStrategy(ServerConfig(), torch.zeros(1))
NORMED = {"parameters": {"norm": True}}


def stopped(keeping="none", at=11, ledger=None, **config):
    reproducibility.seed_all(7)
    job = make_job(keeping, ledger, **config)
    while job.step < at:
        job.advance()
    return job


def changed(state, path, value):
    found = copy.deepcopy(state)
    owner = found
    for key in path[:-1]:
        owner = owner[key]
    owner[path[-1]] = value
    return found


def bits(job):
    frozen = freeze({name: part for name, part in job.state_dict().items() if name != "spent"})
    return job.secrets.identity("test", [frozen])


WRONG = [
    (("state", "round"), 2, "round is 2, but by the rest of the state 1"),
    (("state", "clients_done"), 3, "client is 1, but by the rest of the state 3"),
    (("state", "clients_done"), 9, "are no place in"),
    (("state", "client_epoch"), 5, "are no place in"),
    (("state", "chosen"), [0, 1], "chosen is"),
    (("state", "round_history"), [], "round is 1"),
    (("state", "best_metric"), 0.5, "best_metric is 0.5"),
    (("state", "clients"), {"a": 1}, "means cannot be read"),
    (("state",), [], "cannot be read"),
    (("model", "0.weight"), torch.zeros(2, 2), r"model.0.weight is torch.float32 \(2, 2\)"),
    (("server", "momentum"), torch.zeros(3), "server.momentum"),
    (("server",), {}, "server has"),
    (("clients", "done", "0", "vector"), torch.zeros(3), "clients.vector"),
    (("clients", "done", "0"), {}, "update cannot be read"),
    (("clients", "done"), {}, "0 clients are done, and they are not the first 1"),
    (("clients", "visit"), None, "without its epochs"),
    (("clients", "visit", "epoch"), 0, "a client is in epoch 0"),
    (("clients", "visit", "client"), 3, "not the one that is next"),
    (("clients", "visit", "parameters"), torch.zeros(3), "clients.visit.parameters"),
    (("clients", "visit", "optimizer"), {}, "optimizer"),
    (("clients", "visit", "sums"), {}, "sums cannot be read"),
    (("best_model",), {}, "best_model"),
]


@pytest.mark.parametrize(("path", "value", "problem"), WRONG, ids=lambda each: str(each)[:30])
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(path, value, problem):
    state = freeze(stopped().state_dict())
    job = stopped(at=3)
    before = bits(job)
    with pytest.raises(IncompatibleState, match=problem):
        job.load_state_dict(changed(state, path, value))
    assert bits(job) == before
    job.load_state_dict(state)
    assert job.step == 11


@pytest.mark.parametrize("part", ["model", "server", "clients", "state"])
def test_a_state_without_a_part_is_refused(part):
    state = freeze(stopped().state_dict())
    del state[part]
    with pytest.raises(IncompatibleState, match=f"lacks {part}"):
        make_job().load_state_dict(state)


@pytest.mark.slow
def test_a_state_that_keeps_privacy_is_not_for_a_run_that_does_not():
    private = freeze(stopped("sample").state_dict())
    with pytest.raises(IncompatibleState, match="uses privacy"):
        make_job().load_state_dict(private)
    with pytest.raises(IncompatibleState, match="uses privacy"):
        make_job("sample").load_state_dict(freeze(stopped().state_dict()))


@pytest.mark.parametrize("keeping", ["user", "hybrid"])
def test_clients_in_a_state_are_hidden_from_readers_without_the_secret(keeping):
    job = stopped(keeping, ledger=ServerLedger())
    state = freeze(job.state_dict())
    kept = torch.cat([
        each["vector"]["masked"].flatten() for each in state["clients"]["done"].values()
    ])  # fmt: skip
    assert 100 < kept.to(torch.float32).mean() < 155, "as random bytes are"
    plain = torch.cat([each.vector for each in job.server.updates.values()])
    assert not torch.equal(kept.view(torch.float32), plain)
    other = make_job(keeping, ServerLedger(job.ledger.releases(), secret=b"another"))
    with pytest.raises(IncompatibleState, match="masked with another secret"):
        other.load_state_dict(state)


def test_clients_with_something_in_common_do_not_look_so():
    """Adam counts a client's batches, and here all clients have as many."""
    clients = [stopped("user", at, ServerLedger(), optimizer="adam") for at in (1, 3)]
    kept = [freeze(job.state_dict())["clients"]["visit"]["optimizer"] for job in clients]
    assert torch.equal(*(job.local_training.optimizer.steps for job in clients))
    assert not torch.equal(*(each["steps"]["masked"] for each in kept))


def test_masking_is_undone_exactly_and_is_a_function_of_content_and_place():
    secrets = Secrets(b"ours", 0)
    tree = {"a": torch.randn(3, 4), "b": [torch.arange(5), torch.zeros(())], "c": (1.5, None),
            "none": torch.empty(0)}  # fmt: skip
    masked = mask(tree, secrets, 1, 2)
    back = unmask(masked, secrets, 1, 2)
    assert torch.equal(back["a"], tree["a"]) and torch.equal(back["b"][0], tree["b"][0])
    assert back["none"].shape == (0,) and back["c"] == [1.5, None]
    again = mask(tree, secrets, 1, 2)
    assert torch.equal(again["a"]["masked"], masked["a"]["masked"])
    others = mask({"a": tree["a"] + 1e-6}, secrets, 1, 2), mask(tree, secrets, 1, 3)
    assert len({each["a"]["stream"] for each in (masked, *others)}) == 3
    with pytest.raises(IncompatibleState, match="or in another place"):
        unmask(masked, secrets, 1, 3)


FIXED = {"parameters": {"frozen": True, "tied": True}}


@pytest.mark.parametrize("keeping", ["none", "sample", "user"])
def test_what_is_not_trained_is_the_checkpoints_and_what_is_tied_stays_so(keeping):
    ledger = ServerLedger()
    expected = stopped(keeping, ledger=ServerLedger(), **FIXED)
    assert list(expected.context.layout.frozen) == ["0.weight", "0.bias"]
    state = freeze(stopped(keeping, ledger=ledger, **FIXED).state_dict())
    model = state["model"]
    assert torch.equal(model["3.weight"], model["1.weight"]), "not what a client has of it"
    resumed = make_job(keeping, ledger, **FIXED)
    with torch.no_grad():  # as if another torch drew other weights
        resumed.context.model[0].weight.zero_()
    resumed.load_state_dict(state)
    for job in (expected, resumed):
        reproducibility.seed_all(9)
        run_through(job)
    assert bits(resumed) == bits(expected)


@pytest.mark.parametrize("keeping", ["none", "sample", "user"])
def test_buffers_that_no_model_saves_are_in_the_state_and_in_no_other(keeping):
    unsaved = {"parameters": {"unsaved": True}}
    expected = stopped(keeping, ledger=ServerLedger(), **unsaved)
    state = freeze(expected.state_dict())
    resumed = make_job(keeping, ServerLedger(expected.ledger.releases()), **unsaved)
    resumed.load_state_dict(state)
    for job in (expected, resumed):
        reproducibility.seed_all(9)
        run_through(job)
    assert bits(resumed) == bits(expected)
    seen = expected.state_dict()["model"]["1.batches"]
    assert seen.item() == (0 if keeping != "none" else 3 * 2 * 2), "counts are no gradients"


@pytest.mark.parametrize("keeping", ["user", "hybrid"])
def test_random_streams_do_not_tell_who_takes_part(keeping):
    """Streams are in checkpoints, and the seed is in the config."""
    job = stopped(keeping, at=1, ledger=ServerLedger(), parameters={"dropout": 0.0})
    kept = reproducibility.state_dict()["torch"]

    def could_be(secrets):
        for who, client, epoch in product(("client", "server"), range(4), ([], [1])):
            begin_streams(7, who, 1, client, *epoch, secrets=secrets)
            yield torch.equal(reproducibility.state_dict()["torch"], kept)

    assert any(could_be(job.secrets)) and not any(could_be(None))


@pytest.mark.parametrize("keeping", ["sample", "user", "hybrid", "together"])
def test_random_streams_do_not_tell_how_many_examples_a_person_has(keeping):
    """With dropout each example takes numbers from them, and checkpoints have their places."""
    together = {"batched_clients": True} if keeping == "together" else {}
    job = make_job("user" if together else keeping, ServerLedger(), parameters={"dropout": 0.3},
                   partition={"by": "dirichlet", "alpha": 1.0}, **together)  # fmt: skip
    while job.step < job.total_steps:
        job.advance()
        kept = reproducibility.state_dict()
        reproducibility.seed_all(torch.initial_seed())
        fresh = reproducibility.state_dict()
        assert job.secrets.identity("", [kept]) == job.secrets.identity("", [fresh])


def test_running_statistics_are_averaged_and_counters_hold_the_largest():
    one = {"mean": torch.tensor([1.0, 3.0]), "batches": torch.tensor(4)}
    other = {"mean": torch.tensor([5.0, 3.0]), "batches": torch.tensor(7)}
    averaged = average_of([one, other], torch.tensor([3.0, 1.0]), MEANS.combine)
    assert averaged["mean"].tolist() == [2.0, 3.0] and averaged["batches"].item() == 7


@pytest.mark.parametrize(
    ("dtype", "averaged"),
    [(torch.bool, True), (torch.uint8, 7), (torch.uint16, 7), (torch.uint64, 7), (torch.int64, 7),
     (torch.bfloat16, 2.5), (torch.complex64, 2.5)],
    ids=str,
)  # fmt: skip
def test_buffers_of_every_type_are_averaged_or_the_largest(dtype, averaged):
    one, other = (torch.tensor(value).to(dtype) for value in (1, 7))
    one = torch.zeros_like(one) if dtype == torch.bool else one
    buffers = [{"it": one}, {"it": other}]
    found = average_of(buffers, torch.tensor([3.0, 1.0]), MEANS.combine)["it"]
    assert found.dtype == dtype and found.shape == () and found.item() == averaged


def test_the_servers_model_has_the_clients_running_statistics():
    job = stopped(at=8, **NORMED)
    state = job.state_dict()["model"]
    assert state["1.num_batches_tracked"] > 0 and state["1.running_mean"].abs().sum() > 0


def with_a_broken_example(strategy):
    """Return a job of which one client has an example that is absurd, and finite."""
    job = make_job(**NORMED, server=strategy, local_epochs=1)
    job.context.train.inputs[0][job.context.parts[0][0]] = 1e25
    return job


@pytest.mark.parametrize(
    "strategy", [{"strategy": "median"}, {"strategy": "trimmed_mean", "trim": 0.3}]
)
def test_one_client_does_not_carry_away_the_statistics_that_others_measured(strategy):
    job = with_a_broken_example(strategy)
    run_through(job)
    assert all(bool(torch.isfinite(each).all()) for each in job.server.buffers.values())


def test_statistics_that_are_no_numbers_fail_the_step_and_are_named():
    with pytest.raises(NonFiniteLoss, match=r"the server's 1\.running_var became nan in step 4"):
        run_through(with_a_broken_example({"strategy": "fedavg"}))


def test_a_loss_that_explodes_fails_the_step_and_names_it():
    job = make_job(parameters={"norm": True, "explode_in_batch": 7})
    with pytest.raises(NonFiniteLoss) as found:
        run_through(job)
    assert found.value.step > 1


def test_the_best_model_is_of_a_completed_round_and_no_alias():
    job = stopped(at=8, rounds=6)
    best = {name: each.clone() for name, each in job.state_dict()["best_model"].items()}
    while job.step < 15:
        job.advance()
    for name, each in job.state_dict()["best_model"].items():
        assert torch.equal(each, best[name]), name


def test_a_round_whose_metric_is_not_finite_is_never_the_best():
    progress = make_job(mode="max").progress
    found = []
    for number, value in enumerate([math.inf, 1.0, math.nan, 2.0, math.inf, 2.0], start=1):
        progress.history.append({"round": number, "val_loss": value})
        found.append((progress.best.round, progress.best.metric))
    assert found == [(None, None), (2, 1.0), (2, 1.0), (4, 2.0), (4, 2.0), (4, 2.0)]


@pytest.mark.parametrize("keeping", ["sample", "user", "hybrid"])
def test_no_figure_of_the_clients_own_examples_is_reported(keeping):
    job, curve = make_job(keeping, ServerLedger()), {}
    curve = run_through(job)
    names = {name for metrics in curve.values() for name in metrics}
    assert names == {"val_loss", "val_accuracy", "epsilon"}
    assert job.state_dict()["state"]["clients"] == {}


def test_of_many_clients_the_first_have_points_of_their_own(monkeypatch):
    monkeypatch.setattr(server, "NUM_FOLLOWED", 2)
    of_clients = {name for metrics in run_through(make_job()).values() for name in metrics}
    of_clients = {name for name in of_clients if name.startswith(CLIENTS)}
    figures = ("train_accuracy", "train_loss", "update_norm")
    assert of_clients == {f"{CLIENTS}{client}/{name}" for client in (0, 1) for name in figures}


def test_of_many_rounds_some_have_points_of_single_clients(monkeypatch):
    monkeypatch.setattr(federated_job, "NUM_ROUNDS_FOLLOWED", 3)
    points = run_through(make_job(rounds=7, local_epochs=1))
    followed = [any(name.startswith(CLIENTS) for name in each) for each in points.values()]
    assert followed == [False, False, True, False, False, True, False]


def test_a_fork_continues_for_more_rounds():
    job = stopped(at=24)
    state = freeze(job.state_dict())
    longer = make_job(rounds=5)
    longer.load_state_dict(state)
    assert (longer.step, longer.total_steps) == (24, 40)
    run_through(longer)
    assert len(longer.progress.history) == 5


@pytest.mark.slow
def test_how_far_each_client_moved_the_model_is_reported_where_no_privacy_is_kept():
    job = make_job()
    while not job.progress.history:
        sent = dict(job.server.updates)
        job.advance()
    for client, update in sent.items():
        norm = job.server.means[client]["update_norm"]
        assert norm == pytest.approx(update.vector.norm().item(), rel=1e-6)
    for keeping in ("sample", "user", "hybrid"):
        hidden = make_job(keeping, ServerLedger())
        run_through(hidden)
        assert not hidden.server.means
