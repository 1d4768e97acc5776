"""The scores of an evaluation as a file, and what is checked of its checkpoints."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import cast

import pandas as pd
import torch

from trainops.files.description import Exported, ExportSubject, FileFormat, StateChecks, Weights
from trainops.files.fields import Fields
from trainops.recipe_config import RecipeConfig
from trainops.runtime.config import OperationConfig
from trainops.runtime.job import StateDict
from trainops_evaluation.job import EvaluationJob
from trainops_evaluation.recipe import EvaluationParameters


@dataclass(frozen=True, slots=True)
class Scores:
    """Means over the examples that were scored. `operation` and `weights` say of which model."""

    operation: str
    weights: str
    examples: int
    scores: Mapping[str, float]


def write(state: StateDict, config: OperationConfig, wanted: ExportSubject) -> Exported:
    """Return the scores of a checkpoint, also of one before the end."""
    evaluation = cast(RecipeConfig, config)
    given = evaluation.find_recipe().parse_parameters(evaluation.parameters)
    parameters = cast(EvaluationParameters, given)
    sums = dict(state["state"]["means"])
    count = int(sums.pop("count"))
    means = {name: total / count for name, total in sums.items()} if count else {}
    file = Scores(parameters.operation, parameters.weights, count, means)
    return Exported(file, f"scores_of_{parameters.operation}.pt")


def parse(tree: Mapping[str, object]) -> Scores:
    fields = Fields(tree)
    file = Scores(
        operation=fields.text("operation"),
        weights=fields.choice("weights", ("best", "last")),
        examples=fields.integer("examples"),
        scores=fields.numbers("scores"),
    )
    fields.finish()
    return file


def disagreements(file: Scores) -> dict[str, str]:
    if bool(file.examples) == bool(file.scores):
        return {}
    return {"scores": f"are {len(file.scores)}, of {file.examples} examples"}


def contradictions(step: int, state: StateDict) -> dict[str, str]:
    """Return what in a checkpoint disagrees with the step of its manifest."""
    batch = state["state"]["batch"]
    return {} if batch == step else {"state.batch": f"is {batch}; expected {step}"}


def table(job: EvaluationJob) -> pd.DataFrame:
    means = job.means.means()
    return pd.DataFrame({"name": list(means), "mean": list(means.values())})


FORMAT = FileFormat(
    file=Scores,
    title="scores",
    hint="an evaluation has operation, weights and scores",
    marks=(frozenset({"operation", "weights", "scores"}),),
    check_version=lambda outline: "scores of a model",
    parse=parse,
    to_tree=asdict,
    describe=lambda file: f"{len(file.scores)} scores of {file.examples} examples",
    disagreements=disagreements,
    compared="compared: the number of examples",
    weights=lambda file: Weights(
        "scores", {name: torch.tensor(value) for name, value in file.scores.items()}
    ),
)
CHECKS = StateChecks(
    mark="means", title="an evaluation", disagreements=contradictions, compared="batches"
)
