"""Reinforcement learning: agents learn by acting in an environment."""

from trainops.kind import Kind, Objective, Panel

WEB = "trainops.engines.rl.web"
RECIPES = "trainops.engines.rl.recipes"

KIND = Kind(
    name="rl",
    label="Reinforcement learning",
    description="Agents learn by acting in a world, one step of all of them after another",
    order=30,
    unit="step",
    config="trainops.engines.rl.config:RlConfig",
    job="trainops.engines.rl.job:RlJob",
    positions="trainops.engines.rl.position",
    adapt="trainops.engines.rl.adapting:adapt",
    recipes=(
        f"{RECIPES}.grid_world:RECIPE",
        f"{RECIPES}.levels:CORRIDOR",
        f"{RECIPES}.levels:MEADOW",
        f"{RECIPES}.levels:TOWN",
        f"{RECIPES}.levels:FOG",
        f"{RECIPES}.levels:CITY",
        f"{RECIPES}.gymnasium_id:RECIPE",
    ),
    files="trainops.engines.rl.files.descriptor:FILES",
    objective=Objective("best.value"),
    columns=("best.value", "final.return_mean", "episodes"),
    panels=(
        Panel(
            name="agents",
            template="rl/agents.html",
            view=f"{WEB}.agents:panel",
            script="rl/replay.js",
            shows_result=True,
        ),
        Panel(
            name="agent-files",
            template="rl/files.html",
            view=f"{WEB}.agents:files",
            place="files",
        ),
    ),
    web=WEB,
    urls=f"{WEB}.urls",
)
