"""The messages between `recipes check` and the process that checks, as frozen dataclasses."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainops.plain import Config


@dataclass(frozen=True, slots=True)
class RecipeCheck:
    """The request: what `check_recipe` is called with.

    parent: id of the process that asks; the check ends with it.
    """

    parent: int
    recipe: str
    kind: str | None
    config: Config
    inputs: Mapping[str, Path]
    max_steps: int
    max_seconds: float
    measures_cost: bool
    processes: int | None = None


@dataclass(frozen=True, slots=True)
class RecipeCheckProgress:
    """A line of progress before each run."""

    text: str


@dataclass(frozen=True, slots=True)
class RecipeCheckReport:
    """The last message of a check: its report as JSON and as text."""

    is_exact: bool
    report: Mapping[str, object]
    text: str


@dataclass(frozen=True, slots=True)
class RecipeCheckRefused:
    """The last message where the request is wrong: the problem of each field."""

    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RecipeCheckFailed:
    """The last message where the recipe cannot be run undisturbed."""

    reason: str


RecipeCheckResult = RecipeCheckReport | RecipeCheckRefused | RecipeCheckFailed
RecipeCheckAnswer = RecipeCheckProgress | RecipeCheckResult
