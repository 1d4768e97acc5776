"""Reinforcement learning: agents learn by acting in an environment."""

from trainops.kind import Kind, Objective, Panel

WEB = "trainops.kinds.rl.web"
RECIPES = "trainops.kinds.rl.recipes"

KIND = Kind(
    name="rl",
    label="Reinforcement learning",
    description="Agents learn by acting in an environment",
    order=30,
    unit="step",
    config="trainops.kinds.rl.config:RlConfig",
    job="trainops.kinds.rl.job:RlJob",
    positions="trainops.kinds.rl.position",
    demo="trainops.kinds.rl.demo:DEMO",
    adapt="trainops.kinds.rl.adapting:adapt",
    recipes=(
        f"{RECIPES}.grid_world:RECIPE",
        f"{RECIPES}.levels:CORRIDOR",
        f"{RECIPES}.levels:MEADOW",
        f"{RECIPES}.levels:TOWN",
        f"{RECIPES}.levels:FOG",
        f"{RECIPES}.levels:CITY",
        f"{RECIPES}.gymnasium_id:RECIPE",
    ),
    files="trainops.kinds.rl.files.descriptor:FILES",
    length="environment_steps",
    has_weights=True,
    objective=Objective("best.value"),
    columns=("best.value", "final.return_mean", "episodes"),
    panels=(
        Panel(
            name="agents",
            template="rl/agents.html",
            view=f"{WEB}.agents:panel",
            place="below",
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
