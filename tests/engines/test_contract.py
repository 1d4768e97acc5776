"""Any engine, stopped anywhere, ends bit for bit where an undisturbed run ends."""

import json
import math
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.engines.contract import (
    CASES,
    ScriptedSupervisor,
    attempt,
    bytes_of,
    evaluations,
    require_death_changes_nothing,
    require_same_end,
    require_saving_changes_nothing,
    require_stop_changes_nothing,
    require_stops_in_evaluations_change_nothing,
    undisturbed,
)
from tests.thinning import every_step
from trainops.kind import KINDS
from trainops.runtime.checkpoint import snapshot, stream
from trainops.runtime.checkpoint.manifest import verify
from trainops.runtime.loop import Directive, Stopped, Succeeded

NEVER_EVALUATED = {"loop", "backtest"}  # its steps are bars
every_case = pytest.mark.parametrize("case", CASES, ids=str)
FIRST = {case.kind: case for case in reversed(CASES)}.values()
one_of_each_kind_is_quick = pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case in FIRST else pytest.mark.slow) for case in CASES],
    ids=str,
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Undisturbed runs, each made once.

    A state holds the random stream of CUDA from its first use on in a process, and these tests
    share one: so they begin with it.
    """
    if torch.cuda.is_available():
        torch.cuda.init()
    known = {}

    def undisturbed_run(case):
        if str(case) not in known:
            known[str(case)] = undisturbed(case, tmp_path_factory.mktemp("whole"))
        return known[str(case)]

    return undisturbed_run


def test_every_engine_is_under_contract():
    assert {case.kind for case in CASES} == {*KINDS.computed}


@one_of_each_kind_is_quick
def test_stopping_changes_nothing(case, tmp_path, runs):
    for at in case.stops:
        require_stop_changes_nothing(case, tmp_path / str(at), runs(case), [at])


@one_of_each_kind_is_quick
def test_a_final_checkpoint_that_is_resumed_ends_as_it_is(case, tmp_path, runs):
    expected = runs(case)
    again = ScriptedSupervisor()
    outcome = attempt(case, tmp_path, again, resume=expected.checkpoints[-1:], number=2)
    assert isinstance(outcome, Succeeded), outcome
    assert bytes_of(again.checkpoints[-1]) == bytes_of(expected.checkpoints[-1])


@one_of_each_kind_is_quick
def test_stopping_within_evaluations_changes_nothing(case, tmp_path, monkeypatch):
    monkeypatch.setattr("trainops.kinds.federated.context.EVALUATED_AT_ONCE", 3)
    expected = undisturbed(case, tmp_path)
    if case.kind in NEVER_EVALUATED:
        assert not evaluations(expected)
    else:
        assert evaluations(expected)
        require_stops_in_evaluations_change_nothing(case, tmp_path, expected)


@pytest.mark.slow
@every_case
def test_stopping_again_and_again_changes_nothing(case, tmp_path, runs):
    require_stop_changes_nothing(case, tmp_path, runs(case), case.stops)


# Limits that only a run of days or a large model comes to.
LIMITS = [
    ("runtime.checkpoint.stream.GROUP", 2),
    ("runtime.checkpoint.snapshot.LARGE_BYTES", 1),
    ("runtime.checkpoint.archives.MAX_PADDING", math.inf),
    ("runtime.checkpoint.durable.DIRECT_BYTES", 1),
    ("runtime.checkpoint.durable.CHUNK_BYTES", 4096),
    ("runtime.checkpoint.manifest.CHUNK_BYTES", 100),
    ("kinds.training.progress.NEWEST_EPOCHS", 2),
    ("kinds.backtest.streams.BUFFERED_BARS", 3),
    ("kinds.federated.batches.MOST_NUMBERS", 1),
    ("kinds.federated.metric_accumulation.MOST_NUMBERS", 20),
    ("kinds.rl.episodes.MAX_WAITING", 2),
    ("kinds.rl.episodes.RECENT", 2),
    ("kinds.rl.replay.FLUSH_ROWS", 1),
    ("kinds.rl.priorities.BLOCK", 8),
    ("kinds.rl.curriculum.MAX_CHANGES", 2),
]


@pytest.mark.slow
@every_case
def test_stopping_long_runs_changes_nothing(case, tmp_path, monkeypatch):
    """What a stop saved lies in one file with what was made later, and lists have been cut."""
    for name, value in LIMITS:
        monkeypatch.setattr(f"trainops.{name}", value)
    make = stream.Stream.__init__
    monkeypatch.setattr(
        stream.Stream, "__init__", lambda self, columns, **_: make(self, columns, segment_bytes=1)
    )
    expected = undisturbed(case, tmp_path)
    for at in case.stops:
        require_stop_changes_nothing(case, tmp_path / str(at), expected, [at])


@pytest.mark.slow
@every_case
def test_a_death_loses_only_the_steps_since_the_last_checkpoint(case, tmp_path, runs):
    at = case.stops[-1] if case.stops[-1] > 2 else 3
    require_death_changes_nothing(case, tmp_path, runs(case), at, every_steps=2)


@pytest.mark.slow
@every_case
def test_saving_at_every_step_and_beside_the_loop_changes_nothing(case, tmp_path, runs):
    require_saving_changes_nothing(case, tmp_path, runs(case))


def test_the_contract_notices_an_alias_in_the_place_of_a_copy(tmp_path, runs, monkeypatch):
    def alias(copying, tensor, into):
        copying.is_same = False
        return tensor.detach()

    monkeypatch.setattr(snapshot._Copying, "_copy_tensor", alias)
    with pytest.raises(AssertionError, match="not as it was at its step"):
        require_saving_changes_nothing(CASES[0], tmp_path, runs(CASES[0]))


@pytest.mark.slow
@every_case
def test_two_resumes_from_one_checkpoint_are_twins(case, tmp_path, runs):
    first = ScriptedSupervisor(at=case.stops[1])
    attempt(case, tmp_path, first)
    for number in (2, 3):
        twin = ScriptedSupervisor()
        attempt(case, tmp_path, twin, resume=first.checkpoints, number=number)
        require_same_end(runs(case), [first, twin])


@one_of_each_kind_is_quick
def test_a_cancel_on_the_last_step_is_too_late(case, tmp_path, runs):
    last = runs(case).progress[-1].step
    supervisor = ScriptedSupervisor(at=last, directive=Directive.CANCEL)
    assert isinstance(attempt(case, tmp_path, supervisor), Succeeded)
    require_same_end(runs(case), [supervisor])


@one_of_each_kind_is_quick
def test_a_run_counts_as_its_checkpoints_do(case, runs):
    """A run says "2 of 5 epochs" where its checkpoint says "epoch 2"; both are completed."""
    run = runs(case)
    for checkpoint in run.checkpoints:
        places = {each.place for each in run.progress if each.step == checkpoint.step}
        if places == {"finished"}:
            continue  # no loop of the recipe is open
        counts = KINDS[case.kind].position(checkpoint.state, checkpoint.step).counts
        for unit in {"epoch", "round", "episode"} & counts.keys():
            said = re.compile(rf"\b({counts[unit]} of [\d,]+ {unit}s?|{unit} {counts[unit]})\b")
            assert any(map(said.search, places)), (places, unit, counts)


def test_the_early_stopping_case_does_stop_early(runs):
    case = next(case for case in CASES if case.name == "early-stopping")
    progress = runs(case).progress
    assert progress[-1].step == progress[-1].total_steps < progress[0].total_steps


@pytest.mark.slow
@every_step
@every_case
def test_stopping_at_every_single_step_changes_nothing(case, stride, tmp_path, runs):
    for at in range(CASES.index(case) % stride, runs(case).progress[-1].step, stride):
        require_stop_changes_nothing(case, tmp_path / str(at), runs(case), [at])


@pytest.mark.slow
@every_step
@every_case
def test_dying_at_every_single_step_changes_nothing(case, stride, tmp_path, runs):
    every_steps = 2 + CASES.index(case) % 2  # both are tried, though not of each case
    first = 1 + CASES.index(case) % stride
    for at in range(first, runs(case).progress[-1].step + 1, stride):
        require_death_changes_nothing(case, tmp_path / str(at), runs(case), at, every_steps)


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.engines.contract import CASES, ScriptedSupervisor, attempt
from trainops.runtime import reproducibility

class Killed(ScriptedSupervisor):
    def report(self, progress):
        if progress.step == 8:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().report(progress)
    def checkpointed(self, checkpoint):
        print(checkpoint.path, flush=True)

reproducibility.set_determinism(True, 1)
attempt(CASES[0], Path(sys.argv[1]), Killed(), every_steps=3)
"""


@pytest.mark.slow
def test_a_process_that_is_killed_is_continued_by_another(tmp_path, runs):
    process = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path], capture_output=True, text=True, check=False
    )
    assert process.returncode == -signal.SIGKILL, process.stderr
    saved = [verify(Path(line)) for line in process.stdout.split()]
    assert [checkpoint.step for checkpoint in saved] == [3, 6]
    heir = ScriptedSupervisor()
    attempt(CASES[0], tmp_path, heir, resume=saved[::-1], number=2)
    assert heir.progress[0].step == 6
    whole = runs(CASES[0])
    assert heir.curve == {step: point for step, point in whole.curve.items() if step > 6}
    require_same_end(whole, [whole, heir])


def test_a_stopped_run_says_so_and_its_receipt_names_what_came_back(tmp_path):
    first, second = ScriptedSupervisor(at=4, directive=Directive.CANCEL), ScriptedSupervisor()
    assert attempt(CASES[0], tmp_path, first) == Stopped(Directive.CANCEL)
    attempt(CASES[0], tmp_path, second, resume=first.checkpoints, number=2)
    receipt = second.receipts[0]
    assert receipt.exact and receipt.step == 4 and "cancellation" in receipt.checkpoint
    parts = {item.part: item for item in receipt.items}
    assert {"model", "optimizer", "scheduler", "best_model", "random: python", "random: numpy",
            "random: torch cpu", "data position", "torch version", "device type", "threads"} <= (
        parts.keys()
    )  # fmt: skip
    assert parts["data position"].note == "step 4, 1 of 4 epochs"
    is_on_gpu = torch.cuda.is_available()
    assert parts["random: cuda"].note == ("" if is_on_gpu else "not used")
    assert parts["random: torch cpu"].note == ""
    assert json.loads(json.dumps(receipt.to_json()))["exact"] is True
