import os

import pytest

from trainops.runtime import reproducibility

RECIPES = ("tests.training_oracle.drawn", "tests.training_oracle.scripted")


@pytest.fixture(autouse=True, scope="session")
def _engine_settings():
    reproducibility.set_determinism(deterministic=True, threads=1)


@pytest.fixture(autouse=True)
def _recipes(monkeypatch):
    """Register the recipes of this folder beside the others."""
    own = ",".join(f"{module}:RECIPE" for module in RECIPES)
    monkeypatch.setenv("TRAINOPS_RECIPES", f"{os.environ['TRAINOPS_RECIPES']},{own}")
