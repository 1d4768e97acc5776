"""What a federated file says was spent is in the ledger after its import, all of it."""

import math
from dataclasses import replace
from itertools import product

import pytest

from tests.federated.runs import ServerLedger, make_job, releases_of, run_through
from tests.formats.originals import REAL, original, save, tree
from tests.formats.test_federated_exchange import _other_tool, config, exported_and_read, goes_on
from tests.thinning import quick_some
from trainops.kinds.federated.files.exchange import read_federated
from trainops.kinds.federated.files.importing import import_federated
from trainops.runtime import reproducibility
from trainops.runtime.errors import IncompatibleState

pytestmark = pytest.mark.slow

MID = "federated_mid_round"
SAMPLE = {"mode": "sample", "noise_multiplier": 1.0}
__all__ = ["_other_tool"]  # the recipe of the other tool's files


def opacus(*spent, delta=1e-5):
    """Return Opacus' Rényi epsilon of (noise multiplier, sample rate, steps)."""
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = list(spent)
    return accountant.get_epsilon(delta)


def documented(tmp_path, **privacy):
    """Return the mid-round example of the format's documentation: 300 steps, and 60 of client 0."""
    content = tree(MID)
    client = content["clients"][0]
    client["partial_privacy"] = {"epsilon": 0.5, "steps": 60}
    client["num_samples"] = 100
    content["clients"][1] |= {
        "epoch": {"current": 0, "total": 5, "status": "pending"}, "num_samples": 0,
        "partial_metrics": {"loss_sum": 0.0, "epochs_done": 0},
        "partial_privacy": {"epsilon": 0.0, "steps": 0},
        "final_parameters": None, "final_metrics": None,
    }  # fmt: skip
    content["round"] = {"current": 4, "total": 10, "status": "in_progress"}
    content["privacy"] |= {
        "sample_history": [(1.0, 0.1, 100)] * 3, "cumulative_sample_epsilon": 2.8,
        "partial_round_epsilon": 0.5, **privacy,
    }  # fmt: skip
    return read_federated(save(content, tmp_path / "documented.pt"))


def spent_of(imported):
    """Return what a job says that was spent when it has loaded an imported state."""
    return imported.state["state"]["privacy"]["epsilon"]


@pytest.mark.slow
def test_steps_of_the_round_in_progress_are_counted_as_opacus_counts_them(tmp_path):
    file, parsed = documented(tmp_path), config(rounds=10, privacy=SAMPLE)
    imported = import_federated(file, parsed, secret=b"ours")
    assert imported.step == 33, "client 0 goes on at epoch 3 of 5"
    assert spent_of(imported) == pytest.approx(opacus((1.0, 0.1, 360)), rel=1e-9)
    assert not any(entry.carried for entry in releases_of(imported.entries))
    item = next(
        each for each in imported.receipt.items if each.part == "privacy: round in progress"
    )
    assert item.note == "60 steps are counted for every client" and not item.exact


@pytest.mark.slow
def test_the_run_continues_from_what_the_round_has_spent(tmp_path):
    file, parsed = documented(tmp_path), config(rounds=4, privacy=SAMPLE)
    imported = import_federated(file, parsed, secret=b"ours")
    job = goes_on(imported, parsed, ServerLedger(releases_of(imported.entries), secret=b"ours"))
    (own,) = {
        (each.noise_multiplier, each.sample_rate, each.steps)
        for each in job.ledger.releases() if each.client == 1
    }  # fmt: skip
    expected = opacus((1.0, 0.1, 360), *[own] * 5)  # client 1 trains all five epochs of round 4
    assert job.noise_accounting.budget.total()["epsilon"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("source", [MID, *(p for p in REAL if "mid_round" in str(p))], ids=str)
def test_a_file_without_histories_is_never_cheaper_than_what_it_did(source, tmp_path):
    """Two rounds of 15 steps, then 15 more of client 1, at 1/3 with noise multiplier 1."""
    file = read_federated(original(source, tmp_path))
    parsed = config(privacy=SAMPLE)
    imported = import_federated(file, parsed, secret=b"ours")
    assert spent_of(imported) > opacus((1.0, 1 / 3, 45))
    assert math.isclose(
        spent_of(imported),
        file.privacy.cumulative_sample_epsilon + file.clients[1].epsilon,
    )
    notes = {item.part: item for item in imported.receipt.items}
    assert not notes["privacy: round in progress"].exact


def test_a_first_round_in_progress_is_not_called_free(tmp_path):
    file = documented(tmp_path, sample_history=[], cumulative_sample_epsilon=0.0)
    file = replace(file, round=replace(file.round, current=1))
    parsed = config(privacy=SAMPLE)
    imported = import_federated(file, parsed, secret=b"ours")
    assert spent_of(imported) == 0.5
    assert not any("not counted" in item.note for item in imported.receipt.items)


@pytest.mark.parametrize("at", [1, 3, 6, 8, 11, 13, 16])
def test_our_own_file_spends_exactly_what_our_ledger_has(at, tmp_path):
    """No more, no less: within a round and between two, and to the end."""
    reproducibility.seed_all(7)
    job = make_job("sample", ServerLedger(), server={"strategy": "fedavg"},
                   partition={"by": "dirichlet", "alpha": 1.0})  # fmt: skip
    while job.step < at:
        job.advance()
    imported = import_federated(exported_and_read(job, tmp_path), job.config, secret=b"ours")
    assert imported.step == at
    account = job.noise_accounting.budget
    if at <= 8:  # later the histories are the worst client's, and count for each
        assert spent_of(imported) == pytest.approx(account.epsilon, rel=1e-12)
    assert spent_of(imported) >= account.epsilon * (1 - 1e-12)
    assert not any(entry.carried for entry in releases_of(imported.entries))


@pytest.mark.slow
def test_our_own_file_of_equal_clients_costs_at_the_end_what_the_run_costs(tmp_path):
    reproducibility.seed_all(7)
    job = make_job("sample", ServerLedger(), server={"strategy": "fedavg"})
    while job.step < 13:
        job.advance()
    imported = import_federated(exported_and_read(job, tmp_path), job.config, secret=b"ours")
    again = goes_on(
        imported, job.config, ServerLedger(releases_of(imported.entries), secret=b"ours")
    )
    run_through(job)
    mine, other = (each.noise_accounting.budget.total()["epsilon"] for each in (job, again))
    assert other == pytest.approx(mine, rel=1e-9)


def test_cumulative_figures_are_of_completed_rounds(tmp_path):
    job = make_job("sample", ServerLedger())
    while job.step < 8:
        job.advance()
    completed = exported_and_read(job, tmp_path).privacy
    while job.step < 11:
        job.advance()
    file = exported_and_read(job, tmp_path)
    assert file.privacy.cumulative_sample_epsilon == completed.cumulative_sample_epsilon
    assert file.privacy.sample_history == completed.sample_history
    increase = job.noise_accounting.budget.epsilon - completed.cumulative_sample_epsilon
    assert file.privacy.partial_round_epsilon == pytest.approx(increase)


SPENDING = {
    "sample_history": lambda file: privacy(file, sample_history=((1.0, 0.2, 50),)),
    "user_history": lambda file: privacy(file, user_history=((1.0, 1.0, 2),)),
    "cumulative_sample_epsilon": lambda file: privacy(file, cumulative_sample_epsilon=3.0),
    "cumulative_user_epsilon": lambda file: privacy(file, cumulative_user_epsilon=3.0),
    "partial_round_epsilon": lambda file: privacy(file, partial_round_epsilon=3.0),
    "partial_privacy.epsilon": lambda file: client(file, epsilon=3.0),
    "final_metrics.epsilon": lambda file: client(file, final_metrics={"epsilon": 3.0}),
    "metrics.epsilon": lambda file: metrics(file, epsilon=3.0),
    "metrics.sample_epsilon": lambda file: metrics(file, cumulative_sample_epsilon=3.0),
    "metrics.user_epsilon": lambda file: metrics(file, user_epsilon=3.0),
}


def privacy(file, **changes):
    return replace(file, privacy=replace(file.privacy, **changes))


def client(file, **changes):
    return replace(file, clients=file.clients | {0: replace(file.clients[0], **changes)})


def metrics(file, **changes):
    return replace(file, server=replace(file.server, metrics=changes))


def free(tmp_path):
    """Return the file without anything spent."""
    file = documented(tmp_path, sample_history=[], cumulative_sample_epsilon=0.0,
                      partial_round_epsilon=0.0)  # fmt: skip
    return client(file, epsilon=0.0, steps=0)


@pytest.mark.parametrize(
    ("name", "keeping"), quick_some([*product(SPENDING, ["hybrid", "user", "sample"])], every=7)
)
def test_every_field_that_holds_a_loss_is_entered(name, keeping, tmp_path):
    noise = {"user_noise_multiplier": 1.0} if keeping != "sample" else {}
    noise |= {"noise_multiplier": 1.0} if keeping != "user" else {}
    parsed = config(rounds=10, privacy={"mode": keeping, **noise})
    nothing = import_federated(free(tmp_path), parsed, secret=b"ours")
    something = import_federated(SPENDING[name](free(tmp_path)), parsed, secret=b"ours")
    assert spent_of(nothing) == 0
    assert spent_of(something) >= 3
    plain = import_federated(SPENDING[name](free(tmp_path)), config(rounds=10))
    notes = {item.part: item for item in plain.receipt.items}
    assert not notes["privacy"].exact


@pytest.mark.parametrize("changes", [{"steps": 60}, {"final_metrics": {"steps": 60.0}}])
def test_steps_whose_cost_nothing_says_are_refused(changes, tmp_path):
    file = client(free(tmp_path), **changes)
    with pytest.raises(IncompatibleState, match=r"clients\[0\].partial_privacy.steps is 60; neit"):
        import_federated(file, config(rounds=10, privacy=SAMPLE), secret=b"ours")


@pytest.mark.parametrize(
    ("metrics", "problem"),
    [
        ({"epsilon": 1.0, "delta": 1e-3}, "delta is 0.001; allowed: at most 1e-05"),
        ({"epsilon": math.nan}, "epsilon is nan; allowed"),
        ({"epsilon": math.inf}, "epsilon is inf; allowed"),
        ({"steps": -3.0}, "steps is -3; allowed"),
        ({"epsilon": 1.0, "sample_rate": 0.0}, "sample_rate is 0; allowed: above 0"),
    ],
)
def test_figures_of_clients_that_are_none_are_refused(metrics, problem, tmp_path):
    file = client(documented(tmp_path), final_metrics=metrics)
    with pytest.raises(IncompatibleState, match=problem):
        import_federated(file, config(rounds=10, privacy=SAMPLE), secret=b"ours")


def test_a_client_without_a_stated_cost_trains_its_round_anew_under_noise(tmp_path):
    file = client(documented(tmp_path), epsilon=0.0, steps=0)
    imported = import_federated(file, config(rounds=10, privacy=SAMPLE), secret=b"ours")
    assert imported.step == 30
