"""The page of a federated operation: rounds, clients, privacy, partition."""

import io
import math

import pytest
from django.utils import timezone

from apps.checkpoints.models import Checkpoint
from apps.datasets import services as datasets
from apps.operations.files import exports
from apps.operations.models import Operation, Subtask
from tests.api.saved import saved
from tests.federated.runs import ServerLedger, make_job
from tests.operations.releases import append
from tests.operations.tampering import tampered
from tests.pages import making
from tests.thinning import quick_some
from trainops.kind import KINDS
from trainops.kinds.federated import prv_accountant
from trainops.kinds.federated.account import Account
from trainops.kinds.federated.releases import Release
from trainops.kinds.federated.web import client_grid, federation
from trainops.runtime import lossless

pytestmark = pytest.mark.slow


def shown(owner, job, ledger, *, state="RUNNING", ahead=0, **fields):
    """A row as its run would leave it, with a checkpoint of the job's state and its ledger."""
    config = job.config.model_dump(mode="json")
    operation = making.operation(
        owner, state, name="together", kind="federated", config=config, unit="client epoch",
        step=job.step + ahead, total_steps=job.total_steps, place=job.place, **fields,
    )  # fmt: skip
    Checkpoint.objects.create(
        id=f"{operation.pk}-1", operation=operation, attempt=1, type="periodic",
        created_at=timezone.now(), step=job.step,
        state=lossless.encode(job.state_dict()["state"]), manifest=[], state_size_bytes=0,
        artifacts_size_bytes=0,
    )  # fmt: skip
    append(operation.pk, 1, ledger.spent())
    return operation


def job_at(step, keeping="none", ledger=None, **config):
    job = make_job(keeping, ledger, **config)
    while job.step < min(step, job.total_steps):
        job.advance()
    return job


def state_of(job):
    return job.state_dict()["state"]


def page_of(page, operation):
    return page.get(f"/operations/{operation.pk}/").content.decode()


def test_rounds_clients_and_partition_are_drawn(page, ana):
    job = job_at(11)
    text = page_of(page, shown(ana, job, ServerLedger()))
    assert "1 of 3 completed" in text and "Clients of round 2" in text
    assert text.count("cell-done") == 1 + 3 + 1  # rounds, epochs, legend
    assert text.count('title="Epoch 2: running"') == 1
    for client in range(4):
        assert f'aria-label="Client {client}: {len(job.context.parts[client])} examples"' in text
    assert "train_accuracy" in text and 'data-testid="privacy"' not in text
    sizes = [len(part) for part in job.context.parts]
    for size in sizes:
        assert f'<td class="num">{100 * size / sum(sizes):.1f} %</td>' in text
    assert "update_norm" in text and all(each["update_norm"] for each in job.server.means.values())


@pytest.mark.parametrize("more", [{}, {"batched_clients": True}, {"placement": "distributed"}])
def test_what_clients_contributed_is_there_when_it_is_over(page, ana, more):
    job = job_at(99, **more)
    text = page_of(page, shown(ana, job, ServerLedger(), state="COMPLETED"))
    assert text.count('data-testid="client"') == 4 and ">Clients</h2>" in text
    assert text.count('title="Epoch 2: done"') == 4 and "update_norm" in text


def test_of_private_clients_nothing_is_there_when_it_is_over(page, ana):
    ledger = ServerLedger()
    text = page_of(page, shown(ana, job_at(99, "sample", ledger), ledger, state="COMPLETED"))
    assert 'data-testid="client"' not in text


def test_clients_of_other_machines_are_said_to_be(page, ana):
    job = job_at(11)
    assert 'data-testid="differs"' not in page_of(page, shown(ana, job, ServerLedger()))
    job.progress.differs |= {"threads", "processor"}
    text = page_of(page, shown(ana, job, ServerLedger()))
    assert "Clients ran on hardware different from the server's" in text
    assert "(processor, threads): the result is not bit-identical to that of one machine." in text


def test_clients_of_a_column_have_their_values_names(page, ana):
    by_label = {"partition": {"by": "column", "column": "label"}, "rounds": 1}
    job = job_at(1, recipe="federated_digits", parameters={"hidden": 2}, **by_label)
    text = page_of(page, shown(ana, job, ServerLedger()))
    names = job.context.federation.classes.names
    for client, name in enumerate(names):
        size = len(job.context.parts[client])
        assert f'aria-label="Client {client}, {name}: {size} examples"' in text
    assert text.count('class="client-name"') == 2 * len(names)  # in the grid, too


def test_clients_that_are_files_have_their_tables_names(ana, in_process):
    north = datasets.add_table(io.BytesIO(b"a,b\n1,2\n"), filename="x.csv", name="North").pk
    config = {"partition": {"by": "file"}}
    operation = making.operation(ana, "RUNNING", kind="federated", config=config)
    described = {"names": [north, "ds_gone"]}
    assert federation.names_of(operation, described) == ["North", "ds_gone"]


def test_the_grid_follows_the_run_beyond_its_checkpoint(ana):
    job = job_at(9)
    operation = shown(ana, job, ServerLedger(), ahead=2)
    newest = Checkpoint.objects.get(operation=operation)
    grid = client_grid.grid(operation, newest.state, newest.step)
    assert [row["epochs"] for row in grid["rows"]] == [
        ["done", "done"], ["done", "running"], ["pending", "pending"], ["pending", "pending"]
    ]  # fmt: skip


@pytest.mark.parametrize(("ahead", "epochs"), [(0, ["done", "running"]), (4, ["done", "done"])])
def test_clients_at_once_move_together(ana, ahead, epochs):
    job = job_at(12, batched_clients=True)
    operation = shown(ana, job, ServerLedger(), ahead=ahead)
    newest = Checkpoint.objects.get(operation=operation)
    grid = client_grid.grid(operation, newest.state, newest.step)
    assert [row["epochs"] for row in grid["rows"]] == 4 * [epochs]


@pytest.mark.parametrize("keeping", ["sample", "user", "hybrid"])
def test_epsilon_is_the_ledgers_and_single_clients_are_not_reported(page, ana, keeping):
    ledger = ServerLedger()
    job = job_at(13, keeping, ledger)
    operation = shown(ana, job, ledger)
    text = page_of(page, operation)
    total = job.noise_accounting.budget.total()["epsilon"]
    assert federation.privacy(operation, {}, 0)["spent"] == total
    assert f"ε {total:.2f}" in text and "No budget was set." in text
    assert (
        "train_loss" not in text.partition('data-testid="federation"')[2].partition("</section>")[0]
    )
    hides = keeping in ("user", "hybrid")
    assert ("per client is hidden under user-level privacy" in text) is hides
    assert ('data-testid="partition"' in text) is not hides


def test_the_card_says_that_given_weights_are_not_in_the_ledger(page, ana):
    ledger = ServerLedger()
    operation = shown(ana, job_at(3, "sample", ledger), ledger)
    assert "counts in addition" not in page_of(page, operation)
    operation.record("WARM_STARTED", actor="ana", note="")
    assert "counts in addition" in page_of(page, operation)


@pytest.mark.slow
def test_the_round_in_which_the_budget_ends_is_predicted(ana):
    ledger = ServerLedger()
    config = {"privacy": {"target_epsilon": 20.0}, "rounds": 40}
    job = job_at(16, "sample", ledger, **config)
    predicted = federation.privacy(shown(ana, job, ledger), state_of(job), job.step)["ends"]
    while job.step < job.total_steps:
        job.advance()
    assert job.result()["reason"] == "PRIVACY_BUDGET"
    assert not predicted["is_enough"] and predicted["round"] == len(job.progress.history)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "is_enough"), [(11.0, False), (60.0, True)])
def test_a_forecast_goes_by_how_often_clients_take_part(ana, target, is_enough):
    ledger = ServerLedger()
    config = {"privacy": {"target_epsilon": target}, "rounds": 40, "clients": 8, "fraction": 0.25}
    job = job_at(41, "sample", ledger, **config)
    predicted = federation.privacy(shown(ana, job, ledger), state_of(job), job.step)["ends"]
    while job.step < job.total_steps:
        job.advance()
    ended = len(job.progress.history)
    assert (ended == 40) is predicted["is_enough"] is is_enough
    assert is_enough or abs(predicted["round"] - ended) <= 4


@pytest.mark.slow
@pytest.mark.parametrize("target", [45.0, 80.0])
def test_a_hybrid_forecast_counts_each_client_in_each_round(ana, target):
    ledger = ServerLedger()
    privacy = {"target_epsilon": target, "noise_multiplier": 3.0, "user_noise_multiplier": 1.0}
    uneven = {"partition": {"by": "dirichlet", "alpha": 0.5}, "clients": 8, "fraction": 0.8}
    job = job_at(30, "hybrid", ledger, privacy=privacy, rounds=200, **uneven)
    figures = federation.privacy(shown(ana, job, ledger), state_of(job), job.step)
    assert figures["num_entries"] == len(ledger.releases()) and figures["worst_client"] is None
    assert figures["sample"] == pytest.approx(job.noise_accounting.budget.total()["sample_epsilon"])
    while job.step < job.total_steps:
        job.advance()
    assert job.result()["reason"] == "PRIVACY_BUDGET"
    assert figures["ends"]["round"] == len(job.progress.history)


@pytest.mark.slow
def test_the_tighter_accountants_figures_are_those_of_the_run(page, ana):
    ledger = ServerLedger()
    job = job_at(9, "sample", ledger, privacy={"accountant": "prv", "target_epsilon": 30.0})
    epsilon = job.noise_accounting.budget.total()["epsilon"]
    operation = shown(ana, job, ledger)
    figures = federation.privacy(operation, state_of(job), job.step)
    assert figures["spent"] == figures["sample"] == epsilon and figures["ends"] is None
    assert figures["spent"] < federation.privacy(operation, {}, 0)["spent"]
    text = page_of(page, operation)
    assert f"ε {epsilon:.2f}" in text and "By privacy loss distributions" in text
    assert "at most" not in text


def test_of_a_ledger_that_was_changed_the_page_tells_that_and_no_figure(page, ana):
    ledger = ServerLedger()
    operation = shown(ana, job_at(9, "sample", ledger), ledger)
    tampered("UPDATE {entries} SET step = 9 WHERE number = 3")
    text = page_of(page, operation)
    assert "was modified: entry 3 (identity" in text and "ε" not in text


def test_the_page_says_where_the_tighter_accountant_gave_no_figure(page, ana, monkeypatch):
    monkeypatch.setattr(prv_accountant, "MOST_POINTS", 10)
    ledger = ServerLedger()
    job = job_at(9, "sample", ledger, privacy={"accountant": "prv"})
    assert "By Rényi divergences (the PRV accountant gives no" in page_of(
        page, shown(ana, job, ledger)
    )


@pytest.mark.slow
def test_what_the_tighter_account_does_not_know_of_yet_is_reported(page, ana):
    ledger = ServerLedger()
    job = job_at(9, "sample", ledger, privacy={"accountant": "prv"})
    operation = shown(ana, job, ledger, state="FAILED")
    while job.step < 12:
        job.advance()
    append(operation.pk, 1, ledger.spent())
    by_renyi = Account(1e-5)
    by_renyi.add(ledger.spent())
    assert f"all entries since then, at most ε {by_renyi.epsilon:.2f} (by" in page_of(
        page, operation
    )


@pytest.mark.parametrize(("keeping", "is_shown"), [("sample", True), ("hybrid", False)])
def test_whose_privacy_is_spent_most_is_reported_unless_clients_are_private(
    page, ana, keeping, is_shown
):
    ledger = ServerLedger()
    text = page_of(page, shown(ana, job_at(9, keeping, ledger), ledger))
    assert ("that of the most exposed client" in text) == is_shown


def spent(number, round_number, **changes):
    plain = {"client": number % 4, "level": "sample", "noise_multiplier": 1.0, "sample_rate": 0.05,
             "steps": 20}  # fmt: skip
    return Release(noise=f"{number:032x}", step=number % 1000, round=round_number,
                 **plain | changes)  # fmt: skip


def rounds(first, last, way=0):
    """What four clients spent in these rounds; `way` tells one attempt's noise from another's."""
    return [spent(1000 * way + 4 * number + client, number)
            for number in range(first, last + 1) for client in range(4)]  # fmt: skip


def predicted(owner, entries, target=10.0):
    ledger = ServerLedger(entries)
    job = job_at(0, "sample", privacy={"target_epsilon": target}, rounds=100)
    operation = shown(owner, job, ledger)
    return federation.privacy(operation, state_of(job), 0)["ends"]


def test_what_was_imported_is_no_part_of_a_round_to_come(ana):
    imported = spent(999_000, 0, client=None, steps=100)
    assert predicted(ana, [imported, *rounds(6, 7)]) == predicted(ana, rounds(1, 7))
    carried = spent(999_000, 0, client=None, steps=0, sample_rate=0.0, carried=3.0)
    ends = predicted(ana, [carried, *rounds(1, 7)])["round"]
    assert ends == predicted(ana, rounds(1, 7), target=7.0)["round"]


def test_after_a_resume_with_other_noise_the_forecast_is_of_the_new_way(ana):
    ends = predicted(ana, [*rounds(1, 20), *rounds(2, 4, way=5)])["round"]
    twice = Account(1e-5)  # each client's: 20 rounds, 2 more, and those to come
    fitting = 0
    while True:
        twice.add(rounds(1, 22) if not fitting else rounds(22 + fitting, 22 + fitting, way=9))
        if twice.epsilon > 10.0:
            break
        fitting += 1
    assert ends == 3 + fitting - 1 > 4
    again = [*rounds(1, 20), *rounds(2, 20, way=5)]
    assert predicted(ana, again) is not None


@pytest.mark.slow
@pytest.mark.parametrize("value", quick_some([math.inf, math.nan], every=2), ids=str)
def test_figures_that_are_no_numbers_are_shown_as_they_are(page, ana, value):
    job = job_at(
        11, "sample", ServerLedger(), privacy={"accountant": "prv", "target_epsilon": 99.0}
    )
    operation = shown(ana, job, ServerLedger())
    checkpoint = Checkpoint.objects.get(operation=operation)
    state = checkpoint.state
    figure = lossless.encode(value)
    state["privacy"] = dict.fromkeys(state["privacy"], lossless.encode(math.inf))
    state["clients"] = {"0": {"update_norm": figure, "train_loss": figure}}
    state["best_metric"] = figure
    state["round_history"][0]["val_loss"] = figure
    Checkpoint.objects.filter(pk=checkpoint.pk).update(state=state)
    assert "ε inf" in page_of(page, operation)


def test_a_long_ledger_is_not_read_at_every_look(page, ana, monkeypatch):
    times = iter([0.0, 4.0, 100.0, 100.01])
    monkeypatch.setattr(federation, "perf_counter", lambda: next(times))
    ledger = ServerLedger(rounds(1, 2))
    operation = shown(ana, job_at(0, "sample"), ledger)
    assert "8 releases in the ledger" in page_of(page, operation)
    append(operation.pk, 1, rounds(3, 3))
    assert "8 releases in the ledger" in page_of(page, operation)
    operation.row.update(state="PENDING")  # that is another moment
    assert "12 releases in the ledger" in page_of(page, operation)


def test_a_budget_that_lasts_is_said_to(page, ana):
    ledger = ServerLedger()
    job = job_at(9, "sample", ledger, privacy={"target_epsilon": 200.0})
    assert "the budget lasts for all 3 rounds" in page_of(page, shown(ana, job, ledger))


def test_a_spent_budget_is_why_it_ended(page, ana):
    ledger = ServerLedger()
    job = job_at(99, "sample", ledger, privacy={"target_epsilon": 9.0}, rounds=30)
    operation = shown(ana, job, ledger, state="COMPLETED", reason="PRIVACY_BUDGET",
                      result=dict(job.result()))  # fmt: skip
    text = page_of(page, operation)
    assert "would have exceeded the privacy budget of epsilon 9" in text
    assert "The budget is spent" in text


def test_before_the_first_checkpoint_there_are_rounds_only(page, ana):
    example = KINDS["federated"].parse_config({"recipe": "crowd"}).model_dump(mode="json")
    operation = making.operation(ana, "PENDING", kind="federated", config=example)
    text = page_of(page, operation)
    assert "0 of 10 completed" in text and 'data-testid="clients"' not in text


def test_a_long_run_shows_its_newest_rounds(ana):
    config = KINDS["federated"].parse_config({"recipe": "crowd", "rounds": 500})
    operation = Operation(kind="federated", config=config.model_dump(mode="json"), state="RUNNING")
    history = [{"round": n, "val_loss": 1.0} for n in range(1, 201)]
    drawn = federation.rounds(operation, {"round_history": history})["drawn"]
    assert len(drawn) == federation.MAX_ROUNDS
    assert [each["is"] for each in drawn[-3:]] == ["done", "running", "pending"]


def sent_out(server, job, *rows):
    """The clients of the round as rows of their own, in the order of the round: (state, fields)."""
    made = []
    for client, (state, more) in zip(job.progress.chosen, rows, strict=False):
        config = {"kind": "federated", "config": server.config, "step": 0, "is_subtask": True}
        each = making.operation(server.owner, state, **(config | more))
        Subtask.objects.create(
            operation=each, parent=server, group=job.progress.number, index=client, num_steps=2,
            spec={"epochs": 2}, begins_with="x", identity="x", given_id="none",
            name=job.progress.name_of(client),
        )  # fmt: skip
        made.append(each)
    return made


def grid_of(server):
    newest = Checkpoint.objects.get(operation=server)
    return client_grid.grid(server, newest.state, newest.step)


RUNNING_1 = ("RUNNING", {"step": 1})


def test_clients_elsewhere_are_drawn_as_their_own_rows_say(ana):
    job = job_at(8, placement="distributed", clients=8)
    rows = [
        ("COMPLETED", {"step": 2}), RUNNING_1, RUNNING_1, ("PENDING", {}),
        ("FAILED", {"step": 1, "error": {"message": "it broke"}}),
        ("CANCELLED", {"step": 1, "reason": "DROPPED"}), ("RESUMING", {"step": 1}),
    ]  # fmt: skip
    server = shown(ana, job, ServerLedger())
    sent_out(server, job, *rows)
    found = grid_of(server)["rows"]
    assert [(row["is"], *row["epochs"]) for row in found] == [
        ("done", "done", "done"),
        ("running", "done", "running"),
        ("running", "done", "running"),
        ("waiting", "pending", "pending"),
        ("failed", "done", "failed"),
        ("dropped", "failed", "failed"),
        ("waiting", "done", "pending"),
        ("not sent", "pending", "pending"),
    ]
    assert [row["where"] for row in found[3:6]] == [
        "No worker is running. Start one to run this operation.", "it broke",
        "the round proceeded without it",
    ]  # fmt: skip


def test_what_the_server_has_taken_over_is_done_though_its_rows_are_gone(ana):
    job = job_at(11, placement="distributed")  # client 0, and one epoch of the next
    server = shown(ana, job, ServerLedger(), state="COMPLETED")
    drawn = [(row["is"], row["num_done"]) for row in grid_of(server)["rows"]]
    assert drawn == [("done", 2), ("stopped", 1), ("not sent", 0), ("not sent", 0)]


def test_rows_of_another_round_say_nothing_of_this_one(ana):
    job = job_at(8, placement="distributed")
    server = shown(ana, job, ServerLedger())
    sent_out(server, job, *4 * [("COMPLETED", {"step": 2})])
    Subtask.objects.update(group=1)
    assert {row["is"] for row in grid_of(server)["rows"]} == {"not sent"}


def test_where_it_is_secret_who_takes_part_places_find_their_rows(ana):
    job = job_at(0, "user", placement="distributed", fraction=0.5, clients=12)
    assert 1 < len(job.progress.chosen) < 12
    server = shown(ana, job, ServerLedger())
    first, second = sent_out(server, job, ("COMPLETED", {"step": 2}), RUNNING_1)
    one, two, *_ = grid_of(server)["rows"]
    assert (one["operation_id"], one["is"]) == (first.pk, "done")
    assert (two["operation_id"], two["is"]) == (second.pk, "running")
    assert one["number"] == f"1 of {len(job.progress.chosen)}"


@pytest.mark.slow
def test_the_grid_asks_as_much_for_many_clients_as_for_few(ana, django_assert_num_queries):
    for clients in (3, 20):
        job = job_at(0, placement="distributed", clients=clients)
        server = shown(ana, job, ServerLedger())
        sent_out(server, job, RUNNING_1, *(clients - 1) * [("PENDING", {})])
        newest = Checkpoint.objects.get(operation=server)
        with django_assert_num_queries(4):  # clients, workers, what those run, shares
            client_grid.grid(server, newest.state, newest.step)


def test_of_very_many_clients_at_once_the_first_are_drawn(ana):
    job = make_job(clients=100, local_epochs=4, batched_clients=True, parameters={"examples": 600})
    operation = shown(ana, job, ServerLedger())
    for epoch in range(4):
        grid = client_grid.grid(operation, {**state_of(job), "client_epoch": epoch}, 0)
        assert [row["number"] for row in grid["rows"]] == list(range(40))
        assert {row["num_done"] for row in grid["rows"]} == {epoch}


@pytest.mark.parametrize("more", [{}, {"placement": "distributed"}])
@pytest.mark.parametrize(("step", "first", "last"), [(0, 0, 39), (60, 60, 99), (95, 60, 99)])
def test_of_very_many_clients_those_are_drawn_who_are_next(ana, more, step, first, last):
    job = make_job(clients=100, local_epochs=1, parameters={"examples": 600}, **more)
    state = {**state_of(job), "clients_done": step}
    operation = shown(ana, job, ServerLedger())
    grid = client_grid.grid(operation, state, 0)
    assert [row["number"] for row in grid["rows"]] == list(range(first, last + 1))
    done = sum(row["num_done"] for row in grid["rows"])
    assert done == max(0, step - first) and grid["num_more"] == 60


def test_very_many_epochs_are_reported_and_not_drawn(page, ana):
    job = job_at(0, local_epochs=500)
    operation = shown(ana, job, ServerLedger(), ahead=123)
    part = page_of(page, operation).partition('data-testid="clients"')[2]
    assert "123 of 500" in part and 'title="Epoch' not in part


def test_where_clients_train_what_they_wait_for_and_who_was_dropped(page, ana):
    job = job_at(9, placement="distributed", round_timeout=60)
    job.progress.client_dropped()
    server = shown(ana, job, ServerLedger())
    rows = sent_out(
        server, job, ("CANCELLED", {"reason": "DROPPED"}), ("RUNNING", {"step": 1, "attempt": 1}),
        ("PENDING", {"queue": "hospital-c"}),
    )  # fmt: skip
    making.attempt(rows[1], worker_id="hospital-b")
    text = page_of(page, server)
    part = text.partition('data-testid="clients"')[2].partition("</table>")[0]
    assert "1 of 2" in part and "hospital-b" in part
    assert "No worker is running" in part
    assert part.count("the round proceeded without it") == part.count("Dropped") == 1
    assert all(f"/operations/{each.pk}/" in part for each in rows)
    shown_rows = [line for line in page.get("/operations/").content.decode().split("<tr") if
                  any(each.pk in line for each in rows)]  # fmt: skip
    assert not shown_rows, "the list is of whole operations"


@pytest.fixture
def part(ana):
    """A client's part of a server, as a row of its own."""
    server = shown(ana, job_at(9, placement="distributed"), ServerLedger())
    part = making.operation(ana, "RUNNING", kind="federated", config=server.config)
    part.pk = "op_client_20260101_000000_0123abcd"
    part.is_subtask = True
    part.save(force_insert=True)
    Subtask.objects.create(
        operation=part, parent=server, group=2, index=3, spec={"epochs": 2}, num_steps=2,
        begins_with="x", identity="x", name="client 3", given_id="none",
    )  # fmt: skip
    return part


def test_a_clients_own_page_leads_to_the_whole(page, part):
    text, server = page_of(page, part), part.subtask.parent
    assert "Subtask client 3 in round 2 of" in text and f"/operations/{server.pk}/" in text
    assert 'data-testid="federation"' not in text
    assert page.get(f"/operations/{part.pk}/export/last.pt").status_code == 404


def test_a_clients_own_page_offers_nothing_that_only_the_whole_can(page, part):
    saved(part)
    server = part.subtask.parent
    for each in (part, server):
        each.row.update(state="CANCELLED", lease_expires_at=None, reason="CANCELLED_BY_PERSON")
    of_part, of_whole = page_of(page, part), page_of(page, server)
    for offered in ("submit-again", "fork", "delete", "resume", "export-last", "pin",
                    "resume-from", "delete-checkpoint"):  # fmt: skip
        assert f'data-testid="{offered}"' in of_whole, offered
        assert f'data-testid="{offered}"' not in of_part, offered
    assert "It resumes with its parent operation." in of_part
    assert "not measured yet" not in of_part and "Subtasks have no charts" in of_part


def test_both_files_are_of_the_checkpoint_that_the_page_shows(page, ana, monkeypatch):
    operation, exported = shown(ana, job_at(17), ServerLedger()), []
    names = [f"{operation.pk}-1", f"{operation.pk}-2"]
    kept = [{"name": "best_model.pt", "size_bytes": 1, "blake3": "0" * 64}]
    Checkpoint.objects.filter(pk=names[0]).update(manifest=kept)
    links = [line.split('"')[0] for line in page_of(page, operation).split('href="')
             if "/export/" in line.split('"')[0]]  # fmt: skip
    first = Checkpoint.objects.get(pk=names[0])
    first.pk, first.step = names[1], first.step + 1
    first.save(force_insert=True)

    def export(checkpoint, **_):
        exported.append(checkpoint.pk)
        return exports.ExportedFile(io.BytesIO(), "last.pt")

    monkeypatch.setattr(exports, "export", export)
    for link in [*links, f"/operations/{operation.pk}/export/last.pt"]:
        answer = page.get(link)
        assert answer.status_code == 200
        assert answer.getvalue() == b""
    assert len(links) == 2 and exported == [names[0], names[0], names[1]]
    assert page.get(f"{links[0]}-gone").status_code == 404


def test_other_kinds_have_no_such_section(page, ana):
    assert 'data-testid="federation"' not in page_of(page, making.operation(ana, "RUNNING"))
    assert page.get("/operations/op_none/export/last.pt").status_code == 404
