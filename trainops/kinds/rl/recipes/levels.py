"""Five grid worlds from trivial to hard; each is the grid world with other defaults."""

from typing import Any, Literal

from pydantic import Field

from trainops.kinds.rl.recipes.grid_world import (
    Affordance,
    Cascade,
    GridWorldParameters,
    Meter,
    Reward,
)
from trainops.recipes import Recipe

BED = Affordance(name="Bed", effects={"energy": 0.5})
KITCHEN = Affordance(name="Kitchen", costs={"money": 0.05}, effects={"food": 0.6})
OFFICE = Affordance(name="Office", costs={"energy": 0.1}, effects={"money": 0.3}, hours=[8, 18])
BATH = Affordance(name="Bath", costs={"money": 0.02}, effects={"hygiene": 0.8})
PARK = Affordance(name="Park", effects={"mood": 0.4}, hours=[6, 22])
LIVING = [
    Meter(name="energy", depletion=0.01, is_fatal=True),
    Meter(name="food", depletion=0.012, is_fatal=True),
    Meter(name="money", initial=0.5),
]
MORE = [Meter(name="hygiene", depletion=0.008), Meter(name="mood", depletion=0.006)]
NEGLECT = [
    Cascade(low="hygiene", below=0.3, drains="mood", by=0.02),
    Cascade(low="mood", below=0.3, drains="energy", by=0.02),
]
ALIVE = Reward(survival=0.01, death=-1.0)


class Corridor(GridWorldParameters):
    """Walk to the end."""

    size: list[int] = Field(
        [8], max_length=3, description="Number of cells in each dimension; 0 to 3 dimensions."
    )
    start: list[int] | None = Field([0], description="Start cell of the agents; empty: random.")
    affordances: list[Affordance] = Field(
        [Affordance(name="Exit", position=[7], reward=1.0, ends=True)]
    )
    reward: Reward = Reward(survival=-0.01)
    max_steps: int = Field(50, ge=1, le=1_000_000, description="Maximum steps per episode.")


class Meadow(GridWorldParameters):
    """Find the bed before the energy is used up."""

    size: list[int] = Field(
        [6, 6], max_length=3, description="Number of cells in each dimension; 0 to 3 dimensions."
    )
    affordances: list[Affordance] = Field([BED.model_copy(update={"position": [2, 3]})])
    meters: list[Meter] = Field([Meter(name="energy", depletion=0.03, is_fatal=True)])
    reward: Reward = ALIVE


class Town(GridWorldParameters):
    """Earn, eat and sleep."""

    affordances: list[Affordance] = Field(
        [
            BED.model_copy(update={"position": [0, 0]}),
            KITCHEN.model_copy(update={"position": [7, 0]}),
            OFFICE.model_copy(update={"position": [4, 6], "hours": None}),
        ]
    )
    meters: list[Meter] = Field(LIVING)
    mask_actions: bool = Field(True, description="Mask actions that have no effect.")
    max_steps: int = Field(200, ge=1, le=1_000_000, description="Maximum steps per episode.")
    reward: Reward = ALIVE


class Fog(Town):
    """The town in fog: a visible radius of three cells, and new positions in each episode."""

    affordances: list[Affordance] = Field([BED, KITCHEN, OFFICE.model_copy(update={"hours": None})])
    placement: Literal["run", "episode"] = Field(
        "episode", description="When random cells are drawn for affordances without a position."
    )
    vision: int | None = Field(3, ge=0, le=50, description="Visible radius in cells.")


class City(Fog):
    """Three floors, opening hours, and five needs that drain each other."""

    size: list[int] = Field(
        [8, 8, 3], max_length=3, description="Number of cells in each dimension."
    )
    affordances: list[Affordance] = Field([BED, KITCHEN, OFFICE, BATH, PARK])
    meters: list[Meter] = Field(LIVING + MORE)
    cascades: list[Cascade] = Field(NEGLECT)
    vision: int | None = Field(2, ge=0, le=50, description="Visible radius in cells.")
    temporal: bool = Field(
        True, description="Include the time of day and of the episode in observations."
    )
    max_steps: int = Field(400, ge=1, le=1_000_000, description="Maximum steps per episode.")


def _level(name: str, level: type[GridWorldParameters], **example: Any) -> Recipe:
    return Recipe(
        name=f"grid_{name}",
        kind="rl",
        label=f"Grid world: {name}",
        description=str(level.__doc__),
        parameters=f"{level.__module__}:{level.__name__}",
        build="trainops.kinds.rl.grid.world:build",
        example={"recipe": f"grid_{name}", **example},
    )


RECURRENT = {"algorithm": "recurrent_dqn", "agents": 16, "dqn": {"train_every": 1}}
CORRIDOR = _level("corridor", Corridor, environment_steps=20_000)
MEADOW = _level("meadow", Meadow, agents=8, environment_steps=100_000)
TOWN = _level("town", Town, agents=16, environment_steps=500_000)
FOG = _level("fog", Fog, **RECURRENT, environment_steps=1_000_000)
CITY = _level("city", City, **RECURRENT, environment_steps=5_000_000)
