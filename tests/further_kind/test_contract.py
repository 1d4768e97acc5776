"""A kind that is one folder and one entry point keeps the contract of the built-in ones."""

import importlib
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tests.engines.contract import (
    Case,
    ScriptedSupervisor,
    require_death_changes_nothing,
    require_saving_changes_nothing,
    require_stop_changes_nothing,
    undisturbed,
)
from tests.further_kind.installing import ENTRY_POINTS, SOURCE, install
from trainops import recipes
from trainops.files.checks import Severity
from trainops.files.exchange import answer
from trainops.files.reading import read
from trainops.files.verify import verify
from trainops.kind import KINDS
from trainops.runtime.checkpoint.store import CheckpointStore
from trainops.runtime.loop import run
from trainops.runtime.policy import CheckpointPolicy

TRAINED = "op_training_20260101_000000_000000"
TRAINING = {"recipe": "digits", "epochs": 1, "device": "cpu", "seed": 3}


def forget():
    vars(KINDS).pop("_kinds", None)
    recipes._registered.cache_clear()
    importlib.invalidate_caches()


@pytest.fixture(scope="module", autouse=True)
def evaluation(tmp_path_factory):
    paths = install(tmp_path_factory.mktemp("site"))
    sys.path[:0] = paths
    forget()
    yield
    for path in paths:
        sys.path.remove(path)
    forget()


@dataclass(frozen=True)
class OfModel(Case):
    model: Path | None = None

    def inputs(self, root):
        return {TRAINED: self.model}


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """The evaluation of a model that digits trained for one epoch, in 12 batches."""
    config = KINDS["training"].parse_config(TRAINING)
    supervisor = ScriptedSupervisor()
    identity = {"kind": "training", "config": config.model_dump(mode="json")}
    run(
        KINDS["training"].job_factory(config),
        seed=config.seed,
        store=CheckpointStore(tmp_path_factory.mktemp("trained"), identity=identity),
        policy=CheckpointPolicy(every_steps=None, every_seconds=1e9),
        supervisor=supervisor,
    )
    model = supervisor.checkpoints[-1].path
    evaluated = {"recipe": "evaluation", "parameters": {"operation": TRAINED}, "batch_size": 32}
    return OfModel("evaluation", "digits", evaluated, stops=(1, 2, 7, 11), model=model)


def test_its_entry_point_is_the_only_thing_that_names_it():
    points = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]["entry-points"]
    assert [f"[{group}]" for group in points] == [ENTRY_POINTS.splitlines()[0]]
    assert "evaluation" in KINDS
    assert [*KINDS][-1] == "evaluation"


@pytest.mark.slow
def test_stopped_anywhere_it_ends_as_undisturbed(case, tmp_path):
    expected = undisturbed(case, tmp_path)
    for at in case.stops:
        require_stop_changes_nothing(case, tmp_path / str(at), expected, [at])
    require_stop_changes_nothing(case, tmp_path / "all", expected, case.stops)


@pytest.mark.slow
def test_killed_and_saved_it_ends_as_undisturbed(case, tmp_path):
    expected = undisturbed(case, tmp_path)
    require_death_changes_nothing(case, tmp_path / "death", expected, at=6, every_steps=4)
    require_saving_changes_nothing(case, tmp_path / "saving", expected)


@pytest.mark.slow
def test_its_scores_are_written_verified_and_read_again(case, tmp_path):
    supervisor = undisturbed(case, tmp_path)
    checkpoint = supervisor.checkpoints[-1]
    config = KINDS["evaluation"].parse_config(case.config).model_dump(mode="json")
    file = tmp_path / "scores.pt"
    answered = answer(
        {
            "direction": "export", "kind": "evaluation", "config": config, "entries": [],
            "checkpoint": str(checkpoint.path), "digest": checkpoint.digest,
            "file": str(file), "name": "Scored", "which": "last", "agent": None,
        }
    )  # fmt: skip
    assert answered.get("name") == f"scores_of_{TRAINED}.pt", answered
    scores = read(file)
    means = supervisor.progress[-1].metrics
    assert scores.scores == means and scores.examples > 0
    report = verify(file)
    assert report.level is Severity.OK, report.checks
    rewritten = torch.load(file, weights_only=True)  # noqa: TID251 - as another program does it
    torch.save(rewritten | {"examples": 0}, file)
    assert "of 0 examples" in str(verify(file).checks)


@pytest.mark.slow
def test_its_scores_are_those_of_the_training(case, tmp_path):
    supervisor = undisturbed(case, tmp_path)
    last = supervisor.progress[-1]
    trained = KINDS["training"].parse_config(TRAINING)
    reference = ScriptedSupervisor()
    run(
        KINDS["training"].job_factory(trained),
        seed=trained.seed,
        store=CheckpointStore(tmp_path / "again", identity={}),
        policy=CheckpointPolicy(every_steps=None, every_seconds=1e9),
        supervisor=reference,
    )
    measured = reference.curve[max(reference.curve)]
    assert last.metrics["accuracy"] == measured["val_accuracy"]
    assert last.metrics["loss"] == pytest.approx(measured["val_loss"], rel=1e-6)  # other batches
