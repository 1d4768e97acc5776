"""The messages to the process that writes a run of Weights & Biases, as frozen dataclasses."""

from collections.abc import Mapping
from dataclasses import dataclass

from trainops.plain import Config


@dataclass(frozen=True, slots=True)
class WandbRun:
    """The first message: the run, by the names that `wandb.init` has for them.

    parent: id of the process that asks; the writing process ends with it.
    step: name of the x-axis in the rows.
    """

    parent: int
    id: str
    project: str
    name: str
    job_type: str
    tags: tuple[str, ...]
    config: Config
    step: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class WandbRow:
    """A row of the history: the values of one step, with their time as `_timestamp`."""

    step: int
    values: Mapping[str, float]
