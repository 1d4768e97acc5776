"""Loaded before Django's settings: a data directory of the tests' own, and no services."""

import atexit
import os
import shutil
import tempfile

DATA_DIR = tempfile.mkdtemp(prefix="trainops-tests-")
atexit.register(shutil.rmtree, DATA_DIR, ignore_errors=True)

os.environ["TRAINOPS_DATA_DIR"] = DATA_DIR
for name in ("TRAINOPS_BROKER_URL", "TRAINOPS_CHECKPOINT_STORAGE", "TRAINOPS_SECRET_KEY"):
    os.environ.pop(name, None)
RECIPES = (
    "tests.recipes.scripted",
    "tests.engines.toy",
    "tests.backtest.busy",
    "tests.backtest.random_orders",
    "tests.federated.crowd",
)
os.environ["TRAINOPS_RECIPES"] = ",".join(f"{module}:RECIPE" for module in RECIPES)
