"""The files that the README sends people to do what it says they do."""

from pathlib import Path

import pytest

from tests.cli.conftest import ROOT
from trainops.cli import submission
from trainops.kind import KINDS
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
