"""An event strategy that uses everything: each kind of order, and every kind of memory."""

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import Strict


class BusyParameters(Strict):
    dice: bool = Field(True, description="Draw from Python's and NumPy's global streams")
    remember_a_function: bool = False


RECIPE = Recipe(
    name="busy",
    kind="backtest",
    label="Busy",
    description="Gives every kind of order",
    parameters="tests.backtest.busy:BusyParameters",
    build="tests.backtest.busy_model:build",
    example={"recipe": "busy", "dataset": "ds_0000000000000000"},
)
