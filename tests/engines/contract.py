"""The resumable-job contract, as functions that any engine's tests can call.

The promise: however often a job was stopped or killed and resumed, its final checkpoint has the
bytes, and its curve the points, of an undisturbed run. Equal, never close.
"""

import json
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from tests.rl import cases as rl_cases
from trainops.kind import KINDS
from trainops.learning import single_examples
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.checkpoint.store import (
    Candidate,
    Checkpoint,
    CheckpointPolicy,
    CheckpointStore,
    CheckpointType,
)
from trainops.runtime.checkpoint.stream import Stream
from trainops.runtime.checkpointer import Saving
from trainops.runtime.errors import CheckpointCorrupted, InputError, SaveFailed
from trainops.runtime.job import Evaluating, Progress, is_evaluating
from trainops.runtime.ledger import Ledger
from trainops.runtime.loop import Directive, Failed, Outcome, Stopped, Succeeded, run
from trainops.runtime.receipt import Receipt
from trainops.runtime.reproducibility import set_determinism

Curve = dict[int, dict[str, float]]


class MachineDied(Exception):
    """Stands in for kill -9."""


@dataclass
class ScriptedSupervisor:
    """Says `directive` once the job reaches step `at`, or dies there; remembers what it heard.

    With `parts`, within the evaluation that ends that step, when so many of its parts are done.
    A patient one lets a checkpoint in flight land before the next step, so that each is taken
    exactly when it is due.
    """

    at: int | None = None
    directive: Directive = Directive.PREEMPT
    dies: bool = False
    parts: int | None = None
    is_patient: bool = True
    progress: list[Progress] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    bad: list[tuple[Candidate, CheckpointCorrupted]] = field(default_factory=list)
    failed_saves: list[SaveFailed] = field(default_factory=list)
    moved: threading.Condition = field(default_factory=threading.Condition)

    def restored(self, receipt: Receipt) -> None:
        self.receipts.append(receipt)

    def corrupted(self, candidate: Candidate, error: CheckpointCorrupted) -> None:
        self.bad.append((candidate, error))

    def report(self, progress: Progress) -> Directive:
        is_there = self._is_there(progress)
        if self.dies and is_there:
            raise MachineDied
        if self.is_patient:
            let_savings_land()
        with self.moved:
            self.progress.append(progress)
            self.moved.notify_all()
        return self.directive if is_there else Directive.PROCEED

    def _is_there(self, progress: Progress) -> bool:
        if progress.step != self.at or progress.is_evaluating != (self.parts is not None):
            return False
        return self.parts is None or self.parts == sum(
            each.is_evaluating and each.step == self.at for each in self.progress
        )

    def checkpointed(self, checkpoint: Checkpoint) -> None:
        self.checkpoints.append(checkpoint)

    def save_failed(self, error: SaveFailed) -> None:
        self.failed_saves.append(error)

    @property
    def curve(self) -> Curve:
        return {each.step: dict(each.metrics) for each in self.progress if each.metrics}


def let_savings_land() -> None:
    for thread in threading.enumerate():
        if isinstance(thread, Saving):
            thread.join()


class UnhurriedStore(CheckpointStore):
    """Begins to write a periodic checkpoint only when the job is two steps further, or done."""

    def __init__(self, root: Path, *, supervisor: ScriptedSupervisor, **more: Any) -> None:
        super().__init__(root, **more)
        self.supervisor = supervisor

    def write(self, kind: CheckpointType, *, step: int, **more: Any) -> Checkpoint:
        if kind is CheckpointType.PERIODIC:
            with self.supervisor.moved:
                assert self.supervisor.moved.wait_for(lambda: self._is_further(step), timeout=30)
        return super().write(kind, step=step, **more)

    def _is_further(self, step: int) -> bool:
        newest = self.supervisor.progress[-1]
        return newest.step >= min(step + 2, newest.total_steps)


@dataclass(frozen=True)
class Case:
    """One config of one kind that the contract is tried on; `stops` are telling places to stop."""

    kind: str
    name: str
    config: Mapping[str, Any]
    stops: Sequence[int]
    table: Callable[[], pa.Table] | None = None

    def __str__(self) -> str:
        return f"{self.kind}-{self.name}"

    def inputs(self, root: Path) -> dict[str, Path]:
        if self.table is None:
            return {}
        path = root / "table.parquet"
        root.mkdir(parents=True, exist_ok=True)
        pq.write_table(self.table(), path)
        return {DATASET: path}

    def begin(self, config: Any, every_steps: int | None) -> CheckpointPolicy:
        """Set up the process, and return when checkpoints are taken."""
        return CheckpointPolicy(every_steps=every_steps, every_seconds=1e9)

    def new_ledger(self) -> Ledger | None:
        """Return what the attempts of one operation have in common, of kinds that spend privacy."""
        return None


@dataclass(frozen=True)
class DrawnCase(Case):
    """A case with a drawn config, which is followed in everything as a child process does.

    Whoever tries one sets determinism and threads back (`reproducibility.set_determinism`).
    """

    def inputs(self, root: Path) -> dict[str, Path]:
        wanted = KINDS[self.kind].parse_config(self.config).dataset_ids()
        if not wanted:
            return {}
        named = super().inputs(root)
        return dict.fromkeys(wanted, named[DATASET])

    def begin(self, config: Any, every_steps: int | None) -> CheckpointPolicy:
        set_determinism(config.deterministic, config.threads)
        return CheckpointPolicy(
            every_steps=every_steps or config.checkpoint.every_steps,
            every_seconds=config.checkpoint.every_seconds,
            least_seconds=0.0 if every_steps else config.checkpoint.least_seconds,
        )


def attempt(
    case: Case,
    root: Path,
    supervisor: ScriptedSupervisor | None = None,
    *,
    resume: Sequence[Checkpoint] = (),
    every_steps: int | None = None,
    number: int = 1,
    make_store: Callable[..., CheckpointStore] = CheckpointStore,
    ledger: Ledger | None = None,
    **changes: Any,
) -> Outcome:
    """Run one attempt in a process whose random streams are anything but fresh."""
    make_dirty()
    engine = KINDS[case.kind]
    config = engine.parse_config({"seed": 7, **case.config, **changes})
    return run(
        engine.job_factory(config, case.inputs(root), ledger),
        seed=config.seed,
        store=make_store(
            root,
            identity={"operation_id": "op", "attempt": number, "kind": case.kind},
            candidates=[Candidate(each.path, each.digest) for each in resume],
        ),
        policy=case.begin(config, every_steps),
        supervisor=supervisor or ScriptedSupervisor(),
        requires_exact=config.exact == "required",
    )


def undisturbed(case: Case, root: Path, ledger: Ledger | None = None) -> ScriptedSupervisor:
    """Return what the supervisor of a run heard that nobody touched."""
    supervisor, ledger = ScriptedSupervisor(), ledger or case.new_ledger()
    outcome = attempt(case, root / "undisturbed", supervisor, ledger=ledger)
    assert isinstance(outcome, Succeeded), outcome
    return supervisor


def require_same_end(expected: ScriptedSupervisor, attempts: Sequence[ScriptedSupervisor]) -> None:
    """The last attempt's final checkpoint and all attempts' points are those expected."""
    assert bytes_of(attempts[-1].checkpoints[-1]) == bytes_of(expected.checkpoints[-1])
    assert merged_curve(attempts) == expected.curve


def bytes_of(checkpoint: Checkpoint) -> dict[str, str]:
    """Return the digest of every file of a final checkpoint."""
    assert checkpoint.type is CheckpointType.FINAL
    return {artifact.name: artifact.blake3 for artifact in checkpoint.artifacts}


def merged_curve(attempts: Sequence[ScriptedSupervisor]) -> Curve:
    """Return all points; steps that were done twice must have recorded the same."""
    merged: Curve = {}
    for each in attempts:
        for step, metrics in each.curve.items():
            assert merged.setdefault(step, metrics) == metrics, step
    return merged


def require_stop_changes_nothing(
    case: Case, root: Path, expected: ScriptedSupervisor, stops: Sequence[int]
) -> None:
    """Stop at each of these steps in turn, each time in a new attempt, then run to the end."""
    attempts: list[ScriptedSupervisor] = []
    saved: list[Checkpoint] = []
    ledger = case.new_ledger()
    for number, at in enumerate([*stops, None], start=1):
        supervisor = ScriptedSupervisor(at=at)
        attempt(case, root, supervisor, resume=saved, number=number, ledger=ledger)
        saved = [*reversed(supervisor.checkpoints), *saved]
        attempts.append(supervisor)
        assert all(receipt.exact for receipt in supervisor.receipts)
    require_same_end(expected, attempts)


def evaluations(expected: ScriptedSupervisor) -> dict[int, int]:
    """Return the steps that an evaluation ended, and how many parts each had."""
    steps = [each.step for each in expected.progress if each.is_evaluating]
    return {step: steps.count(step) for step in steps}


def require_stops_in_evaluations_change_nothing(
    case: Case,
    root: Path,
    expected: ScriptedSupervisor,
    found: Mapping[int, int] | None = None,
    directive: Directive = Directive.PREEMPT,
) -> None:
    """Stop before the first part of an evaluation, within the next one, and so on; then go on.

    `found` are the evaluations at which to stop; by default all.
    """
    attempts: list[ScriptedSupervisor] = []
    saved: list[Checkpoint] = []
    found = evaluations(expected) if found is None else found
    ledger = case.new_ledger()
    for number, (step, parts) in enumerate(found.items(), start=1):
        within = (number * 3 // 2) % parts
        supervisor = ScriptedSupervisor(at=step, parts=within, directive=directive)
        outcome = attempt(case, root, supervisor, resume=saved, number=number, ledger=ledger)
        assert isinstance(outcome, Stopped), outcome
        assert supervisor.checkpoints[-1].step == step
        saved, attempts = supervisor.checkpoints[-1:], [*attempts, supervisor]
    last = ScriptedSupervisor()
    attempt(case, root, last, resume=saved, number=len(found) + 1, ledger=ledger)
    assert all(receipt.exact for each in [*attempts, last] for receipt in each.receipts)
    require_same_end(expected, [*attempts, last])


def require_saving_changes_nothing(case: Case, root: Path, expected: ScriptedSupervisor) -> None:
    """Save at every step; then as often as can be while the job changes its state in place."""
    patient, beside = ScriptedSupervisor(), ScriptedSupervisor(is_patient=False)
    attempt(case, root / "patient", patient, every_steps=1)
    attempt(
        case, root / "beside", beside, every_steps=1,
        make_store=partial(UnhurriedStore, supervisor=beside),
    )  # fmt: skip
    require_same_end(expected, [patient])
    require_same_end(expected, [beside])
    steps = [checkpoint.step for checkpoint in patient.checkpoints]
    assert steps == list(range(1, steps[-1] + 1))
    later = [checkpoint.step for checkpoint in beside.checkpoints]
    assert later == sorted(set(later)) and 1 < len(later) < len(steps)
    as_it_was = {checkpoint.step: checkpoint.artifacts for checkpoint in patient.checkpoints}
    for checkpoint in beside.checkpoints:
        assert checkpoint.artifacts == as_it_was[checkpoint.step], "not as it was at its step"


def require_death_changes_nothing(
    case: Case, root: Path, expected: ScriptedSupervisor, at: int, every_steps: int
) -> None:
    """Die at this step without a goodbye; the next attempt starts from the last checkpoint."""
    first, second = ScriptedSupervisor(at=at, dies=True), ScriptedSupervisor()
    try:
        attempt(case, root, first, every_steps=every_steps)
    except MachineDied:
        pass
    else:
        raise AssertionError(f"nobody died at step {at}")
    attempt(case, root, second, resume=first.checkpoints[::-1], every_steps=every_steps, number=2)
    assert second.progress[0].step == (at - 1) // every_steps * every_steps
    require_same_end(expected, [first, second])


def is_rightly_refused(case: Case, root: Path) -> bool:
    """Whether it is refused for a batch of one example, which it then fails at if it is let run."""
    engine = KINDS[case.kind]
    config = engine.parse_config({"seed": 7, **case.config})
    try:
        engine.job_factory(config, case.inputs(root), case.new_ledger())()
    except InputError as error:
        if "batch normalisation" not in str(error):
            raise
    else:
        return False
    with mock.patch.object(single_examples, "has_batch_norm", return_value=False):
        outcome = attempt(case, root / "refused")
    assert isinstance(outcome, Failed), outcome
    assert single_examples.TORCH_SAYS in str(outcome.error)
    return True


def require_drawn(case: Case, root: Path, rng: random.Random) -> ScriptedSupervisor:
    """Stop, kill and save at steps that `rng` chooses; return what the undisturbed run reported.

    The run's config says when checkpoints are taken; other attempts take them at other steps.
    """
    expected = undisturbed(case, root)
    steps = sorted({each.step for each in expected.progress})[:-1]
    stops = sorted(rng.sample(steps, min(2, len(steps))))
    require_stop_changes_nothing(case, root / "stopped", expected, stops)
    first, second = ScriptedSupervisor(at=rng.choice(steps), dies=True), ScriptedSupervisor()
    every_steps, ledger = rng.choice([None, 1, 3]), case.new_ledger()
    with suppress(MachineDied):
        attempt(case, root / "died", first, every_steps=every_steps, ledger=ledger)
    attempt(case, root / "died", second, resume=first.checkpoints[::-1], number=2, ledger=ledger)
    require_same_end(expected, [first, second])
    saving, ledger = ScriptedSupervisor(), case.new_ledger()
    attempt(case, root / "saved", saving, every_steps=rng.choice([2, 5]), ledger=ledger)
    require_same_end(expected, [saving])
    found = evaluations(expected)
    chosen = sorted(rng.sample(sorted(found), min(2, len(found))))
    require_stops_in_evaluations_change_nothing(
        case, root / "evaluating", expected, {step: found[step] for step in chosen},
        Directive.CANCEL,  # asked to shut down, some go on to the end of an episode
    )  # fmt: skip
    return expected


@dataclass(frozen=True)
class RunEnd:
    """What a run came to, as plain values that are equal only where it is equal bit for bit.

    `state` has the parts of its last state without the config, and "random"; `points` is its curve.
    """

    state: Mapping[str, Any]
    result: str
    points: Curve


def ending(
    case: Case,
    root: Path,
    changes: Mapping[str, Any] = MappingProxyType({}),
    *,
    look: Callable[[Any], object] = lambda job: None,
    state: Mapping[str, Any] | None = None,
    in_parts: bool = False,
    ledger: Ledger | None = None,
) -> RunEnd:
    """Run a job without the loop around it, from the start or a state that `saved` returned.

    `changes` are of the config; `look` is called at the start and after every advance.
    """
    make_dirty()
    engine = KINDS[case.kind]
    config = engine.parse_config({"seed": 7, **case.config, **changes})
    case.begin(config, None)
    job: Any = engine.make_job(config, case.inputs(root), ledger or case.new_ledger())
    if state is not None:
        job.load_state_dict({name: part for name, part in state.items() if name != "random"})
        reproducibility.load_state_dict(state["random"])
    if isinstance(job, Evaluating):
        job.in_parts = in_parts
    points: Curve = {}
    look(job)
    while job.step < job.total_steps or is_evaluating(job):
        if metrics := job.advance():
            points[job.step] = dict(metrics)
        look(job)
    parts = {name: bits(part) for name, part in without_config(saved(job)).items()}
    return RunEnd(parts, repr(job.result()), points)


def saved(job: Any) -> dict[str, Any]:
    """Return a copy of all that a checkpoint would hold."""
    return {**freeze(job.state_dict()), "random": reproducibility.state_dict()}


def without_config(state: Mapping[str, Any]) -> dict[str, Any]:
    plain = {k: each for k, each in state["state"].items() if k not in ("config", "provenance")}
    return {**state, "state": plain}


def require_same_ending(expected: RunEnd, found: RunEnd, where: object = "") -> None:
    """Nothing differs; of a run that began later, in what it came to."""
    for name, part in expected.state.items():
        there = found.state.get(name)
        assert there == part, (name, where, differing(part, there))
    assert found.state.keys() == expected.state.keys(), where
    assert found.result == expected.result, where
    assert found.points.items() <= expected.points.items(), where


def differing(one: Any, other: Any) -> Any:
    """Return the names in two parts under which they differ."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return "here"
    names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    return {name: differing(one.get(name), other.get(name)) for name in names}


def require_looking_changes_nothing(
    case: Case, root: Path, rng: random.Random, look: Callable[[Any], object]
) -> RunEnd:
    """Look at every safe point, by `look` too, and continue from two of the states; return the end.

    An evaluation that is done in parts comes to the same as one that is done at once.
    """
    expected, states, ledger = ending(case, root), [], case.new_ledger()

    def look_and_save(job: Any) -> None:
        look(job)
        states.append(saved(job))
        look(job)

    looked_at = ending(case, root, look=look_and_save, ledger=ledger)
    require_same_ending(expected, looked_at, "looked at")
    require_same_ending(expected, ending(case, root, look=look, in_parts=True), "in parts")
    for number in sorted(rng.sample(range(len(states)), min(2, len(states)))):
        found = ending(case, root, state=states[number], ledger=ledger)
        require_same_ending(expected, found, f"from the safe point {number}")
    return expected


def bits(value: Any) -> Any:
    """Return plain values that are equal only where two parts of states are equal bit for bit."""
    if isinstance(value, Stream):
        rows = {name: value.column(name) for name in value.columns}
        return bits({"first": value.first_row, "end": len(value), "rows": rows})
    if isinstance(value, torch.Tensor):
        flat = value.detach().cpu().contiguous().reshape(-1)
        return str(value.dtype), tuple(value.shape), flat.view(torch.uint8).numpy().tobytes()
    if isinstance(value, Mapping):
        return {repr(name): bits(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(bits, value)]
    return repr(value)


def make_dirty() -> None:
    """Leave every global stream somewhere nobody knows."""
    random.seed()
    np.random.seed()  # noqa: NPY002
    torch.seed()


DATASET = "ds_0123456789abcdef"


def small_table() -> pa.Table:
    """Return 40 rows with every type of column, and holes in all of them."""
    rows = range(40)
    return pa.table(
        {
            "size": pa.array([None if i % 7 == 3 else float(i % 11) for i in rows]),
            "floor": pa.array([i % 5 for i in rows], pa.int64()),
            "is_new": pa.array([None if i == 9 else i % 3 == 0 for i in rows]),
            "sold_on": pa.array([i * 86_400_000_000 for i in rows], pa.timestamp("us")),
            "town": pa.array([None if i % 13 == 5 else "ABCD"[i % 4] for i in rows]),
            "price": pa.array([100.0 + 30 * (i % 11) - 7 * (i % 5) for i in rows]),
        }
    )


def price_table() -> pa.Table:
    """Return 30 hourly bars that rise and fall within reach of each other's orders."""
    steps = [3, -2, -4, 5, 1, -3, -1, 4, -5, 2]
    closes = [100.0]
    for i in range(29):
        closes.append(closes[-1] + steps[i * 7 % 10] * (1 + i % 3) / 3)
    opens = [closes[max(i - 1, 0)] + (i % 5 - 2) / 4 for i in range(30)]
    return pa.table(
        {
            "time": pa.array([i * 3_600_000_000 for i in range(30)], pa.timestamp("us")),
            "open": opens,
            "high": [max(pair) + 1.5 for pair in zip(opens, closes, strict=True)],
            "low": [min(pair) - 1.5 for pair in zip(opens, closes, strict=True)],
            "close": closes,
        }
    )


def several_prices() -> pa.Table:
    """Return 24 hourly bars of three symbols, whose order by momentum changes again and again."""
    rows = [(i, name, number) for i in range(24) for number, name in enumerate("ABC")]
    closes = [
        100.0 + 3 * number + (i * (number + 3) * 7 % 11 - 5) * (1 + i % 4) / 2
        for i, _, number in rows
    ]
    return pa.table(
        {
            "time": pa.array([i * 3_600_000_000 for i, _, _ in rows], pa.timestamp("us")),
            "symbol": [name for _, name, _ in rows],
            "open": [
                close + (i % 3 - 1) / 2 for close, (i, _, _) in zip(closes, rows, strict=True)
            ],
            "high": [close + 2 for close in closes],
            "low": [close - 2 for close in closes],
            "close": closes,
        }
    )


def small_pictures() -> pa.Table:
    """Return 26 images of 9 x 8 pixels in two colours, with labels, masks and clients."""
    drawing = np.random.default_rng(3)
    masks = drawing.random((26, 9, 8)) < 0.3
    images = drawing.integers(0, 99, (26, 9, 8, 2)) + 150 * masks[..., None]
    layout = {"image": {"shape": [9, 8, 2], "dtype": "uint8"}}
    table = pa.table(
        {
            "image": pa.array([each.astype(np.uint8).tobytes() for each in images], pa.binary(144)),
            "label": pa.array([i * 7 % 3 - 1 for i in range(26)]),
            "mask": pa.array([each.astype(np.uint8).tobytes() for each in masks], pa.binary(72)),
            "client": pa.array(["north" if i % 3 else "south" for i in range(26)]),
        }
    )
    return table.replace_schema_metadata({"trainops": json.dumps(layout)})


BARS = {"dataset": DATASET, "chunk_bars": 1}
COSTLY = {"commission": {"relative": 0.001, "fixed": 0.5, "minimum": 1.0}, "spread": 0.001,
          "slippage": 0.0005}  # fmt: skip
NESTED = [
    {"name": "epoch", "length": 3, "body": [
        "work", {"name": "batches", "length": 0, "workers": 0, "body": ["work", "yield"]},
        "work", "yield",
    ]},
]  # fmt: skip
LOADERS = [
    {"name": "epoch", "length": 3, "body": [
        {"name": "mixed", "workers": 0, "data": "drawn_streams", "body": ["work", "yield"]},
        {"name": "read", "workers": 0, "data": "stateful", "body": [
            "work", {"name": "within", "length": 2, "body": ["work", "yield"]},
        ]},
        "yield",
    ]},
]  # fmt: skip
TOY = {"recipe": "toy", "batch_size": 8, "epochs": 3, "log_every_steps": 5}
CLIENTS = {"recipe": "crowd", "rounds": 3, "clients": 4, "local_epochs": 2, "batch_size": 6,
           "checkpoint": {"every_client_epochs": 1000}}  # fmt: skip
CASES = [
    Case(  # 38 examples, 5 batches and 3 steps in an epoch
        "training",
        "accumulation-cosine",
        {**TOY, "epochs": 4, "gradient_accumulation": 2, "scheduler": "cosine",
         "learning_rate": 0.05, "max_grad_norm": 0.5, "early_stopping_patience": 3},
        stops=(0, 1, 2, 3, 4, 6, 8, 11),
    ),
    Case(  # loops in loops, one of them over a loader, and work between them
        "loop",
        "nested",
        {"recipe": "program", "parameters": {"body": NESTED}, "log_every_steps": 2,
         "monitor": "train_loss", "mode": "min"},
        stops=(0, 1, 3, 6, 7, 9),
    ),
    Case(  # iterable datasets with and without a state, alone and by a schedule
        "loop",
        "loaders",
        {"recipe": "program", "parameters": {"body": LOADERS}, "log_every_steps": 2,
         "monitor": "train_loss", "mode": "min"},
        stops=(0, 2, 5, 8, 12, 15, 20, 21, 24, 30),
    ),
    Case(
        "training",
        "early-stopping",
        {**TOY, "epochs": 30, "optimizer": "sgd", "learning_rate": 0.5, "scheduler": "onecycle",
         "early_stopping_patience": 2, "monitor": "val_accuracy", "mode": "max"},
        stops=(1, 2, 7, 20),
    ),
    Case(
        "training",
        "warmup",
        {**TOY, "optimizer": "adamw", "weight_decay": 0.1, "scheduler": "warmup_cosine"},
        stops=(1, 7, 15),
    ),
    Case(
        "training",
        "step-drops",
        {**TOY, "optimizer": "sgd", "scheduler": "step", "scheduler_step_epochs": 1},
        stops=(1, 7, 15),
    ),
    Case(
        "training",
        "two-optimizers",
        {**TOY, "parameters": {"two_optimizers": True, "remember": True}},
        stops=(1, 7),
    ),
    Case(
        "training",
        "digits",
        {"recipe": "digits", "parameters": {"channels": 2, "hidden": 8}, "batch_size": 500,
         "epochs": 2},
        stops=(1, 3, 4),
    ),
    Case(
        "training",
        "tabular-regression",
        {"recipe": "tabular", "parameters": {"dataset": DATASET, "target": "price",
         "hidden_sizes": [4]}, "batch_size": 8, "epochs": 2},
        stops=(1, 4, 6),
        table=small_table,
    ),
    Case(
        "training",
        "tabular-classification",
        {"recipe": "tabular", "parameters": {"dataset": DATASET, "target": "town",
         "hidden_sizes": []}, "batch_size": 8, "epochs": 3},
        stops=(1, 6),
        table=small_table,
    ),
    Case(  # 21 examples, 3 batches in an epoch
        "training",
        "images",
        {"recipe": "images", "parameters": {"dataset": DATASET, "channels": 2, "hidden": 4,
         "norm": "batch"}, "batch_size": 8, "epochs": 3, "monitor": "val_accuracy", "mode": "max"},
        stops=(1, 4, 9),
        table=small_pictures,
    ),
    Case(
        "training",
        "segmentation-uploaded",
        {"recipe": "segmentation", "parameters": {"dataset": DATASET, "channels": 2,
         "norm": "batch"}, "batch_size": 8, "epochs": 3},
        stops=(1, 4, 6),
        table=small_pictures,
    ),
    Case(
        "training",
        "segmentation-phantoms",
        {"recipe": "segmentation", "parameters": {"images": 10, "size": 16, "channels": 2},
         "batch_size": 4, "epochs": 3, "learning_rate": 0.1, "monitor": "val_dice",
         "mode": "max"},
        stops=(1, 3, 4),
    ),
    Case(
        "training",
        "price-direction",
        {"recipe": "price_direction", "parameters": {"dataset": DATASET, "horizon": 2,
         "hidden_sizes": [4], "features": {"returns": [1], "averages": [3], "rsi": [], "macd":
         False, "bollinger": [], "donchian": [3], "atr": [2], "fuzzy": "beside"}},
         "batch_size": 4, "epochs": 4, "learning_rate": 0.05},
        stops=(1, 7, 17),
        table=price_table,
    ),
    Case(
        "backtest",
        "vector-bracket",
        {**BARS, **COSTLY, "recipe": "sma_crossover", "margin": 0.5, "parameters":
         {"fast": 1, "slow": 2, "stop_loss": 0.04, "take_profit": 0.03}},
        stops=(0, 1, 4, 9, 17, 29),
        table=price_table,
    ),
    Case(
        "backtest",
        "vector-same-close",
        {**BARS, "recipe": "rsi_reversion", "fill": "same_close", "parameters":
         {"period": 3, "entry": "limit"}, "sizing": {"whole_units": False, "amount": 0.5}},
        stops=(1, 7, 20),
        table=price_table,
    ),
    Case(
        "backtest",
        "event-everything",
        {**BARS, **COSTLY, "recipe": "busy", "cash": 700.0},
        stops=(0, 1, 5, 10, 16, 23, 29),
        table=price_table,
    ),
    Case(
        "backtest",
        "event-same-close",
        {**BARS, "recipe": "donchian_breakout", "execution": "event", "fill": "same_close",
         "parameters": {"period": 3, "exit_period": 2, "entry": "stop", "stop_loss": 0.02}},
        stops=(1, 8, 21),
        table=price_table,
    ),
    Case(
        "backtest",
        "event-indicators",
        {**BARS, "recipe": "macd", "execution": "event",
         "parameters": {"fast": 2, "slow": 4, "signal": 2}},
        stops=(1, 9, 22),
        table=price_table,
    ),
    Case(
        "backtest",
        "vector-rotation",
        {**BARS, **COSTLY, "recipe": "momentum_rotation",
         "parameters": {"lookback": 2, "every": 2, "top": 2}},
        stops=(1, 7, 16),
        table=several_prices,
    ),
    Case(
        "backtest",
        "event-rotation",
        {**BARS, **COSTLY, "recipe": "momentum_rotation", "execution": "event",
         "parameters": {"lookback": 2, "every": 2, "top": 2}},
        stops=(1, 7, 16),
        table=several_prices,
    ),
    *(
        Case(
            "backtest",
            f"{execution}-rotation-same-close",
            {**BARS, **COSTLY, "recipe": "momentum_rotation", "execution": execution,
             "fill": "same_close", "parameters": {"lookback": 2, "every": 2, "top": 2}},
            stops=(1, 7, 16),
            table=several_prices,
        )
        for execution in ("vector", "event")
    ),
    Case(  # 45 examples with 4 clients, 3 of them in a round, of 2 local epochs each
        "federated",
        "federated-none",
        {**CLIENTS, "optimizer": "adam", "fraction": 0.7, "parameters": {"norm": True,
         "measured": True}, "server": {"strategy": "fedadam", "learning_rate": 0.1},
         "partition": {"by": "dirichlet", "alpha": 1.0}},
        stops=(0, 1, 3, 6, 9, 17),
    ),
    Case(  # a client for each place that the images come from
        "federated",
        "federated-images",
        {"recipe": "federated_images", "parameters": {"dataset": DATASET, "channels": 2,
         "hidden": 4}, "partition": {"by": "column", "column": "client"}, "rounds": 3,
         "batch_size": 8, "local_epochs": 2, "optimizer": "adamw",
         "checkpoint": {"every_client_epochs": 1000}},
        stops=(1, 4, 7),
        table=small_pictures,
    ),
    Case(
        "federated",
        "federated-segmentation",
        {"recipe": "federated_segmentation", "parameters": {"dataset": DATASET, "channels": 2},
         "partition": {"by": "shards"}, "clients": 2, "rounds": 2, "local_epochs": 2,
         "batch_size": 8, "optimizer": "adam", "learning_rate": 0.01,
         "monitor": "val_dice", "mode": "max", "checkpoint": {"every_client_epochs": 1000}},
        stops=(1, 3, 4),
        table=small_pictures,
    ),
    Case(
        "federated",
        "federated-sample",
        {**CLIENTS, "momentum": 0.9, "server": {"strategy": "fedavgm"},
         "privacy": {"mode": "sample", "noise_multiplier": 1.0}},
        stops=(1, 4, 9),
    ),
    Case(  # rounds of 0, 0, 2, 0 and 3 clients, as chance has it
        "federated",
        "federated-user",
        {**CLIENTS, "seed": 2, "rounds": 5, "fraction": 0.4,
         "server": {"strategy": "fedyogi", "learning_rate": 0.1},
         "privacy": {"mode": "user", "user_noise_multiplier": 1.0}},
        stops=(1, 2, 5),
    ),
    Case(
        "federated",
        "federated-hybrid",
        {**CLIENTS, "clients": 2, "server": {"strategy": "fedprox"}, "privacy": {
         "mode": "hybrid", "noise_multiplier": 1.0, "user_noise_multiplier": 2.0}},
        stops=(1, 3, 8),
    ),
    Case(
        "federated",
        "federated-budget",
        {**CLIENTS, "clients": 2, "server": {"strategy": "fedadagrad", "learning_rate": 0.1},
         "privacy": {"mode": "sample", "noise_multiplier": 1.0, "target_epsilon": 9.0}},
        stops=(1, 3),
    ),
]  # fmt: skip
CASES += [Case("rl", *each) for each in rl_cases.CASES]
