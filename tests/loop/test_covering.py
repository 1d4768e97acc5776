"""The contract over a covering sample: stopped and killed, each form ends as undisturbed.

Pairs of values of all factors in `.ci/run` (a part of them) and `--all`; the product in `--all`.
"""

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
from tests.loop.covering import EXCLUDED, FACTORS, pairs, pairwise, rows
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
    if row["form"] in ("lightning", "transformers"):
        pytest.importorskip(row["form"], reason=f"the extra {row['form']} is not installed")
    rng = random.Random(name_of(row))
    if row["ranks"] > 1:
        require_contract_of_ranks(row, root, request.getfixturevalue("forkserver"), rng)
        return
    case = case_of(row)
    expected = undisturbed(case, root)
    inside, (first_end, second_end) = places(expected)
    before = rng.choice([step for step in inside if step < second_end])
    after = rng.choice([step for step in inside if step > first_end])
    interrupted(case, root / "stopped", expected, (before, second_end), (False, True))
    interrupted(case, root / "killed", expected, (first_end, after), (True, False))


def require_contract_of_ranks(row, root, forkserver, rng):
    """The signal arrives within a window, and is obeyed at its end."""
    checkpoint = {"every_steps": 2, "every_seconds": 1e9, "self_check": False}
    config = CONFIG | config_of(row) | {"checkpoint": checkpoint}
    expected = running.Attempts(forkserver, root / "undisturbed", config)
    assert isinstance(expected.attempt(), Succeeded), expected.ended
    attempts, rank = running.Attempts(forkserver, root / "disturbed", config), rng.randrange(2)
    assert isinstance(attempts.attempt(f"stop 0 {rng.randint(1, 3)}"), Stopped)
    ended = attempts.attempt(f"kill {rank} {rng.randint(7, 9)}")
    assert ended == -signal.SIGKILL if rank == 0 else isinstance(ended, Failed)
    assert isinstance(attempts.attempt(), Succeeded), attempts.ended
    assert [receipt.exact for receipt in attempts.receipts[1:]] == [True, True]
    running.require_same_end(attempts, expected)


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
