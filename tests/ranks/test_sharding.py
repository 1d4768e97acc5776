"""Models that are divided over the ranks: stopped, killed and resumed, the end is the same."""

import pytest
import torch

from tests.ranks.divided_loop import Net
from tests.ranks.oracle_sharding import train_divided
from tests.ranks.processes import run_ranks
from tests.ranks.reading import read_alone
from tests.ranks.running import CONFIG, Attempts, require_same_end
from trainops.kind import KINDS
from trainops.kinds.loop.rows import joined_parts
from trainops.process.forking import fork
from trainops.process.protocol import Failed, Stop, Stopped, Succeeded
from trainops.process.warm_start import warm_start
from trainops.runtime.checkpoint.manifest import CheckpointType, verify
from trainops.runtime.checkpoint.store import Candidate, CheckpointStore
from trainops.runtime.errors import CheckpointCorrupted
from trainops.runtime.monitors import STATE_KEY, part_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
DIVIDED = {
    "recipe": "divided", "sharding": "full",
    "monitors": {"train_loss": "min"}, "log_every_steps": 1,
    "checkpoint": {"every_steps": 3, "every_seconds": 1e9, "self_check": False},
}  # fmt: skip
LOOP = {"name": "epoch", "length": 2, "body": ["work", "yield"]}  # of a recipe without run.wrap
STEPS = 16  # of two ranks: twice 7 batches and an evaluation


@pytest.fixture(scope="module")
def runs(forkserver, tmp_path_factory):
    """Return undisturbed runs of plain divided models, by their number of processes."""
    found = {}

    def run(processes):
        if processes not in found:
            root = tmp_path_factory.mktemp("divided")
            found[processes] = Attempts(forkserver, root, DIVIDED | {"processes": processes})
            assert isinstance(found[processes].attempt(), Succeeded)
        return found[processes]

    return run


def candidate(checkpoint):
    return Candidate(checkpoint.path, checkpoint.digest)


def state_of(checkpoint):
    return CheckpointStore(checkpoint.path.parent, identity={}).load(candidate(checkpoint))


def rows_in(state, num_ranks):
    """Return the divided states by rank."""
    others = {rank: state[f"rank{rank}"]["job"]["shards"] for rank in range(1, num_ranks)}
    return {0: state["rank0"]["shards"], **others}


def require_same(one, other):
    """Compare two trees of tensors and plain values."""
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key, each in one.items():
            require_same(each, other[key])
    elif isinstance(one, list | tuple):
        for each, its in zip(one, other, strict=True):
            require_same(each, its)
    else:
        assert one == other


def test_a_divided_model_is_trained_as_by_a_plain_loop_of_fsdp2(attempts, tmp_path):
    run_ranks(train_divided, tmp_path)
    expected = torch.load(tmp_path / "rank0.pt", weights_only=True)  # noqa: TID251
    attempts.config = DIVIDED
    assert isinstance(attempts.attempt(parameters={"is_plain": True}), Succeeded)
    state = state_of(attempts.committed[-1])
    require_same(state["model"], expected["model"])
    require_same(state["best_model"]["model"], expected["best"])
    moments = joined_parts(rows_in(state, 2), 2)["optimizer"]["state"]
    require_same(list(moments.values()), expected["moments"])


@pytest.mark.parametrize("processes", [2, pytest.param(3, marks=pytest.mark.exhaustive)])
def test_a_stop_and_the_death_of_a_rank_change_nothing(processes, attempts, runs):
    expected = runs(processes)
    attempts.config = DIVIDED | {"processes": processes}
    assert isinstance(attempts.attempt("stop 0 4"), Stopped)
    ended = attempts.attempt(f"kill {processes - 1} 9")
    assert isinstance(ended, Failed) and ended.code == "PROCESS_KILLED"
    assert isinstance(attempts.attempt(), Succeeded)
    assert [receipt.exact for receipt in attempts.receipts[1:]] == [True, True]
    require_same_end(attempts, expected)


def test_the_best_by_a_further_metric_is_the_whole_model_of_its_step(attempts, runs):
    expected = runs(2)
    state = state_of(expected.committed[-1])
    trained = {step: each for step, each in expected.curve.items() if "train_loss" in each}
    losses = {step: each["train_loss"] for step, each in trained.items()}
    best = min(losses, key=losses.get)
    line = state["state"][STATE_KEY]["train_loss"]
    assert (line["best_step"], line["best_metric"]) == (best, losses[best])
    attempts.config = DIVIDED
    assert isinstance(attempts.attempt(f"stop 0 {list(losses).index(best) + 1}"), Stopped)
    stopped = state_of(attempts.committed[-1])
    assert stopped["state"]["global_step"] == best
    joined = joined_parts(rows_in(stopped, 2), 2)["model"]
    require_same(state[part_of("train_loss")]["model"], joined)


def test_the_model_is_whole_where_max_duration_ended_the_training(attempts):
    attempts.config = DIVIDED | {"limits": {"max_duration": "4ba"}}
    assert isinstance(attempts.attempt(), Succeeded)
    state = state_of(attempts.committed[-1])
    require_same(state["model"], joined_parts(rows_in(state, 2), 2)["model"])


def test_each_rank_holds_its_share_of_parameters_and_moments(runs):
    total = sum(each.numel() for each in Net().parameters())
    by_rank = rows_in(state_of(runs(3).committed[0]), 3)
    own = {
        rank: [each["rows"].numel() for each in parts["model"].values() if isinstance(each, dict)]
        for rank, parts in by_rank.items()
    }
    assert sum(map(sum, own.values())) == total
    assert all(sum(each) <= total / 3 + 15 * len(each) for each in own.values())  # a row more each
    for rank, parts in by_rank.items():
        for name in ("exp_avg", "exp_avg_sq"):
            moments = [each[name]["rows"].numel() for each in parts["optimizer"]["state"].values()]
            assert moments == own[rank]


def test_an_altered_part_of_a_rank_is_named(attempts):
    attempts.config = DIVIDED
    attempts.attempt("stop 0 2")
    path = attempts.committed[-1].path
    assert {"rank0.pt", "rank1.pt"} <= {each.name for each in attempts.committed[-1].artifacts}
    content = bytearray((path / "rank1.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (path / "rank1.pt").chmod(0o600)
    (path / "rank1.pt").write_bytes(content)
    with pytest.raises(CheckpointCorrupted, match=r"rank1\.pt"):
        verify(path)


@pytest.mark.parametrize("after", [1, pytest.param(3, marks=pytest.mark.exhaustive)])
def test_another_number_of_ranks_has_the_same_weights_and_moments(after, attempts, runs):
    expected = state_of(runs(2).committed[-1])
    attempts.committed = [runs(2).committed[-1]]
    attempts.config = DIVIDED
    assert isinstance(attempts.attempt(processes=after), Succeeded)
    inexact = {each.part: each.note for each in attempts.receipts[-1].items if not each.exact}
    assert inexact.keys() == ({"processes", "sharding"} if after == 1 else {"processes"})
    assert inexact["processes"].startswith(f"was 2, is {after}: ")
    assert inexact["processes"].endswith("; parameters are divided anew")
    state = state_of(attempts.committed[-1])
    wanted = joined_parts(rows_in(expected, 2), 2)
    parts = state if after == 1 else joined_parts(rows_in(state, after), after)
    require_same(parts["model"], wanted["model"])
    require_same(parts["optimizer"], wanted["optimizer"])
    require_same(state["model"], expected["model"])


@pytest.mark.parametrize(
    ("before", "now", "named"),
    [
        ({"processes": 2}, {"processes": 3}, ["processes"]),
        ({"sharding": "none"}, {"sharding": "full"}, ["sharding"]),
        ({"sharding": "full", "processes": 3}, {"sharding": "none", "processes": 3}, ["sharding"]),
    ],
)
def test_a_resume_of_another_layout_says_what_that_changes(before, now, named, attempts):
    attempts.config = DIVIDED
    assert isinstance(attempts.attempt("stop 0 3", **before), Stopped)
    attempts.curve = {}
    assert isinstance(attempts.attempt(**now), Succeeded)
    inexact = [item.part for item in attempts.receipts[-1].items if not item.exact]
    assert inexact == named


def test_a_fork_and_a_warm_start_take_a_divided_model(attempts, runs, tmp_path):
    config = KINDS["loop"].parse_config(CONFIG | DIVIDED)
    source = runs(2).committed[0]
    assert source.type is not CheckpointType.FINAL
    made = fork(
        KINDS["loop"], source=candidate(source), before=config, after=config, inputs={},
        store=CheckpointStore(tmp_path / "fork", identity={"attempt": 0}),
    )  # fmt: skip
    forked = Attempts(attempts.forkserver, tmp_path / "fork", DIVIDED, committed=[made])
    assert isinstance(forked.attempt(), Succeeded) and forked.receipts[0].exact
    forked.curve = runs(2).curve | forked.curve
    require_same_end(forked, runs(2))
    started, receipt = warm_start(
        KINDS["loop"], source=candidate(runs(2).committed[-1]), config=config, inputs={},
        store=CheckpointStore(tmp_path / "warm", identity={"attempt": 0}),
    )  # fmt: skip
    require_same(state_of(started)["model"], state_of(runs(2).committed[-1])["model"])
    assert [item.exact for item in receipt.items] == [True]


@pytest.mark.exhaustive
def test_the_self_check_compares_divided_models(attempts):
    attempts.config = DIVIDED

    def stop_when_it_is_done(child, report):
        if attempts.findings:
            child.wire.send(Stop("CANCEL"))

    attempts.on_report = stop_when_it_is_done
    checkpoint = {"every_steps": 3, "every_seconds": 1e9}
    ended = attempts.attempt(checkpoint=checkpoint, parameters={"epochs": 10_000})
    assert isinstance(ended, Stopped)
    assert [(each.verdict, each.parts) for each in attempts.findings] == [("equal", ())]


@pytest.mark.exhaustive
def test_one_rank_may_read_its_state_after_an_evaluation(tmp_path):
    run_ranks(read_alone, tmp_path)
    for rank in range(2):
        evaluated, trained = torch.load(tmp_path / f"rank{rank}.pt", weights_only=True)  # noqa: TID251
        assert torch.equal(evaluated, trained)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"parameters": {"is_early": True}},
            "recipe: got 'optimizer', made before run.wrap divided its parameters; "
            "allowed: optimizers made after run.wrap",
        ),
        (
            {"parameters": {"keeps_rows": True}},
            "recipe: 'own' contains a DTensor, of which a rank has its rows only; "
            "allowed: whole tensors (full_tensor())",
        ),
        (
            {"recipe": "program", "parameters": {"body": [LOOP]}},
            "sharding: got full for a recipe that does not call run.wrap; "
            "allowed: none, or a loop that calls it",
        ),
    ],
)
def test_what_cannot_be_divided_is_refused(changes, message, attempts):
    ended = attempts.attempt(**DIVIDED | changes)
    assert isinstance(ended, Failed) and message in ended.message


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus_stop_and_continue_with_a_divided_model(attempts):
    attempts.config = DIVIDED | {"device": "cuda"}
    attempts.environment = {"CUDA_VISIBLE_DEVICES": "0,1"}
    expected = Attempts(attempts.forkserver, attempts.root / "undisturbed", attempts.config)
    expected.environment = attempts.environment
    assert isinstance(expected.attempt(), Succeeded)
    assert isinstance(attempts.attempt("stop 0 5"), Stopped)
    assert isinstance(attempts.attempt("kill 1 9"), Failed)
    assert isinstance(attempts.attempt(), Succeeded)
    require_same_end(attempts, expected)
