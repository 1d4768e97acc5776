"""A training loop of several ranks over iterable datasets, for tests."""

from typing import Literal

from trainops.recipes import Recipe
from trainops.runtime.config import Strict


class Parameters(Strict):
    epochs: int = 2
    is_stateful: bool = False
    shards: Literal["", "itself", "nothing", "unsaid"] = ""
    length: int = 50
    num_workers: int = 0
    drop_last: bool = False
    is_plain: bool = False  # draws no random numbers but the weights
    is_in_place: bool = False  # changes the batches that it is given
    several: bool = False  # loaders by a schedule, the second with a state
    encloses: bool = False  # stops within an iteration over the batches


RECIPE = Recipe(
    name="streamed",
    kind="loop",
    label="Streamed",
    description="For tests",
    parameters="tests.ranks.streamed:Parameters",
    build="tests.ranks.streamed_loop:train",
    example={"recipe": "streamed", "threads": 1},
)
