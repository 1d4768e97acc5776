"""Loaded before Django's settings: a data directory of the tests' own, and no services."""

import atexit
import os
import shutil
import tempfile

DATA_DIR = tempfile.mkdtemp(prefix="trainops-tests-")
atexit.register(shutil.rmtree, DATA_DIR, ignore_errors=True)

os.environ["TRAINOPS_DATA_DIR"] = DATA_DIR
os.environ["XDG_CONFIG_HOME"] = f"{DATA_DIR}/config"  # contexts of the command line
for name in (
    "TRAINOPS_CONTEXT",
    "TRAINOPS_BROKER_URL",
    "TRAINOPS_CHECKPOINT_STORAGE",
    "TRAINOPS_CHECKPOINT_KEY_FILE",
    "TRAINOPS_SECRET_KEY",
    "TRAINOPS_SINKS",
):
    os.environ.pop(name, None)
# Two processes of pytest share the cores: a thread of torch that waits for another in a loop takes
# the CPU from it. Results do not depend on it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
RECIPES = (
    "tests.recipes.scripted",
    "tests.engines.toy",
    "tests.backtest.busy",
    "tests.backtest.random_orders",
    "tests.federated.crowd",
    "tests.loop.program",
    "tests.loop.pair",
    "tests.loop.lit",
    "tests.loop.hugging",
    "tests.loop.covering",
)
os.environ["TRAINOPS_RECIPES"] = ",".join(f"{module}:RECIPE" for module in RECIPES)
