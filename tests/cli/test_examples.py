"""The files that the README sends people to do what it says they do."""

from pathlib import Path

import pytest

from apps.datasets import services as datasets
from apps.operations.models import Operation
from examples import directories
from tests.cli.conftest import ROOT
from tests.engines.contract import (
    Case,
    ScriptedSupervisor,
    attempt,
    let_savings_land,
    require_same_end,
)
from trainops.cli import submission
from trainops.datasets.registering import registered
from trainops.kind import KINDS
from trainops.media.items import TYPES
from trainops.recipes import recipes
from trainops.runtime.checkpoint.store import CheckpointPolicy, CheckpointStore
from trainops.runtime.loop import Directive, Succeeded, run

FILES = sorted((ROOT / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_example_is_a_valid_config_as_it_stands(path: Path):
    body = submission.read(path).body
    config = KINDS[body["kind"]].parse_config(body["config"])
    assert config.recipe in path.read_text()


def test_the_example_table_has_the_column_that_the_example_predicts():
    header, *rows = (ROOT / "examples" / "wine.csv").read_text().splitlines()
    target = submission.read(ROOT / "examples" / "tabular.yaml").body["config"]["parameters"][
        "target"
    ]
    assert header.split(",")[-1] == target
    assert {row.split(",")[-1] for row in rows} == {"cultivar 0", "cultivar 1", "cultivar 2"}


class Nobody:
    """Neither asks for anything nor remembers anything."""

    def report(self, progress):
        return Directive.PROCEED

    def checkpointed(self, checkpoint):
        pass

    corrupted = save_failed = restored = checkpointed


@pytest.mark.slow
def test_the_example_recipe_learns(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINOPS_RECIPES", "examples.recipes.wine:RECIPE")
    engine = KINDS["training"]
    config = engine.parse_config(recipes("training")["wine"].example)
    outcome = run(
        engine.job_factory(config),
        seed=0,
        store=CheckpointStore(tmp_path, identity={}),
        policy=CheckpointPolicy(),
        supervisor=Nobody(),
    )
    assert isinstance(outcome, Succeeded)
    assert outcome.result["final"]["val_accuracy"] > 0.9


class UploadedText(Case):
    """Its dataset is the file that the server stores."""

    def inputs(self, root):
        (name,) = KINDS["loop"].parse_config(self.config).dataset_ids()
        return {name: datasets.local_path(name)}


@pytest.mark.slow
def test_the_example_of_a_text_is_uploaded_and_continues_exactly(cli, in_process, tmp_path):
    example = ROOT / "examples" / "text.yaml"
    upload, submit = (line.split()[4:] for line in example.read_text().splitlines()[3:5])
    assert upload[:3] == ["datasets", "add", "--text"] and submit[0] == "run"
    added = cli(*upload[:3], ROOT / upload[3])
    assert added.exit_code == 0, added.stderr
    assert "examples/text.yaml --set parameters.dataset=" in added.stderr
    setting = f"parameters.dataset={added.stdout.strip()}"
    assert cli("run", example, "--set", setting).exit_code == 0
    config = Operation.objects.get().config
    case = UploadedText("loop", "characters", config, ())
    whole = ScriptedSupervisor()
    outcome = attempt(case, tmp_path / "whole", whole)
    assert isinstance(outcome, Succeeded), outcome
    losses = [values["val_loss"] for values in whole.curve.values() if "val_loss" in values]
    assert losses[-1] < losses[0] - 0.3
    first, second = ScriptedSupervisor(at=15), ScriptedSupervisor()
    attempt(case, tmp_path / "parts", first, every_steps=1)
    let_savings_land()
    attempt(case, tmp_path / "parts", second, resume=first.checkpoints[-1:], number=2)
    require_same_end(whole, [first, second])


class FineTuning(Case):
    """Its datasets are registered directories."""

    def inputs(self, root):
        ids = self.config["parameters"]["model"], self.config["parameters"]["texts"]
        return {each: root.parent / "datasets" / f"{each}.directory.json" for each in ids}


@pytest.mark.slow
def test_the_example_of_fine_tuning_learns_and_continues_exactly(tmp_path, monkeypatch):
    pytest.importorskip("transformers", reason="transformers is not installed")
    monkeypatch.setenv("TRAINOPS_RECIPES", "examples.recipes.fine_tuning:RECIPE")
    from examples import tiny_model

    config = submission.read(ROOT / "examples/recipes/fine_tuning.yaml").body["config"]
    for name, write in (("model", tiny_model.write), ("texts", directories.reviews)):
        write(tmp_path / name)
        registered(tmp_path / name, config["parameters"][name], tmp_path / "datasets")
    case = FineTuning("loop", "fine_tuning", config, ())
    whole = ScriptedSupervisor()
    outcome = attempt(case, tmp_path / "whole", whole)
    assert isinstance(outcome, Succeeded), outcome
    assert outcome.result["final"]["val_accuracy"] > 0.95
    first = ScriptedSupervisor(at=45)  # in the second epoch
    attempt(case, tmp_path / "parts", first, every_steps=1)
    let_savings_land()
    second = ScriptedSupervisor()
    attempt(case, tmp_path / "parts", second, resume=first.checkpoints[-1:], number=2)
    require_same_end(whole, [first, second])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "recipe", "is_good"),
    [
        ("lightning.pytorch", "lit_digits", lambda final: final["val_accuracy"] > 0.85),
        ("transformers", "letters", lambda final: final["eval_loss"] < 1.0),
    ],
)
def test_the_example_of_a_trainer_learns(tmp_path, monkeypatch, library, recipe, is_good):
    pytest.importorskip(library, reason=f"{library} is not installed")
    monkeypatch.setenv("TRAINOPS_RECIPES", f"examples.recipes.{recipe}:RECIPE")
    engine = KINDS["loop"]
    config = engine.parse_config(recipes("loop")[recipe].example)
    outcome = run(
        engine.job_factory(config),
        seed=0,
        store=CheckpointStore(tmp_path, identity={}),
        policy=CheckpointPolicy(),
        supervisor=Nobody(),
    )
    assert isinstance(outcome, Succeeded), outcome
    assert is_good(outcome.result["final"]), outcome.result["final"]


def media_of(supervisor):
    items = [each for progress in supervisor.progress for each in progress.media]
    return {(each.name, each.position, each.index): each for each in items}


@pytest.mark.slow
def test_the_example_of_media_logs_all_types_and_the_same_after_a_stop(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINOPS_RECIPES", "examples.recipes.waves:RECIPE")
    example = recipes("loop")["waves"].example
    case = Case("loop", "waves", {**example, "parameters": {"epochs": 4}}, ())
    whole, first, second = ScriptedSupervisor(), ScriptedSupervisor(at=16), ScriptedSupervisor()
    outcome = attempt(case, tmp_path / "whole", whole)
    assert isinstance(outcome, Succeeded), outcome
    assert {each.type for each in media_of(whole).values()} == set(TYPES)
    assert len(media_of(whole)) == 4 * (3 + 4 + 4)
    norms = [step for step, values in whole.curve.items() if values.get("gradient_norm", 0.0) > 0]
    assert norms == [step for step in range(1, 29) if step % 7]  # each seventh is the validation
    attempt(case, tmp_path / "parts", first, every_steps=1)
    let_savings_land()
    attempt(case, tmp_path / "parts", second, resume=first.checkpoints[-1:], number=2)
    require_same_end(whole, [first, second])
    assert not media_of(first).keys() & media_of(second).keys()
    assert media_of(first) | media_of(second) == media_of(whole)
