"""A grid world described as data: a space, things to use in it, needs and rewards."""

from collections.abc import Mapping
from math import prod
from typing import Any, Literal, Self

from pydantic import Field

from trainops.recipes import Recipe
from trainops.runtime.config import Strict
from trainops.runtime.errors import ConfigError

MAX_CELLS = 1_000_000


class Meter(Strict):
    """A need between 0 and 1."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")
    initial: float = Field(1.0, ge=0, le=1)
    depletion: float = Field(0.0, ge=0, le=1, description="Amount lost per step.")
    is_fatal: bool = Field(False, description="End the episode when the meter is empty.")


class Cascade(Strict):
    """A meter that runs low drains another one."""

    low: str = Field(description="Meter that triggers the drain.")
    below: float = Field(0.2, gt=0, le=1, description="Level below which the drain starts.")
    drains: str = Field(description="Meter that is drained.")
    by: float = Field(
        0.01, gt=0, le=1, description="Amount drained per step when the first meter is empty."
    )


class Affordance(Strict):
    """Something that an agent can use where it stands."""

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,30}$")
    position: list[int] | None = Field(
        None, description="Cell of the affordance; random by default."
    )
    costs: dict[str, float] = Field({}, description="Cost per meter; a use needs enough of each.")
    effects: dict[str, float] = Field({}, description="Change per meter at each use.")
    hours: list[int] | None = Field(
        None,
        min_length=2,
        max_length=2,
        description="Opening and closing time, in steps of the day.",
    )
    reward: float = Field(0.0, ge=-1e6, le=1e6, description="Reward per use.")
    ends: bool = Field(False, description="End the episode at a use.")


class Reward(Strict):
    """What is worth something, besides the use of affordances."""

    survival: float = Field(0.0, description="Reward per step.")
    death: float = Field(0.0, description="Reward when a fatal meter is empty.")
    meters: dict[str, float] = Field(
        {}, description="Reward per step for each meter, multiplied by its level."
    )


class GridWorldParameters(Strict):
    size: list[int] = Field(
        [8, 8], max_length=3, description="Number of cells in each dimension; 0 to 3 dimensions."
    )
    boundary: Literal["clamp", "wrap", "bounce", "sticky"] = Field(
        "clamp", description="Effect of a move over the edge; sticky: none."
    )
    stride: int = Field(1, ge=1, le=1000, description="Cells per move.")
    start: list[int] | None = Field(
        None, description="Start cell of the agents; random by default."
    )
    use: Literal["here", "named"] = Field(
        "here",
        description="here: one action uses the affordance in the cell; named: one action per "
        "affordance.",
    )
    affordances: list[Affordance] = Field([], max_length=200)
    meters: list[Meter] = Field([], max_length=50)
    cascades: list[Cascade] = Field([], max_length=200)
    placement: Literal["run", "episode"] = Field(
        "run", description="When random cells are drawn for affordances without a position."
    )
    vision: int | None = Field(
        None, ge=0, le=50, description="Visible radius in cells; by default the whole grid."
    )
    temporal: bool = Field(
        False, description="Include the time of day and of the episode in observations."
    )
    day_steps: int = Field(24, ge=1, le=100_000, description="Steps per day.")
    max_steps: int = Field(100, ge=1, le=1_000_000, description="Maximum steps per episode.")
    mask_actions: bool = Field(False, description="Mask actions that have no effect.")
    reward: Reward = Reward()
    field_ids: list[str] = Field(
        [], max_length=1000, description="Names of the observed fields in imported files."
    )

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        parameters = super().parse(raw)
        if errors := dict([*_of_space(parameters), *_of_names(parameters)]):
            raise ConfigError(errors)
        return parameters

    @property
    def is_drawn(self) -> bool:
        """Whether affordances stand elsewhere in each episode."""
        return self.placement == "episode" and any(a.position is None for a in self.affordances)


def _of_space(world: GridWorldParameters) -> list[tuple[str, str]]:
    if any(length < 1 for length in world.size) or prod(world.size) > MAX_CELLS:
        return [
            (
                "size",
                f"got {world.size}; allowed: lengths of at least 1, {MAX_CELLS} cells in total",
            )
        ]
    found = []
    if prod(world.size) < len(world.affordances) and world.size:
        found.append(
            ("affordances", f"got {len(world.affordances)}; allowed: at most one per cell")
        )
    if world.vision is not None and (2 * world.vision + 1) ** len(world.size) > 10_000:
        found.append(("vision", f"got {world.vision}; allowed: at most 10,000 visible cells"))
    places = [("start", world.start)]
    places += [(f"affordances.{i}.position", a.position) for i, a in enumerate(world.affordances)]
    for name, place in places:
        if place is not None and not _is_inside(place, world.size):
            found.append((name, f"got {place}; allowed: a cell of {world.size}, from 0"))
    for number, each in enumerate(world.affordances):
        if each.hours and not all(0 <= hour <= world.day_steps for hour in each.hours):
            problem = f"got {each.hours}; allowed: 0 to day_steps ({world.day_steps})"
            found.append((f"affordances.{number}.hours", problem))
    return found


def _is_inside(place: list[int], size: list[int]) -> bool:
    return len(place) == len(size) and all(
        0 <= each < length for each, length in zip(place, size, strict=True)
    )


def _of_names(world: GridWorldParameters) -> list[tuple[str, str]]:
    known = [meter.name for meter in world.meters]
    named = [(f"cascades.{i}", name) for i, c in enumerate(world.cascades)
             for name in (c.low, c.drains)]  # fmt: skip
    named += [("reward.meters", name) for name in world.reward.meters]
    for number, each in enumerate(world.affordances):
        named += [(f"affordances.{number}", name) for name in (*each.costs, *each.effects)]
    found = [
        (place, f"got the meter {name!r}; allowed: {', '.join(known) or 'none'}")
        for place, name in named
        if name not in known
    ]
    for place, names in (("meters", known), ("affordances", [a.name for a in world.affordances])):
        if len(set(names)) < len(names):
            found.append((place, f"got {names}; allowed: each name once"))
    return found


RECIPE = Recipe(
    name="grid_world",
    kind="rl",
    label="Grid world",
    description="A configurable world: space, affordances, needs and rewards as data",
    parameters="trainops.kinds.rl.recipes.grid_world:GridWorldParameters",
    build="trainops.kinds.rl.grid.world:build",
    example={
        "recipe": "grid_world",
        "parameters": {
            "size": [5, 5],
            "affordances": [{"name": "Exit", "position": [4, 4], "reward": 1.0, "ends": True}],
        },
    },
)
