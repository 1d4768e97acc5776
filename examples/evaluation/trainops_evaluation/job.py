"""Scoring a trained model: one step is one batch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, cast

import torch

from trainops.kind import KINDS
from trainops.learning.ingredients import Context, Examples, Ingredients
from trainops.learning.mean_metrics import MeanMetrics
from trainops.recipe_config import RecipeConfig
from trainops.runtime.checkpoint.manifest import Candidate, read_manifest
from trainops.runtime.checkpoint.store import CheckpointStore
from trainops.runtime.devices import choose_device
from trainops.runtime.errors import IncompatibleState, InputError
from trainops.runtime.job import Metrics, StateDict
from trainops_evaluation.config import EvaluationConfig
from trainops_evaluation.recipe import EvaluationParameters


class EvaluationJob:
    """The means of the loss and of each measure over the examples that are done."""

    unit: ClassVar[str] = "batch"

    def __init__(self, config: EvaluationConfig, inputs: Mapping[str, Path]) -> None:
        self.batch_size = config.batch_size
        self.device = choose_device(config.device)
        parameters = config.find_recipe().parse_parameters(config.parameters)
        self.ingredients = trained(cast(EvaluationParameters, parameters), inputs)
        self.model = self.ingredients.model.to(self.device).eval()
        self.examples = [
            each.to(self.device)
            for each in chosen(self.ingredients, cast(EvaluationParameters, parameters).examples)
        ]
        self.batches = [
            (part, first)
            for part, examples in enumerate(self.examples)
            for first in range(0, len(examples), self.batch_size)
        ]
        self.step = 0
        self.means = MeanMetrics(["loss", *self.ingredients.measures], self.device)

    @property
    def total_steps(self) -> int:
        return len(self.batches)

    @property
    def place(self) -> str:
        return f"batch {self.step} of {self.total_steps}"

    def advance(self) -> Metrics:
        part, first = self.batches[self.step]
        examples = self.examples[part]
        last = min(first + self.batch_size, len(examples))
        inputs, targets = examples.batch(torch.arange(first, last))
        with torch.inference_mode():
            outputs = self.model(*inputs)
            loss = self.ingredients.loss(outputs, targets) * self.ingredients.loss_factor
            sums = [loss * (last - first)]
            sums += [each(outputs, targets).sum() for each in self.ingredients.measures.values()]
        self.means.add(sums, last - first)
        self.step += 1
        return self.means.means()

    def state_dict(self) -> StateDict:
        return {"state": {"batch": self.step, "means": self.means.state_dict()}}

    def load_state_dict(self, state: StateDict) -> None:
        saved = state["state"]
        if not 0 <= saved["batch"] <= self.total_steps:
            problem = f"got batch {saved['batch']}; allowed: 0 to {self.total_steps}"
            raise IncompatibleState(problem)
        try:
            self.means.load_state_dict(saved["means"])
        except KeyError as error:
            raise IncompatibleState(f"it has no sum of {error}") from error
        self.step = saved["batch"]

    def result(self) -> Mapping[str, Any]:
        return {"examples": self.means.count, **self.means.means()}


def trained(parameters: EvaluationParameters, inputs: Mapping[str, Path]) -> Ingredients:
    """Return what the training's recipe builds, with the trained weights in its model.

    Raises InputError.
    """
    path = inputs[parameters.operation]
    checkpoint = read_manifest(path)
    if "config" not in checkpoint.identity:
        raise InputError({"parameters.operation": "its checkpoint holds no config (it is too old)"})
    config = cast(RecipeConfig, KINDS["training"].parse_config(checkpoint.identity["config"]))
    state = CheckpointStore(path.parent, identity={}).load(Candidate(path, checkpoint.digest))
    recipe, given = config.find_recipe(), dict(config.parameters)
    if parameters.dataset is not None:
        given["dataset"] = parameters.dataset
    elif config.dataset_ids():
        problem = f"nothing was given; the training read {', '.join(config.dataset_ids())}"
        raise InputError({"parameters.dataset": f"{problem}; allowed: that, or one like it"})
    context = Context(config.seed, inputs, state.get("constants", {}))
    ingredients = recipe.builder()(recipe.parse_parameters(given), context)
    wanted = "best_model" if parameters.weights == "best" and "best_model" in state else "model"
    ingredients.model.load_state_dict(state[wanted])
    return cast(Ingredients, ingredients)


def chosen(ingredients: Ingredients, which: str) -> list[Examples]:
    """Return the examples to score. Raises InputError where the recipe holds none out."""
    if which == "all":
        return [each for each in (ingredients.train, ingredients.validation) if each is not None]
    if ingredients.validation is None:
        raise InputError({"parameters.examples": "got validation, but the recipe holds none out"})
    return [ingredients.validation]
