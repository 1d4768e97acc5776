"""The privacy ledger in the database: appended to under the fence, and never rewound."""

import math
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from apps.checkpoints import place
from apps.checkpoints.models import Checkpoint
from apps.ledger.models import LedgerAccount, LedgerEntry
from apps.ledger.services import account_of, create, inherit
from apps.operations.attempts.report_writer import ReportWriter
from apps.operations.models import Attempt, Operation
from apps.operations.requests import deletion, forking, services
from apps.operations.scheduling import claims
from tests.operations.attempts import Running, run
from tests.operations.releases import append, rows_of, spent_by
from tests.operations.rows import OFFER, claim
from tests.operations.tampering import tampered
from tests.waiting import wait_until
from trainops.kinds.federated.releases import Release

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.database,
    pytest.mark.postgres,
]
in_a_house = pytest.mark.slow
CONFIG = {
    "recipe": "crowd", "rounds": 12, "clients": 3, "local_epochs": 2, "batch_size": 6,
    "threads": 1, "privacy": {"mode": "sample", "noise_multiplier": 1.0},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _storage_of_its_own(settings, tmp_path):
    settings.CHECKPOINT_ROOT = tmp_path / "checkpoints"


def entry(number, **changes):
    plain = {"noise": f"{number:032x}", "step": number, "round": 1, "client": 0, "level": "sample",
             "noise_multiplier": 1.0, "sample_rate": 0.1, "steps": 10}  # fmt: skip
    return Release(**plain | changes)


def submit(owner=None, *, secret="5e" * 32, **config):
    """Submit an operation whose noise is that of any other with this secret."""
    operation = services.submit(kind="federated", config=CONFIG | config, owner=owner)
    create(operation.pk, secret)
    return operation


def rows(operation):
    names = ("noise", "step", "round", "client", "level", "sample_rate", "steps")
    return rows_of(operation.pk, names)


def killed(runtime, operation, *, at):
    """Run an attempt until its process is killed; return the operation, ready for the next."""
    running = Running(runtime, operation).until_step(at)
    os.kill(running.pid, signal.SIGKILL)
    assert running.ended().state == "RESUMING"
    operation.row.update(not_before=None)
    return operation


def final(operation):
    manifest = Checkpoint.objects.get(operation=operation, type="final").manifest
    return {each["name"]: each["blake3"] for each in manifest}


def test_entries_are_read_as_they_were_written_and_once_each():
    append("op_1", 1, [entry(1), entry(2, client=None, level="user")])
    append("op_1", 2, [entry(2, client=None, level="user"), entry(3, carried=2.5)])
    assert spent_by("op_1") == [
        entry(1), entry(2, client=None, level="user"), entry(3, carried=2.5)
    ]  # fmt: skip
    assert list(LedgerEntry.objects.values_list("attempt", flat=True)) == [1, 1, 2]
    assert all(LedgerEntry.objects.values_list("recorded_at", flat=True))


def test_nothing_is_changed_or_deleted():
    append("op_1", 1, [entry(1)])
    for change in (
        lambda: LedgerEntry.objects.update(step=1),
        lambda: LedgerEntry.objects.all().delete(),
        lambda: LedgerEntry.objects.get().delete(),
        lambda: LedgerEntry.objects.get().save(),
    ):
        with pytest.raises(TypeError, match="append-only"):
            change()
    assert LedgerEntry.objects.get().values["steps"] == 10


def test_an_attempt_that_lost_its_operation_writes_nothing():
    place.require()
    submit()
    operation = claim(offer=replace(OFFER, kinds=["federated"]))
    ReportWriter(operation).append([entry(1).to_entry()])
    operation.row.update(attempt=2)
    with pytest.raises(claims.Fenced):
        ReportWriter(operation).append([entry(2).to_entry()])
    assert len(spent_by(operation.pk)) == 1


def test_a_fork_inherits_from_all_its_ancestors_and_deletion_forgets_nothing():
    append("op_1", 1, [entry(1)])
    inherit("op_2", "op_1")
    append("op_2", 1, [entry(2)])
    inherit("op_3", "op_2")
    append("op_3", 1, [entry(3)])
    append("op_4", 1, [entry(4)])
    assert [(e.step, e.is_own) for e in spent_by("op_3")] == [(1, False), (2, False), (3, True)]
    accounts = LedgerAccount.objects.filter(pk__in=["op_1", "op_2", "op_3"])
    secrets = set(accounts.values_list("secret", flat=True))
    assert len(secrets) == 1, "what both do from the same bits is one release"


def test_what_a_fork_and_its_ancestor_both_did_is_read_once():
    inherit("op_2", "op_1")
    append("op_1", 1, [entry(1)])
    append("op_2", 1, [entry(1)])
    assert [(e.step, e.is_own) for e in spent_by("op_2")] == [(1, True)]


def test_accounts_draw_secrets_of_their_own():
    one, other = account_of("op_1"), account_of("op_2")
    assert one.secret != other.secret and len(bytes.fromhex(one.secret)) == 32
    assert account_of("op_1").secret == one.secret


@in_a_house
@pytest.mark.parametrize("mode", ["sample", "hybrid"])
def test_killed_and_resumed_the_ledger_is_the_undisturbed_runs(runtime, mode):
    privacy = {"mode": mode, "noise_multiplier": 1.0}
    privacy |= {"user_noise_multiplier": 1.0} if mode == "hybrid" else {}
    whole = run(runtime, submit(privacy=privacy))
    assert whole.state == "COMPLETED", whole.error
    resumed = run(runtime, killed(runtime, submit(privacy=privacy), at=5))
    assert resumed.state == "COMPLETED" and resumed.attempt == 2
    assert rows(resumed) == rows(whole)
    assert resumed.result == whole.result and final(resumed) == final(whole)


@in_a_house
def test_a_resume_with_other_bits_adds_and_a_rewound_ledger_is_refused(runtime, person):
    keep = {"checkpoint": {"keep_last": 500, "keep_after_success": True}}
    operation = submit(person, **keep)
    killed(runtime, operation, at=8)
    before = len(rows(operation))
    older = Checkpoint.objects.filter(operation=operation).order_by("step")[0]
    config = {**services.get(operation.pk).config, "threads": 2}
    operation.row.update(config=config, resume_from=older.pk)
    done = run(runtime, operation)
    assert done.state == "COMPLETED", done.error
    assert len(rows(done)) == 72 + before - older.step, "what it had spent after is not refunded"
    tampered("DELETE FROM {entries} WHERE step = 1")
    operation.row.update(state="RESUMING", resume_from=older.pk)  # as no service would
    refused = run(runtime, operation)
    assert (refused.state, refused.reason) == ("FAILED", "PRIVACY_LEDGER_MISMATCH")


@in_a_house
def test_a_recipe_with_its_own_optimizers_is_refused_before_the_first_release(runtime):
    failed = run(runtime, submit(parameters={"own_optimizers": True}))
    assert (failed.state, failed.reason) == ("FAILED", "INPUT_ERROR")
    assert "brings its own optimizers" in failed.error["message"]
    assert failed.step == 0 and not rows(failed)


@in_a_house
def test_the_budget_ends_an_operation_as_completed_and_says_why(runtime):
    privacy = {"mode": "sample", "noise_multiplier": 1.0, "target_epsilon": 9.0}
    done = run(runtime, submit(privacy=privacy))
    assert (done.state, done.reason) == ("COMPLETED", "PRIVACY_BUDGET")
    assert done.step == done.total_steps < 72
    assert done.result["privacy"]["epsilon"] <= 9.0
    assert Checkpoint.objects.filter(operation=done, type="final").exists()
    assert "budget" in done.events.get(what="COMPLETED").note


@in_a_house
@pytest.mark.parametrize("mode", ["sample", "user"])
def test_a_fork_continues_with_its_ancestors_noise_and_ledger(runtime, person, mode):
    privacy = {"mode": mode, "noise_multiplier": 1.0, "user_noise_multiplier": 1.0}
    source = run(runtime, submit(person, privacy=privacy, rounds=4))
    whole = run(runtime, submit(person, privacy=privacy, rounds=6))
    fork = forking.fork(operation_id=source.pk, owner=person, config={"rounds": 6})
    deletion.delete(operation_id=source.pk, actor=person)
    done = run(runtime, fork)
    assert done.state == "COMPLETED", done.error
    assert [e.noise for e in spent_by(fork.pk)] == [e.noise for e in spent_by(whole.pk)]
    assert done.result["privacy"]["epsilon"] == whole.result["privacy"]["epsilon"]
    assert final(done)["model.pt"] == final(whole)["model.pt"]


@in_a_house
def test_nothing_of_the_secret_or_of_a_users_update_is_in_what_is_kept(runtime, person, tmp_path):
    privacy = {"mode": "user", "user_noise_multiplier": 1.0}
    operation = submit(person, privacy=privacy, checkpoint={"keep_last": 500})
    killed(runtime, operation, at=9)
    secret = LedgerAccount.objects.get(pk=operation.pk).secret
    for path in (tmp_path / "checkpoints").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert bytes.fromhex(secret) not in content and secret.encode() not in content
            assert b"train_loss" not in content
    values = str(Operation.objects.values().get(pk=operation.pk))
    assert secret not in values and "train_" not in str(services.get(operation.pk).metrics)


def is_over(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@in_a_house
@pytest.mark.parametrize("policy", ["never", "on_worker_loss"])
def test_a_process_that_dies_while_its_release_is_written_down_says_why(
    runtime, monkeypatch, policy
):
    append_entries, moments = ReportWriter.append, []

    def die_and_append(writer, entries):
        moments.append(None)
        if len(moments) == 3:
            pid = Attempt.objects.get(operation=writer.operation, ended_at=None).pid
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: is_over(pid))
        append_entries(writer, entries)

    monkeypatch.setattr(ReportWriter, "append", die_and_append)
    left = run(runtime, submit(restart={"policy": policy}))
    assert left.reason == left.attempts.get().reason == "PROCESS_KILLED"
    assert left.state == ("FAILED" if policy == "never" else "RESUMING")
    assert LedgerEntry.objects.filter(operation_id=left.pk).count() == 3


@pytest.mark.parametrize(
    "changes",
    [{"noise_multiplier": math.nan}, {"carried": math.nan}, {"sample_rate": 1.5}, {"steps": -1},
     {"client": -1}, {"sample_rate": math.nan}, {"carried": math.inf}, {"step": 2.0},
     {"steps": 5.0}, {"round": True}, {"client": False}, {"client": 2**31}, {"step": 2**63},
     {"steps": "5"}, {"noise": "0" * 33}, {"noise": 7}, {"level": "client"}, {"level": None},
     {"carried": True}, {"noise_multiplier": "1.0"}, {"noise_multiplier": 10**400}],
    ids=str,
)  # fmt: skip
def test_what_is_no_release_is_refused_and_not_left_out(changes):
    with pytest.raises(ValueError, match="invalid ledger entries, none was recorded"):
        append("op", 1, [entry(1), entry(2, **changes)])
    assert not LedgerEntry.objects.exists()


def test_the_greatest_figures_are_read_as_they_were_written():
    least = entry(1, noise="", step=0, client=None, noise_multiplier=0, sample_rate=1, carried=-0.0)
    greatest = entry(
        2, step=2**63 - 1, round=2**63 - 1, steps=2**63 - 1, client=2**31 - 1, carried=1e300
    )
    append("op", 1, [least, greatest])
    assert spent_by("op") == [least, greatest]
