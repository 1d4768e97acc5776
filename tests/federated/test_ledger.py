"""What is spent stays spent: other noise adds, nothing is refunded, contradictions are refused."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

from tests.federated.runs import ServerLedger, case, go, make_job, run_through
from tests.thinning import quick_some
from trainops.kinds.federated import context, prv_accountant
from trainops.kinds.federated.account import Account, steps_of_epoch
from trainops.kinds.federated.accounting import epsilon
from trainops.kinds.federated.release_log import entries_of
from trainops.kinds.federated.releases import Release
from trainops.runtime import lossless, reproducibility
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.errors import InputError, LedgerMismatch
from trainops.runtime.loop import Failed


def stopped(ledger, mode="sample", at=5, **config):
    """Return a job and its state after N client epochs."""
    reproducibility.seed_all(7)
    job = make_job(mode, ledger, **config)
    while job.step < min(at, job.total_steps):
        job.advance()
    return job, freeze(job.state_dict())


def resumed(state, ledger, mode="sample", **config):
    job = make_job(mode, ledger, **config)
    job.load_state_dict(freeze(state))
    return job


@pytest.mark.parametrize("mode", ["sample", "user", "hybrid"])
def test_from_an_older_checkpoint_with_other_noise_more_is_spent_never_less(mode):
    ledger = ServerLedger()
    job, state = stopped(ledger, mode, at=9)
    run_through(job)
    before, total = len(ledger.spent()), job.noise_accounting.budget.total()["epsilon"]
    again = resumed(state, ledger, mode)
    torch.manual_seed(99)  # as on another kind of machine, the bits are others
    with torch.no_grad():
        again.server.parameters += 1e-6
        for update in again.server.updates.values():
            update.vector.add_(1e-7)
    shown = [again.noise_accounting.budget.epsilon]
    while again.step < again.total_steps:
        again.advance()
        shown.append(again.noise_accounting.budget.epsilon)
    assert len(ledger.spent()) > before
    assert again.noise_accounting.budget.total()["epsilon"] > total
    assert shown == sorted(shown) and shown[-1] == again.noise_accounting.budget.total()["epsilon"]
    assert again.result()["privacy"]["epsilon"] > total


def test_other_gradients_have_other_noise_whatever_a_release_is_called(monkeypatch):
    """A name may miss what gradients follow from: here a loss that changed between two attempts."""
    ledger = ServerLedger()
    job, state = stopped(ledger, at=4, privacy={"noise_multiplier": 50.0})
    job.advance()
    again = resumed(state, ledger, privacy={"noise_multiplier": 50.0})
    loss = again.context.ingredients.loss
    half = replace(again.context.ingredients, loss=lambda *given: loss(*given) / 2)
    again.context.ingredients = half
    written = ledger.spent()
    again.advance()
    assert ledger.spent() == written, "it has the same name"
    one, other = (each.local_training.context.layout.vector() for each in (job, again))
    start = job.server.parameters
    assert (one - other).norm() > 0.5 * (one - start).norm(), "their difference has noise, too"


@pytest.mark.parametrize("room", ["crowd_model.py", "rng.py"])
def test_another_recipes_code_names_another_release(monkeypatch, room):
    """And so does other code of ours that draws the noise."""
    names = []
    for text in (b"one", b"other"):
        monkeypatch.setattr(
            Path, "read_bytes", lambda path, text=text: text if path.name == room else b""
        )
        ledger = ServerLedger()
        stopped(ledger, at=1)
        names.append(ledger.spent()[0].noise)
    assert names[0] != names[1]


def test_the_same_steps_from_the_same_bits_are_one_release():
    ledger = ServerLedger()
    job, state = stopped(ledger, at=4)
    streams = reproducibility.state_dict()
    job.advance()
    written = ledger.spent()
    again = resumed(state, ledger)
    reproducibility.load_state_dict(streams)
    again.advance()
    assert (
        ledger.spent() == written
        and again.noise_accounting.budget.epsilon == job.noise_accounting.budget.epsilon
    )


def test_another_dropout_mask_is_another_release():
    """Two gradients under one noise would tell their difference."""
    ledger = ServerLedger()
    job, state = stopped(ledger, at=5)  # in the middle of a client
    job.advance()
    again = resumed(state, ledger)
    torch.manual_seed(5)
    again.advance()
    one, other = (e for e in ledger.spent() if e.step == 6)
    assert one.noise != other.noise


def test_a_model_of_the_same_clients_released_again_counts_without_their_chance():
    ledger = ServerLedger()
    job, state = stopped(ledger, "user", at=1, fraction=0.5, clients=6)
    run_through(job)
    again = resumed(state, ledger, "user", fraction=0.5, clients=6)
    torch.manual_seed(5)
    run_through(again)
    rates = {entry.noise: entry.sample_rate for entry in ledger.spent()}
    assert sorted(set(rates.values())) == [0.5, 1.0]
    assert (
        again.noise_accounting.budget.total()["epsilon"]
        > job.noise_accounting.budget.total()["epsilon"]
    )


@pytest.mark.parametrize(
    "tamper",
    [
        lambda spent: spent[1:],
        lambda spent: [],
        lambda spent: [replace(spent[0], noise_multiplier=2.0), *spent[1:]],
        lambda spent: [replace(spent[0], steps=1), *spent[1:]],
        lambda spent: [replace(spent[0], noise="0" * 32), *spent[1:]],
        lambda spent: [replace(spent[0], client=3), *spent[1:]],
    ],
    ids=["one less", "nothing", "more noise", "fewer steps", "other noise", "another client"],
)
def test_a_ledger_that_contradicts_the_checkpoint_is_refused(tamper):
    ledger = ServerLedger()
    _, state = stopped(ledger)
    other = make_job("sample", ServerLedger(tamper(list(ledger.spent()))))
    with pytest.raises(LedgerMismatch):
        other.load_state_dict(state)
    assert other.step == 0 and other.local_training is None, "nothing was changed"


def test_a_checkpoint_whose_own_figure_was_changed_is_refused():
    ledger = ServerLedger()
    _, state = stopped(ledger)
    for name in ("epsilon", "path_epsilon"):
        changed = {**state, "state": {**state["state"], "privacy": {
            **state["state"]["privacy"], name: 100.0}}}  # fmt: skip
        with pytest.raises(LedgerMismatch):
            make_job("sample", ledger).load_state_dict(changed)


def test_a_mismatch_fails_the_run_and_saves_nothing(tmp_path):
    first = go(case("sample"), tmp_path, ServerLedger(), at=5, dies=True, every_steps=1)
    from tests.engines.contract import ScriptedSupervisor, attempt

    second = ScriptedSupervisor()
    outcome = attempt(
        case("sample"), tmp_path, second, resume=first.checkpoints[::-1], ledger=ServerLedger()
    )
    assert isinstance(outcome, Failed) and isinstance(outcome.error, LedgerMismatch)
    assert not second.checkpoints


def test_what_an_ancestor_spent_counts_from_the_first_step():
    ledger = ServerLedger()
    job, _ = stopped(ledger, at=8)
    inherited = ServerLedger([replace(entry, is_own=False) for entry in ledger.spent()])
    fork = make_job("sample", inherited, rounds=4)
    assert fork.noise_accounting.budget.epsilon == job.noise_accounting.budget.epsilon


def test_the_worst_client_counts_and_not_the_mean():
    ledger = ServerLedger()
    job, _ = stopped(ledger, at=24, partition={"by": "dirichlet", "alpha": 0.5})
    sizes = [len(part) for part in job.context.parts]
    assert len(set(sizes)) > 1
    each = {}
    for entry in ledger.spent():
        setting = (entry.noise_multiplier, entry.sample_rate)
        each.setdefault(entry.client, {}).setdefault(setting, 0)
        each[entry.client][setting] += entry.steps
    figures = {client: epsilon(spent, 1e-5) for client, spent in each.items()}
    assert job.noise_accounting.budget.epsilon == max(figures.values())
    assert len(set(figures.values())) > 1


def test_an_account_does_not_depend_on_the_order_of_its_entries():
    ledger = ServerLedger()
    stopped(ledger, "hybrid", at=24)
    one, other = Account(1e-5), Account(1e-5)
    rates = [entry for entry in ledger.spent() if not entry.is_release]
    one.add(rates)
    other.add(rates)
    for entry in ledger.releases():
        one.add([entry])
        assert one.epsilon > 0, "asked again and again"
    other.add(reversed(ledger.releases()))
    assert one.epsilon == other.epsilon == one.of("sample") + one.of("user")


@pytest.mark.parametrize(
    ("resume_at", "mode"),
    quick_some([*product([None, 1, 4, 9], ["sample", "user", "hybrid"])], every=4),
)
def test_the_budget_stops_a_run_before_the_step_that_would_exceed_it(mode, resume_at):
    ledger = ServerLedger()
    target = 15.0 if mode == "hybrid" else 11.0  # two rounds of 4 clients by 2 epochs
    config = {"privacy": {"target_epsilon": target}, "rounds": 20}
    job, state = stopped(ledger, mode, at=resume_at or 0, **config)
    streams = reproducibility.state_dict()
    run_through(job)
    result = job.result()
    assert result["reason"] == "PRIVACY_BUDGET" and job.progress.number <= 20
    assert result["privacy"]["epsilon"] <= target
    if resume_at is None:
        return
    again = resumed(state, ledger, mode, **config)
    reproducibility.load_state_dict(streams)
    run_through(again)
    assert again.result() == result and again.step == job.step


@pytest.mark.parametrize(
    ("target", "fraction", "rounds"), [(10.0, 1.0, 1), (12.0, 1.0, 1), (15.0, 1.0, 2), (12, 0.6, 1)]
)
def test_nothing_is_spent_on_a_round_whose_model_the_budget_has_no_room_for(
    target, fraction, rounds
):
    """Clients trained with noise, and the model that they trained for was never made."""
    ledger = ServerLedger()
    config = {"privacy": {"target_epsilon": target}, "rounds": 20, "fraction": fraction}
    job = make_job("hybrid", ledger, **config)
    run_through(job)
    result = job.result()
    assert result["reason"] == "PRIVACY_BUDGET" and result["privacy"]["epsilon"] <= target
    assert result["rounds"] >= rounds and job.progress.done == job.progress.epoch == 0
    models = [each.round for each in ledger.releases() if each.level == "user"]
    assert models == [*range(1, result["rounds"] + 1)]
    assert max(each.round for each in ledger.releases()) == models[-1]


def test_a_round_that_is_written_down_in_part_is_finished_after_a_crash():
    """What is written down counts once, also when the round begins again."""
    whole, ledger = ServerLedger(), ServerLedger()
    config = {"privacy": {"target_epsilon": 10.0}, "rounds": 20}
    expected = make_job("hybrid", whole, **config)
    run_through(expected)
    for written in (1, 5, 8, 9):
        ledger = ServerLedger(whole.releases()[:written])
        again = make_job("hybrid", ledger, **config)
        run_through(again)
        assert again.result() == expected.result() and again.step == 8
        assert len(ledger.releases()) == len(whole.releases()) == 9


def test_a_budget_without_room_for_one_round_is_refused():
    with pytest.raises(InputError) as found:
        make_job("hybrid", privacy={"target_epsilon": 8.0})
    problem = found.value.errors["privacy.target_epsilon"]
    assert "got 8; with this noise one round comes to 9.956; allowed: more than that" in problem


def test_a_budget_that_is_spent_already_ends_a_fork_at_once():
    ledger = ServerLedger()
    config = {"privacy": {"target_epsilon": 9.0}}
    job, _ = stopped(ledger, at=0, rounds=20, **config)
    run_through(job)
    state = freeze(job.state_dict())
    fork = resumed(state, ledger, rounds=30, **config)
    assert fork.step == fork.total_steps == job.step
    assert fork.result()["reason"] == "PRIVACY_BUDGET"


def test_who_takes_part_by_chance_is_in_no_state():
    job, state = stopped(ServerLedger(), "user", at=7, fraction=0.5, clients=12)
    plain = state["state"]
    assert plain["chosen"] is None and plain["client"] is None and plain["num_chosen"] > 3
    assert list(state["clients"]["done"]) == ["0", "1", "2"]
    assert state["clients"]["visit"]["client"] == 3
    assert list(job.server.updates) == list(job.progress.chosen[:3])
    assert torch.equal(resumed(state, ServerLedger(), "user", fraction=0.5, clients=12).server
                       .sum_of_updates(), job.server.sum_of_updates())  # fmt: skip


UNEVEN = {"partition": {"by": "dirichlet", "alpha": 0.5}, "clients": 8, "rounds": 6}


def figures_by_place(secret, **config):
    """Return a hybrid run's figures by round and by how far it is, and who took part."""
    ledger = ServerLedger(secret=secret)
    job = make_job("hybrid", ledger, **UNEVEN, **config)
    figures = {}
    while job.step < job.total_steps:
        job.advance()
        place = (job.progress.number, job.progress.done > 0, job.progress.epoch)
        figures[place] = job.state_dict()["state"]["privacy"]
    noise = job.result()["privacy"]["noise_multiplier"]
    return figures, [job.context.schedule.chosen(number) for number in range(1, 7)], noise, ledger


@pytest.mark.slow
def test_figures_do_not_tell_who_takes_part_where_chance_decides():
    first, chosen, _, _ = figures_by_place(b"one", fraction=0.6)
    second, others, _, _ = figures_by_place(b"two", fraction=0.6)
    assert chosen != others and all([*chosen, *others]), "in no round is nobody"
    shared = first.keys() & second.keys()
    assert len(shared) > 12
    assert [first[place] for place in shared] == [second[place] for place in shared]


@pytest.mark.slow
def test_found_noise_does_not_tell_who_takes_part():
    found = {"noise_multiplier": None, "user_noise_multiplier": None, "target_epsilon": 60.0}
    runs = [figures_by_place(secret, fraction=0.5, privacy=found) for secret in (b"one", b"two")]
    assert runs[0][1] != runs[1][1] and runs[0][2] == runs[1][2]


@pytest.mark.slow
@pytest.mark.parametrize("fraction", [0.6, 1.0])
def test_figures_of_a_hybrid_run_are_never_below_what_was_spent(fraction):
    figures, _, _, ledger = figures_by_place(b"one", fraction=fraction)
    exact = Account(1e-5)
    exact.add(ledger.releases())
    shown = max(each["sample_epsilon"] for each in figures.values())
    assert shown > exact.of("sample") if fraction < 1 else shown == pytest.approx(
        exact.of("sample"), rel=1e-9
    )  # fmt: skip


@pytest.mark.slow
def test_of_very_many_sample_rates_figures_are_a_little_higher():
    """So many are measured one by one, and no more."""
    rates = [(20 + each) / 400 for each in range(100)]
    entries = [entry_of(0, client, rate) for client, rate in enumerate(rates)]
    exact, covered = Account(1e-5), Account(1e-5)
    exact.add(each for each in entries)
    covered.add(replace(each, steps=0, client=None, round=0) for each in entries)
    covered.add(entries)
    assert exact.epsilon <= covered.epsilon < 1.3 * exact.epsilon


def entry_of(number, client, rate):
    return Release(noise=f"{client:032x}", step=client + 1, round=number, client=client,
                 level="sample", noise_multiplier=1.0, sample_rate=rate,
                 steps=steps_of_epoch(rate))  # fmt: skip


@pytest.mark.parametrize("batch", [1, 6, 7, 32, 1000, 4096])
def test_steps_of_an_epoch_follow_from_its_rate(batch):
    for count in [*range(batch, 40 * batch, max(1, batch // 7)), 10**7 + 1, 10**7 * batch]:
        assert steps_of_epoch(min(1.0, batch / count)) == -(-count // batch)


def test_what_was_spent_of_whom_is_sealed_in_checkpoints():
    ledger = ServerLedger()
    job, state = stopped(ledger, "hybrid", at=7, fraction=0.5, clients=12)
    in_order = [each for each in job.context.schedule.chosen(1) for _ in range(2)][:7]
    open_ = entries_of(state["spent"], ledger.secret)
    assert [each.client for each in open_] == in_order
    assert open_ == ledger.releases()
    by_others = entries_of(state["spent"], b"another secret")
    for sealed in (state["spent"].column("client").tolist(), [each.client for each in by_others]):
        assert len(set(sealed)) == 7  # one client's epochs have nothing in common, either
        assert not set(sealed) & set(range(-1, 12))
    assert not {each.sample_rate for each in open_} & set(state["spent"].column("sample_rate"))
    assert not {each.steps for each in open_} & set(state["spent"].column("steps").tolist())


@pytest.mark.parametrize(
    ("most", "by"), [(10, "rdp"), pytest.param(2**21, "prv", marks=pytest.mark.slow)]
)
def test_result_and_receipt_say_which_accountant_gave_the_figure(most, by, tmp_path, monkeypatch):
    monkeypatch.setattr(prv_accountant, "MOST_POINTS", most)
    ledger, small = ServerLedger(), case("sample", privacy={"accountant": "prv"}, rounds=2)
    first = go(small, tmp_path, ledger, at=5)
    second = go(small, tmp_path, ledger, resume=first.checkpoints[::-1], number=2)
    (receipt,) = second.receipts
    (note,) = (item.note for item in receipt.items if item.part == "spent")
    assert note.startswith("epsilon ") and f" by {by}" in note and receipt.exact
    job = make_job("sample", ledger, privacy={"accountant": "prv"}, rounds=2)
    result = job.result()
    assert result["privacy"]["accountant"] == "prv" and result["privacy"]["figures_by"] == [by]
    assert bool(result["warnings"]) == (by == "rdp")


@pytest.mark.slow
def test_a_checkpoint_from_before_the_tighter_accountant_was_bounded_is_taken_over(monkeypatch):
    ledger = ServerLedger()
    _, state = stopped(ledger, privacy={"accountant": "prv"})
    monkeypatch.setattr(prv_accountant, "MOST_POINTS", 10)
    again = resumed(state, ledger, privacy={"accountant": "prv"})
    assert again.noise_accounting.budget.path_epsilon > state["state"]["privacy"]["path_epsilon"]


@pytest.mark.parametrize("mode", ["user", "hybrid"])
def test_a_stop_within_a_rounds_evaluation_spends_nothing_twice(mode, monkeypatch):
    """The round's release is in the ledger; a resume makes the same model of the same updates."""
    monkeypatch.setattr(context, "EVALUATED_AT_ONCE", 3)
    whole, stopped_often = ServerLedger(), ServerLedger()
    reproducibility.seed_all(7)
    expected = make_job(mode, whole)
    run_through(expected)
    reproducibility.seed_all(7)
    job, num_stops = make_job(mode, stopped_often), 0
    job.in_parts = True
    while job.step < job.total_steps or job.is_evaluating:
        job.advance()
        if (
            job.is_evaluating
            and "of the validation" in job.place
            and num_stops < job.progress.number
        ):
            num_stops += 1
            streams, state = reproducibility.state_dict(), freeze(job.state_dict())
            assert state["state"]["round"] == job.progress.number - 1
            job = resumed(state, stopped_often, mode)
            reproducibility.load_state_dict(streams)
            job.in_parts = True
    assert num_stops > 1
    assert stopped_often.spent() == whole.spent()
    assert torch.equal(job.server.parameters, expected.server.parameters)
    assert lossless.dumps(job.result()) == lossless.dumps(expected.result())
