"""Federated training: clients train on their own data, and a server aggregates their models."""

from collections.abc import Mapping
from typing import Any

from trainops.kind import Kind, Objective, Panel

WEB = "trainops.kinds.federated.web"
RECIPES = "trainops.kinds.federated.recipes"


def keeps_privacy(config: Mapping[str, Any]) -> bool:
    return bool(config.get("privacy", {}).get("mode", "none") != "none")  # older ones have none


KIND = Kind(
    name="federated",
    label="Federated",
    description="Clients train on their own data, and a server aggregates their models",
    order=40,
    unit="client epoch",
    config="trainops.kinds.federated.config:FederatedConfig",
    job="trainops.kinds.federated.job:FederatedJob",
    positions="trainops.kinds.federated.position",
    demo="trainops.kinds.federated.demo:DEMO",
    recipes=(
        f"{RECIPES}.digits:RECIPE",
        f"{RECIPES}.tabular:RECIPE",
        f"{RECIPES}.images:RECIPE",
        f"{RECIPES}.segmentation:RECIPE",
    ),
    files="trainops.kinds.federated.files.descriptor:FILES",
    length="rounds",
    has_weights=True,
    objective=Objective("best.value"),
    columns=("best.value", "rounds"),
    panels=(
        Panel(
            name="federated",
            template="federated/federated.html",
            view=f"{WEB}.federation:panel",
        ),
        Panel(
            name="model-files",
            template="federated/files.html",
            view=f"{WEB}.federation:files",
            place="files",
        ),
    ),
    web=WEB,
    urls=f"{WEB}.urls",
    ports=frozenset({"ledger", "subtasks"}),
    ledger="trainops.kinds.federated.releases:FIELDS",
    ledger_used=keeps_privacy,
    subtask="trainops.kinds.federated.client:ClientJob",
    group="round",
)
