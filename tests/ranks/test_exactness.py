"""Several processes compute one job: stopped, killed and resumed anywhere, the end is the same."""

import random
import signal

import pytest
import torch
from torch.utils._pytree import tree_leaves

from tests.ranks.oracle import train_plainly
from tests.ranks.processes import run_ranks
from tests.ranks.running import CONFIG, Attempts, require_same_end
from tests.thinning import some_of
from trainops.files.checks import Severity
from trainops.files.verify import verify
from trainops.kind import KINDS
from trainops.process.forking import fork
from trainops.process.protocol import Failed, Stopped, Succeeded
from trainops.runtime.checkpoint.store import Candidate, CheckpointStore

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
TRAINED = {2: 14, 3: 10}  # steps that train, by the number of processes


def state_of(checkpoint):
    store = CheckpointStore(checkpoint.path.parent, identity={})
    return store.load(Candidate(checkpoint.path, checkpoint.digest))


def test_two_processes_train_as_a_plain_loop_of_ddp_does(attempts, tmp_path):
    run_ranks(train_plainly, tmp_path)
    expected = torch.load(tmp_path / "rank0.pt", weights_only=True)  # noqa: TID251
    assert isinstance(attempts.attempt(parameters={"is_plain": True}), Succeeded)
    state = state_of(attempts.committed[-1])
    for part in ("model", "optimizer"):
        for found, wanted in zip(
            tree_leaves(state[part]), tree_leaves(expected[part]), strict=True
        ):
            equal = torch.equal if isinstance(wanted, torch.Tensor) else lambda a, b: a == b
            if not isinstance(wanted, float):  # the learning rate, which the schedule computes
                assert equal(found, wanted), part


STOPS = [(num, step) for num, steps in TRAINED.items() for step in range(1, steps)]


@pytest.mark.parametrize(("processes", "step"), some_of(STOPS, every=7))
def test_a_stop_changes_nothing(processes, step, attempts, undisturbed):
    expected = undisturbed(processes)
    attempts.config = {"processes": processes}
    for at in (step, step + 1):
        assert isinstance(attempts.attempt(f"stop 0 {at}"), Stopped)
        assert attempts.committed[-1].state["global_step"] >= at
    assert isinstance(attempts.attempt(), Succeeded)
    assert [receipt.exact for receipt in attempts.receipts[1:]] == [True, True]
    require_same_end(attempts, expected)


@pytest.mark.parametrize("rank", some_of([0, 1, 2], every=2))
def test_the_death_of_any_rank_changes_nothing(rank, attempts, undisturbed):
    expected = undisturbed(3)
    attempts.config = {
        "processes": 3,
        "checkpoint": {"every_steps": 3, "every_seconds": 1e9, "self_check": False},
    }
    for at in (4, 8):
        ended = attempts.attempt(f"kill {rank} {at}")
        if rank == 0:
            assert ended == -signal.SIGKILL
        else:
            assert isinstance(ended, Failed) and ended.code == "PROCESS_KILLED"
            assert ended.message == f"rank {rank} ended by SIGKILL"
    assert isinstance(attempts.attempt(), Succeeded)
    require_same_end(attempts, expected)


@pytest.mark.parametrize("recipe", ["together", "divided"])
def test_a_checkpoint_of_several_ranks_is_verified(recipe, attempts):
    attempts.config = {"recipe": recipe, "sharding": "full" if recipe == "divided" else "none"}
    assert isinstance(attempts.attempt("stop 0 5"), Stopped), attempts.ended
    load = verify(attempts.committed[-1].path).checks[-1]
    assert load.name == "load" and load.level is Severity.OK, load


@pytest.mark.parametrize("after", some_of([1, 2, 3], every=2))
def test_a_fork_continues_with_any_number_of_processes(after, attempts, undisturbed, tmp_path):
    assert isinstance(attempts.attempt("stop 0 5"), Stopped)
    source = attempts.committed[-1]
    before, wanted = (
        KINDS["loop"].parse_config(CONFIG | {"processes": each}) for each in (2, after)
    )
    made = fork(
        KINDS["loop"], source=Candidate(source.path, source.digest), before=before, after=wanted,
        inputs={}, store=CheckpointStore(tmp_path / "fork", identity={"attempt": 0}),
    )  # fmt: skip
    forked = Attempts(attempts.forkserver, tmp_path / "fork", committed=[made])
    assert isinstance(forked.attempt(processes=after), Succeeded)
    assert forked.receipts[0].step == 5 and forked.receipts[0].exact == (after == 2)
    if after == 2:
        forked.curve = attempts.curve | forked.curve
        require_same_end(forked, undisturbed(2))


@pytest.mark.exhaustive
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", range(20))
def test_drawn_faults_change_nothing(seed, attempts, undisturbed):
    rng = random.Random(seed)  # noqa: S311
    processes = rng.choice([2, 3])
    expected = undisturbed(processes)
    attempts.config = {
        "processes": processes,
        "checkpoint": {"every_steps": rng.choice([1, 2, 3]), "every_seconds": 1e9},
    }
    for _ in range(6):
        what, rank = rng.choice([("stop", 0), ("kill", rng.randrange(processes))])
        attempts.attempt(f"{what} {rank} {rng.randint(1, TRAINED[processes])}")
        if isinstance(attempts.ended, Succeeded):
            break
    assert isinstance(attempts.ended, Succeeded) or isinstance(attempts.attempt(), Succeeded)
    require_same_end(attempts, expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("config", [{}, {"recipe": "ranked_lit", "monitor": "val_loss"}], ids=str)
def test_processes_on_a_gpu_stop_and_continue(attempts, config):
    attempts.config = config | {"device": "cuda", "processes": 1}
    expected = Attempts(attempts.forkserver, attempts.root / "undisturbed", attempts.config)
    assert isinstance(expected.attempt(), Succeeded), expected.ended
    assert isinstance(attempts.attempt("stop 0 3"), Stopped), attempts.ended
    assert attempts.attempt("kill 0 5") == -signal.SIGKILL
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    assert attempts.receipts[-1].exact
    require_same_end(attempts, expected)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus_stop_and_continue(attempts, undisturbed):
    attempts.config = {"device": "cuda"}
    attempts.environment = {"CUDA_VISIBLE_DEVICES": "0,1"}
    expected = Attempts(attempts.forkserver, attempts.root / "undisturbed", attempts.config)
    expected.environment = attempts.environment
    assert isinstance(expected.attempt(), Succeeded)
    assert isinstance(attempts.attempt("stop 0 5"), Stopped)
    assert isinstance(attempts.attempt("kill 1 9"), Failed)
    assert isinstance(attempts.attempt(), Succeeded)
    require_same_end(attempts, expected)


@pytest.mark.exhaustive
def test_the_self_check_compares_ranks_of_its_own(attempts):
    config = {"every_steps": 3, "every_seconds": 1e9}
    ended = attempts.attempt(checkpoint=config, parameters={"epochs": 300})
    assert isinstance(ended, Succeeded)
    assert [(each.verdict, each.parts) for each in attempts.findings] == [("equal", ())]
    assert attempts.output == ""


def test_max_duration_ends_all_ranks_at_the_same_step(attempts):
    given = {"processes": 2, "limits": {"max_duration": "5ba"}}
    assert isinstance(attempts.attempt("stop 0 2", **given), Stopped)
    ended = attempts.attempt(**given)
    assert isinstance(ended, Succeeded)
    assert (ended.result["steps"], attempts.committed[-1].step) == (5, 5)
    assert ended.result["stopped_by"] == "max_duration at 5 batches"


@pytest.mark.parametrize(("before", "after"), [(2, 1), (2, 3), (1, 2)])
def test_another_number_of_processes_continues_and_says_what_that_changes(before, after, attempts):
    assert isinstance(attempts.attempt("stop 0 3", processes=before), Stopped)
    attempts.curve = {}
    assert isinstance(attempts.attempt(processes=after), Succeeded)
    (item,) = [item for item in attempts.receipts[-1].items if not item.exact]
    assert item.part == "processes" and item.note.startswith(f"was {before}, is {after}: ")
    batches = -(-13 // after)  # of a rank and pass
    assert attempts.committed[-1].step == 3 + (batches - 3 * before // after) + 1 + batches + 1
