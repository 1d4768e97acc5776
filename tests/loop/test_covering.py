"""The contract over a covering sample: stopped and killed, each form ends as undisturbed.

Pairs of values of all factors in `.ci/run` (a part of them) and `--all`; the product in `--all`.
"""

import json
import random
import re
import signal
from itertools import pairwise as neighbours
from itertools import product

import pytest

from apps.operations.attempts.children import ForkServer
from tests.engines.contract import (
    Case,
    MachineDied,
    ScriptedSupervisor,
    attempt,
    require_same_end,
    undisturbed,
)
from tests.loop import covering
from tests.loop.covering import EXCLUDED, FACTORS, pairs, pairwise, rows, unavailable
from tests.ranks import running
from tests.thinning import some_of
from tests.waiting import wait_until
from trainops.process.protocol import Failed, Stopped, Succeeded

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
PAIRWISE = pairwise()
CONFIG = {"threads": 1, "log_every_steps": 2, "monitor": "val_loss"}


def name_of(row):
    return "-".join(map(str, row.values()))


def test_every_pair_of_values_that_can_be_had_occurs():
    possible = set().union(*map(pairs, rows()))
    assert set().union(*map(pairs, PAIRWISE)) == possible
    assert {("form", "loop"), ("ranks", 2)} in [set(each) for each in possible]
    assert len(PAIRWISE) < len(list(rows())) / 5


def test_a_row_is_left_out_only_by_a_rule_with_a_name():
    whole = [dict(zip(FACTORS, each, strict=True)) for each in product(*FACTORS.values())]
    kept = list(rows())
    for row in whole:
        names = [name for name, excludes in EXCLUDED.items() if excludes(row)]
        assert (row in kept) == (not names)


@pytest.mark.parametrize(
    ("num_gpus", "skipped"), [(0, {1, 2}), (1, {2}), (2, set())], ids=["none", "one", "two"]
)
def test_fp16_is_tried_where_each_rank_has_a_gpu(monkeypatch, num_gpus, skipped):
    monkeypatch.setattr(covering, "num_gpus", lambda: num_gpus)
    chosen = pairwise()
    left_out = [row for row in chosen if unavailable(row)]
    assert {row["ranks"] for row in left_out} == skipped
    assert {row["precision"] for row in left_out} <= {"fp16"}
    computed = set().union(*(pairs(row) for row in chosen if not unavailable(row)))
    assert computed == set().union(*(pairs(row) for row in rows() if not unavailable(row)))


def case_of(row):
    if row["form"] == "tensors":
        config = {
            "recipe": "toy", "batch_size": 8, "epochs": 3,
            "gradient_accumulation": row["accumulation"],
            "parameters": {"two_optimizers": row["optimizers"] == 2},
        }  # fmt: skip
        return Case("training", name_of(row), CONFIG | config, ())
    return Case("loop", name_of(row), CONFIG | config_of(row), ())


def config_of(row):
    parameters = {name: value for name, value in row.items() if name != "ranks"}
    return {"recipe": "covering", "parameters": parameters, "processes": row["ranks"]}


def places(expected):
    """Return the steps within epochs, and those that end one but the last."""
    found = [
        (each.step, re.search(r"(\d+) of \d+ epoch", each.place)) for each in expected.progress
    ]
    epochs = [(step, match[1]) for step, match in found if match and step]  # in none at the end
    last = expected.progress[-1].step
    changes = {step for (step, epoch), (_, later) in neighbours(epochs) if epoch != later}
    ends = sorted(changes - {last})
    inside = sorted({step for step, _ in epochs} - {*ends, last})
    return inside, ends


def interrupted(case, root, expected, at, kills):
    """Interrupt at each of these steps, in an attempt of its own; then run to the end."""
    attempts, saved = [], []
    for number, (step, dies) in enumerate([*zip(at, kills, strict=True), (None, False)], start=1):
        supervisor = ScriptedSupervisor(at=step, dies=dies)
        try:
            attempt(case, root, supervisor, resume=saved, number=number, every_steps=2)
        except MachineDied:
            assert dies
        saved = [*reversed(supervisor.checkpoints), *saved]
        attempts.append(supervisor)
        assert all(receipt.exact for receipt in supervisor.receipts)
        assert not supervisor.bad and not supervisor.failed_saves
    assert len(attempts[-1].receipts) == 1
    require_same_end(expected, attempts)


def require_contract(row, root, request):
    if reason := unavailable(row):
        pytest.skip(reason)
    if row["form"] in ("lightning", "transformers"):
        pytest.importorskip(row["form"], reason=f"the extra {row['form']} is not installed")
    rng = random.Random(name_of(row))
    if row["ranks"] > 1:
        num_kills = 1 + (request.node.get_closest_marker("exhaustive") is not None)
        forkserver = request.getfixturevalue("forkserver")
        require_contract_of_ranks(row, root, forkserver, rng, num_kills)
        return
    case = case_of(row)
    expected = undisturbed(case, root)
    inside, (first_end, second_end) = places(expected)
    before = rng.choice([step for step in inside if step < second_end])
    after = rng.choice([step for step in inside if step > first_end])
    interrupted(case, root / "stopped", expected, (before, second_end), (False, True))
    interrupted(case, root / "killed", expected, (first_end, after), (True, False))


def batches_per_epoch(row):
    """Return how many batches each of two ranks trains on."""
    if row["loaders"] == 1:
        return 3
    return 3 if row["schedule"] == "together" else 7


def signals(row, rng):
    """Return the batches at which two stops and two kills arrive; a window is ended before a stop.

    The first stop is obeyed at the end of a window, the second at the end of an epoch.
    """
    length = batches_per_epoch(row)
    is_by_batch = row["form"] == "lightning" and row["optimizers"] > 1
    window = 1 if is_by_batch else row["accumulation"]
    inside = rng.randint(1, length - 1)
    has_ended = -(-inside // window) * window >= length
    end = 2 * length if has_ended else length
    return (inside, end), (rng.randint(end + 1, end + length - 1), end + length)


def require_contract_of_ranks(row, root, forkserver, rng, num_kills):
    """Signals arrive within a window; to stop is obeyed at its end."""
    checkpoint = {"every_steps": 2, "every_seconds": 1e9, "self_check": False}
    device = "cuda" if row["precision"] == "fp16" else "cpu"
    config = CONFIG | config_of(row) | {"checkpoint": checkpoint, "device": device}
    expected = running.Attempts(forkserver, root / "undisturbed", config)
    assert isinstance(expected.attempt(), Succeeded), expected.ended
    attempts = running.Attempts(forkserver, root / "disturbed", config)
    stops, kills = signals(row, rng)
    for batch in stops:
        assert isinstance(attempts.attempt(f"stop 0 {batch}"), Stopped), attempts.ended
    assert has_ended_epoch(attempts.committed[-1]), "the second stop is at the end of an epoch"
    for batch in kills[:num_kills]:
        rank = rng.randrange(2)
        ended = attempts.attempt(f"kill {rank} {batch}")
        assert ended == -signal.SIGKILL if rank == 0 else isinstance(ended, Failed)
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    assert all(receipt.exact for receipt in attempts.receipts[1:])
    assert len(attempts.receipts) == 3 + num_kills
    running.require_same_end(attempts, expected)


def has_ended_epoch(checkpoint):
    """Whether all batches of an epoch are trained; a validation may follow within the last."""
    place = json.loads((checkpoint.path / "state.json").read_text())["place"]
    done, length, within = re.search(r"epochs, \w+: (\d+) of (\d+) done(, )?", place).groups()
    return int(done) + bool(within) == int(length)


@pytest.fixture(scope="module")
def forkserver():
    forkserver = ForkServer()
    forkserver.open()
    wait_until(lambda: forkserver.is_ready)
    yield forkserver
    forkserver.close()


@pytest.mark.parametrize("row", some_of(PAIRWISE, every=6), ids=name_of)
def test_every_pair_ends_as_undisturbed(row, tmp_path, request):
    require_contract(row, tmp_path, request)


@pytest.mark.parametrize("row", [e for e in PAIRWISE if e["form"] == "ingredients"], ids=name_of)
def test_pairs_of_ingredients_over_datasets_end_as_undisturbed(row, tmp_path, request):
    require_contract(row, tmp_path, request)


@pytest.mark.exhaustive
@pytest.mark.parametrize("row", list(rows()), ids=name_of)
def test_every_row_ends_as_undisturbed(row, tmp_path, request):
    require_contract(row, tmp_path, request)
