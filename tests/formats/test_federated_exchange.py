"""A federated file becomes a checkpoint that our job continues from, and the other way round."""

import math
import os
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from tests.federated.runs import ServerLedger, make_job, releases_of, run_through
from tests.formats.originals import REAL, original, save, tree
from tests.formats.test_federated_file import documented
from tests.thinning import quick_some
from trainops.files.verify import verify
from trainops.files.writing import write
from trainops.kind import KINDS
from trainops.kinds.federated.files.exchange import read_federated
from trainops.kinds.federated.files.exporting import arrays_of, export_federated
from trainops.kinds.federated.files.importing import import_federated
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.errors import IncompatibleState

pytestmark = pytest.mark.slow

MID, DONE = "federated_mid_round", "federated_completed"
FILES = [MID, DONE, *(path for path in REAL if "fedmed" in str(path))]
SAVED_AT = "2026-11-21T01:33:51+00:00"


@pytest.fixture(autouse=True)
def _other_tool(monkeypatch):
    known = os.environ["TRAINOPS_RECIPES"]
    monkeypatch.setenv("TRAINOPS_RECIPES", f"{known},tests.federated.other_tool:RECIPE")


def config(**changes):
    plain = {"recipe": "other_tool", "rounds": 3, "clients": 2, "local_epochs": 5, "batch_size": 6,
            "learning_rate": 1e-3, "momentum": 0.9, "monitor": "val_dice",
            "mode": "max"}  # fmt: skip
    return KINDS["federated"].parse_config({**plain, **changes})


def goes_on(imported, parsed, ledger=None):
    job = KINDS["federated"].make_job(parsed, {}, ledger)
    job.load_state_dict({n: p for n, p in freeze(imported.state).items() if n != "random"})
    assert job.step == imported.step
    run_through(job)
    return job


def exported(job):
    return export_federated(freeze(job.state_dict()), job.config, name="run", saved_at=SAVED_AT,
                            spent=job.ledger.releases())  # fmt: skip


def exported_and_read(job, root):
    file = exported(job)
    write(file, root / "last.pt")
    assert verify(root / "last.pt").passed
    return read_federated(root / "last.pt")


@pytest.mark.parametrize("source", FILES, ids=str)
def test_a_file_of_the_other_tool_continues_to_the_end(source, tmp_path):
    file = read_federated(original(source, tmp_path))
    imported = import_federated(file, config())
    assert imported.step == (23 if file.round.status == "in_progress" else 20)
    named = list(imported.state["model"].values())
    for ours, theirs in zip(named, file.server.parameters, strict=True):
        assert torch.equal(ours, torch.from_numpy(theirs))
    job = goes_on(imported, config())
    assert job.progress.is_over and job.step == 30
    notes = {item.part: item for item in imported.receipt.items}
    assert not notes["privacy"].exact, "epsilon 14.2 was spent, and nobody counts it here"


def test_the_client_in_training_continues_with_its_model_and_optimizer(tmp_path):
    file = read_federated(original(MID, tmp_path))
    imported = import_federated(file, config())
    visit, theirs = imported.state["clients"]["visit"], file.clients[0]
    assert (visit["client"], visit["epoch"]) == (0, 3)
    flat = torch.cat([each.flatten() for each in theirs.model_state.values()])
    assert torch.equal(visit["parameters"], flat)
    moments = theirs.optimizer_state["state"].values()
    momentum = torch.cat([each["momentum_buffer"].flatten() for each in moments])
    assert torch.equal(visit["optimizer"]["moments"][0], momentum.unsqueeze(0))
    notes = {item.part: item.note for item in imported.receipt.items}
    assert "at epoch 3 of 5" in notes["client 0"]


@pytest.mark.slow
@pytest.mark.parametrize("source", [MID, *FILES[2:]], ids=str)
def test_an_epsilon_without_its_history_is_carried_and_added_in_full(source, tmp_path):
    file = read_federated(original(source, tmp_path))
    privacy = {"mode": "sample", "noise_multiplier": 1.0}
    imported = import_federated(file, config(privacy=privacy), secret=b"ours")
    completed = file.privacy.cumulative_sample_epsilon
    under_way = max(each.epsilon for each in file.clients.values())
    assert [entry.carried for entry in releases_of(imported.entries)] == [completed, under_way]
    figure = completed + under_way
    ledger = ServerLedger(releases_of(imported.entries), secret=b"ours")
    job = goes_on(imported, config(privacy=privacy), ledger)
    fresh = KINDS["federated"].make_job(config(privacy=privacy), {}, ServerLedger())
    run_through(fresh)
    spent = job.noise_accounting.budget.total()["epsilon"]
    assert figure < spent < figure + fresh.noise_accounting.budget.total()["epsilon"]


@pytest.mark.parametrize(
    ("keeping", "at"),
    quick_some([*product(["none", "sample", "user", "hybrid"], [3, 8, 13, 0, 9, 24])], every=5),
)
def test_what_we_export_is_read_verified_and_continues_exactly(keeping, at, tmp_path):
    """Within a round too, but under user-level privacy: there its clients begin anew."""
    ledger = ServerLedger()
    reproducibility.seed_all(7)
    job = make_job(keeping, ledger, server={"strategy": "fedavg"}, parameters={"dropout": 0.0})
    while job.step < at:
        job.advance()
    back = exported_and_read(job, tmp_path)
    imported = import_federated(back, job.config, secret=b"ours")
    is_hidden = keeping in ("user", "hybrid")
    assert imported.step == (at // 8 * 8 if is_hidden else at)
    for ours, theirs in zip(imported.state["model"].values(),
                            job.state_dict()["model"].values(), strict=True):  # fmt: skip
        assert torch.equal(ours, theirs)
    again = goes_on(
        imported, job.config, ServerLedger(releases_of(imported.entries), secret=b"ours")
    )
    if keeping == "none":
        run_through(job)
        torch.testing.assert_close(again.server.parameters, job.server.parameters)
    else:
        mine = job.noise_accounting.budget.epsilon
        assert again.noise_accounting.budget.total()["epsilon"] >= mine


@pytest.mark.parametrize("at", [3, 8, 13])
def test_what_is_not_trained_and_what_is_tied_go_along(at, tmp_path):
    parameters = {"dropout": 0.0, "frozen": True, "tied": True}
    reproducibility.seed_all(7)
    job = make_job(parameters=parameters, server={"strategy": "fedavg"})
    with torch.no_grad():  # what the file has is taken over, not what the recipe would draw
        job.context.model[0].weight.mul_(2)
    while job.step < at:
        job.advance()
    back = exported_and_read(job, tmp_path)
    for client in (each for each in back.clients.values() if each.final_parameters):
        named = dict(zip(job.context.model.state_dict(), client.final_parameters, strict=True))
        assert torch.equal(torch.from_numpy(named["0.weight"]), job.context.model[0].weight)
        assert (named["1.weight"] == named["3.weight"]).all()
    imported = import_federated(back, job.config)
    assert imported.step == at
    again = goes_on(imported, job.config)
    run_through(job)
    torch.testing.assert_close(again.server.parameters, job.server.parameters)


@pytest.mark.parametrize("has", ["what is trained", "parameters"])
def test_a_file_may_have_only_parameters_or_only_the_trained_ones(has):
    job = make_job(parameters={"frozen": True, "norm": True})
    file = exported(job)
    named = dict(zip(job.context.model.state_dict(), file.server.parameters, strict=True))
    frozen = job.context.layout.frozen if has == "what is trained" else ()
    names = [name for name, _ in job.context.model.named_parameters() if name not in frozen]
    server = replace(file.server, parameters=tuple(named[name] for name in names))
    imported = import_federated(replace(file, server=server), job.config)
    for name in names:
        assert torch.equal(imported.state["model"][name], torch.from_numpy(named[name]))
    (note,) = (item.note for item in imported.receipt.items if item.part == "model")
    lacks = [name for name in named if name not in names]
    assert note == f"the file does not have {', '.join(lacks)}; the recipe's"


def test_numbers_of_other_types_and_orders_are_read_and_what_is_none_is_refused():
    job = make_job(server={"strategy": "fedavg"})
    file = exported(job)

    def of(change):
        arrays = tuple(map(change, file.server.parameters))
        changed = replace(file, server=replace(file.server, parameters=arrays))
        return import_federated(changed, job.config).state["model"]

    for change in (lambda a: a.astype(">f4"), lambda a: a[::-1].copy()[::-1], np.float64):
        for ours, theirs in zip(of(change).values(), file.server.parameters, strict=True):
            assert torch.equal(ours, torch.from_numpy(theirs))
    for change in (np.complex64, np.longdouble, str, object):
        with pytest.raises(IncompatibleState, match=r"server.parameters\[0\] is of .* no number"):
            of(lambda array, change=change: array.astype(change))


def test_what_clients_came_to_goes_along():
    config = {
        "server": {"strategy": "fedavg"},
        "monitor": "train_loss",
        "parameters": {"dropout": 0.0},
    }
    reproducibility.seed_all(7)
    job = make_job(**config)
    while job.step < 13:
        job.advance()
    state = freeze(job.state_dict())
    file = export_federated(state, job.config, name="run", saved_at=SAVED_AT)
    sizes = state["state"]["partition"]["examples"]
    assert [file.clients[client].num_samples for client in (0, 1, 2)] == sizes[:3]
    imported = import_federated(file, job.config)
    done = imported.state["clients"]["done"]
    assert {int(client): each["means"] for client, each in done.items()} == {
        client: each.means for client, each in job.server.updates.items()
    }
    bare = replace(file, clients={
        client: replace(each, final_metrics=None) for client, each in file.clients.items()
    })  # fmt: skip
    is_exact = {
        item.part: item.exact
        for item in import_federated(
            bare, make_job(server={"strategy": "fedavg"}).config
        ).receipt.items
    }
    assert is_exact["client 0's means"] is False


def test_a_model_of_bfloat16_is_exported_as_float32():
    tensors = [torch.randn(3).to(torch.bfloat16), torch.tensor(2)]
    numbers, count = arrays_of(tensors)
    assert torch.equal(torch.from_numpy(numbers), tensors[0].float())
    assert count == 2


def test_a_file_that_was_trained_without_noise_is_reported_and_its_clients_begin_anew():
    job = make_job(server={"strategy": "fedavg"})
    while job.step < 13:
        job.advance()
    file = exported(job)
    private = make_job("hybrid", server={"strategy": "fedavg"}).config
    imported = import_federated(file, private, secret=b"ours")
    assert imported.step == 8 and imported.state["clients"] == {"done": {}, "visit": None}
    is_exact = {item.part: item.exact for item in imported.receipt.items}
    assert is_exact["privacy: sample level"] is is_exact["privacy: user level"] is False


def test_no_unnoised_update_leaves_under_user_level_privacy():
    job = make_job("user", ServerLedger())
    while job.step < 5:
        job.advance()
    file = exported(job)
    assert file.round.status == "in_progress"
    for client in file.clients.values():
        assert client.epoch.status == "pending"
        assert client.model_state is None and client.final_parameters is None
    assert set(file.server.metrics) <= {"val_loss", "val_accuracy", "epsilon"}


def test_what_the_ledger_lacks_is_reported_and_not_left_out():
    job = make_job("sample", ServerLedger())
    job.advance()
    with pytest.raises(IncompatibleState, match="the ledger lacks the release"):
        export_federated(freeze(job.state_dict()), job.config, name="run", saved_at=SAVED_AT)


def test_histories_are_the_worst_clients_and_explain_the_figure(tmp_path):
    job = make_job("hybrid", ServerLedger(), partition={"by": "dirichlet", "alpha": 1.0})
    run_through(job)
    file = exported(job)
    privacy = file.privacy
    assert len(privacy.sample_history) == len(privacy.user_history) == 3  # of each round
    total = job.noise_accounting.budget.total()
    assert privacy.cumulative_sample_epsilon == total["sample_epsilon"]
    assert privacy.cumulative_user_epsilon == total["user_epsilon"]
    imported = import_federated(file, job.config)
    assert not any(entry.carried for entry in releases_of(imported.entries)), (
        "the histories explain it all"
    )


def test_the_best_model_is_exported_with_its_round_and_metric(tmp_path):
    job = make_job(rounds=4, monitor="val_accuracy", mode="max")
    run_through(job)
    state = freeze(job.state_dict())
    file = export_federated(state, job.config, name="run", saved_at=SAVED_AT, which="best")
    best = job.progress.best
    assert (file.round.current, file.round.status) == (best.round, "completed")
    assert file.server.best_dice == file.server.metrics["val_accuracy"] == best.metric
    for ours, theirs in zip(file.server.parameters, state["best_model"].values(), strict=True):
        assert torch.equal(torch.from_numpy(ours), theirs)
    first = make_job()
    first.advance()
    with pytest.raises(IncompatibleState, match="no round has been completed"):
        export_federated(freeze(first.state_dict()), first.config, name="run",
                         saved_at=SAVED_AT, which="best")  # fmt: skip


def test_no_steps_in_a_files_history_are_no_release():
    job = make_job("hybrid", ServerLedger())
    run_through(job)
    file = exported(job)
    nothing = ((1.0, 0.0, 0), (1.0, 0.3, 0))
    privacy = replace(file.privacy, sample_history=(*file.privacy.sample_history, *nothing),
                      user_history=(*nothing, *file.privacy.user_history))  # fmt: skip
    plain, padded = (
        import_federated(each, job.config) for each in (file, replace(file, privacy=privacy))
    )
    figures = [each.state["state"]["privacy"] for each in (plain, padded)]
    assert figures[0] == figures[1] and figures[0]["sample_epsilon"] > 0


@pytest.mark.parametrize(("best", "is_reported"), [(0.999, True), (0.0, False), (0.1, False)])
def test_a_better_model_that_is_not_in_the_file_is_reported(best, is_reported):
    job = make_job(monitor="val_accuracy", mode="max")
    run_through(job)
    file = exported(job)
    better = replace(file, server=replace(file.server, best_dice=best))
    items = {item.part: item for item in import_federated(better, job.config).receipt.items}
    assert ("best model" in items) == is_reported
    if is_reported:
        assert "0.999" in items["best model"].note and not items["best model"].exact


@pytest.mark.parametrize("name", ["round", "clients", "dropped"])
@pytest.mark.parametrize("value", [-5.0, 1e300, math.nan])
def test_metrics_of_a_file_are_no_fields_of_our_own(name, value):
    job = make_job()
    while job.step < 8:
        job.advance()
    file = exported(job)
    metrics = {**file.server.metrics, name: value}
    imported = import_federated(
        replace(file, server=replace(file.server, metrics=metrics)), job.config
    )
    assert imported.state["state"]["round_history"] == [
        {**job.progress.history[0], **{n: v for n, v in metrics.items() if n != name}}
    ]
    again = goes_on(imported, job.config)
    run_through(again)
    assert again.result()["client_epochs"] == job.total_steps


def test_a_model_of_other_shapes_and_rounds_beyond_the_config_are_refused(tmp_path):
    file = read_federated(original(DONE, tmp_path))
    with pytest.raises(IncompatibleState, match=r"server.parameters are 15; the model has"):
        import_federated(file, config(recipe="crowd", monitor="val_loss"))
    with pytest.raises(IncompatibleState, match="2 rounds are done, the config has 1"):
        import_federated(file, config(rounds=1))
    privacy = {"mode": "sample", "noise_multiplier": 1.0, "delta": 1e-6}
    with pytest.raises(IncompatibleState, match="target_delta is 1e-05, the config's 1e-06"):
        import_federated(file, config(privacy=privacy))


def test_clients_of_another_order_or_number_of_epochs_train_their_round_anew(tmp_path):
    file = read_federated(original(MID, tmp_path))
    imported = import_federated(file, config(local_epochs=2))
    assert imported.step == 8
    item = next(each for each in imported.receipt.items if each.part.startswith("clients 0"))
    assert not item.exact and "train this round anew" in item.note


def test_clients_at_once_are_pending_in_a_file_and_begin_their_round_anew(tmp_path):
    reproducibility.seed_all(7)
    job = make_job(batched_clients=True, server={"strategy": "fedavg"}, parameters={"dropout": 0.0})
    while job.step < 12:
        job.advance()
    file = exported(job)
    assert (file.round.current, file.round.status) == (2, "in_progress")
    assert {client.epoch.status for client in file.clients.values()} == {"pending"}
    write(file, tmp_path / "last.pt")
    imported = import_federated(read_federated(tmp_path / "last.pt"), job.config)
    assert imported.step == 8
    again = goes_on(imported, job.config)
    run_through(job)
    assert torch.equal(again.server.parameters, job.server.parameters)


def test_a_client_in_training_elsewhere_begins_anew_where_all_train_at_once(tmp_path):
    imported = import_federated(
        read_federated(original(MID, tmp_path)), config(batched_clients=True)
    )
    notes = {item.part: item.note for item in imported.receipt.items}
    assert imported.step == 20 and "all at once" in notes["clients 0, 1"]


def test_the_documented_fresh_checkpoint_continues_with_the_next_round(tmp_path):
    file = read_federated(save(documented(tree(MID)), tmp_path / "last.pt"))
    imported = import_federated(file, config(rounds=4))
    assert imported.step == 30
    assert goes_on(imported, config(rounds=4)).progress.is_over


def test_an_extended_run_continues_and_the_receipt_says_so(tmp_path):
    content = tree(DONE)
    content["round"] = {"current": 6, "total": 5, "status": "completed"}
    file = read_federated(save(content, tmp_path / "last.pt"))
    imported = import_federated(file, config(rounds=7))
    notes = {item.part: item for item in imported.receipt.items}
    assert notes["rounds"].note == "round.current is 6 of 5 rounds: the run was extended"
    assert goes_on(imported, config(rounds=7)).step == 70
