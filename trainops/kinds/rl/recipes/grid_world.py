"""A grid world told as data: a space, things to use in it, needs, and what is worth something."""

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
    depletion: float = Field(0.0, ge=0, le=1, description="Lost at each step")
    is_fatal: bool = Field(False, description="The episode ends when it is empty")


class Cascade(Strict):
    """A meter that runs low drains another one."""

    low: str = Field(description="The meter that runs low")
    below: float = Field(0.2, gt=0, le=1, description="From here on")
    drains: str = Field(description="The meter that is drained")
    by: float = Field(0.01, gt=0, le=1, description="At each step, when the first is empty")


class Affordance(Strict):
    """Something that an agent can use where it stands."""

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,30}$")
    position: list[int] | None = Field(None, description="Its cell; without one, drawn at random")
    costs: dict[str, float] = Field({}, description="Meters that pay; without enough, no use")
    effects: dict[str, float] = Field({}, description="Meters that change")
    hours: list[int] | None = Field(None, min_length=2, max_length=2, description="Opens, closes")
    reward: float = Field(0.0, ge=-1e6, le=1e6, description="For each use")
    ends: bool = Field(False, description="A use ends the episode")


class Reward(Strict):
    """What is worth something, besides the use of affordances."""

    survival: float = Field(0.0, description="For each step")
    death: float = Field(0.0, description="When a fatal meter is empty")
    meters: dict[str, float] = Field({}, description="For each step, times the meter's level")


class GridWorldParameters(Strict):
    size: list[int] = Field([8, 8], max_length=3, description="Cells of each of 0 to 3 dimensions")
    boundary: Literal["clamp", "wrap", "bounce", "sticky"] = Field(
        "clamp", description="What a move over the edge does; sticky: nothing"
    )
    stride: int = Field(1, ge=1, le=1000, description="Cells of a move")
    start: list[int] | None = Field(None, description="Where agents begin; by default anywhere")
    use: Literal["here", "named"] = Field(
        "here", description="One action uses what is here, or one for each affordance"
    )
    affordances: list[Affordance] = Field([], max_length=200)
    meters: list[Meter] = Field([], max_length=50)
    cascades: list[Cascade] = Field([], max_length=200)
    placement: Literal["run", "episode"] = Field(
        "run", description="When cells are drawn for affordances that have none"
    )
    vision: int | None = Field(None, ge=0, le=50, description="Cells seen around; all by default")
    temporal: bool = Field(False, description="Agents see the time of day and of the episode")
    day_steps: int = Field(24, ge=1, le=100_000)
    max_steps: int = Field(100, ge=1, le=1_000_000, description="An episode is cut after these")
    mask_actions: bool = Field(False, description="Actions without effect are not chosen")
    reward: Reward = Reward()
    field_ids: list[str] = Field(
        [], max_length=1000, description="What another tool's files call the fields observed"
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
        return [("size", f"got {world.size}; allowed: lengths of 1 on, {MAX_CELLS} cells in all")]
    found = []
    if prod(world.size) < len(world.affordances) and world.size:
        found.append(("affordances", f"got {len(world.affordances)}; more than there are cells"))
    if world.vision is not None and (2 * world.vision + 1) ** len(world.size) > 10_000:
        found.append(("vision", f"got {world.vision}; allowed: 10,000 cells in all"))
    places = [("start", world.start)]
    places += [(f"affordances.{i}.position", a.position) for i, a in enumerate(world.affordances)]
    for name, place in places:
        if place is not None and not _is_inside(place, world.size):
            found.append((name, f"got {place}; allowed: a cell of {world.size}, from 0"))
    for number, each in enumerate(world.affordances):
        if each.hours and not all(0 <= hour <= world.day_steps for hour in each.hours):
            told = f"got {each.hours}; allowed: 0 to day_steps ({world.day_steps})"
            found.append((f"affordances.{number}.hours", told))
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
        (place, f"got the meter {name!r}; allowed: {', '.join(known) or 'there are none'}")
        for place, name in named
        if name not in known
    ]
    for place, names in (("meters", known), ("affordances", [a.name for a in world.affordances])):
        if len(set(names)) < len(names):
            found.append((place, f"got {names}; each name once"))
    return found


RECIPE = Recipe(
    name="grid_world",
    kind="rl",
    label="Grid world",
    description="A world of your own: space, affordances, needs and rewards as data",
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
