"""What learns: the model with its optimizers and schedules, and the examples it learns from."""

import copy
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from trainops.kinds.training.config import TrainingConfig
from trainops.kinds.training.optimization import (
    make_optimizers,
    make_schedulers,
    require_optimizers,
    require_schedulers,
)
from trainops.learning.data import BatchPlan
from trainops.learning.ingredients import Context, DatasetIngredients, Examples, Ingredients
from trainops.learning.mean_metrics import MeanMetrics
from trainops.learning.modes import ModeChanges, evaluating, start_modes
from trainops.learning.norm_limit import NormLimit
from trainops.learning.optimizer_state import load_optimizer
from trainops.learning.shapes import (
    require_same_optimizers,
    require_same_schedulers,
    require_same_shape,
)
from trainops.learning.single_examples import require_trainable
from trainops.runtime.errors import InputError, NonFiniteLoss
from trainops.runtime.job import StateDict
from trainops.runtime.throughput import Throughput


class Trainer:
    """One model in training, and everything about it but the place in the data."""

    def __init__(
        self,
        config: TrainingConfig,
        inputs: Mapping[str, Path],
        device: torch.device,
        constants: Mapping[str, Any],
    ) -> None:
        self.config = config
        self.device = device
        self.throughput = Throughput()
        self._norm_limit = NormLimit(config.limits)
        self.ingredients = _build(config, Context(config.seed, inputs, constants))
        self.model = self.ingredients.model.to(device)
        self.train = self.ingredients.train.to(device)
        validation = self.ingredients.validation
        self.validation = validation.to(device) if validation else None
        self.route = BatchPlan(len(self.train), config.batch_size, config.gradient_accumulation)
        sizes = {"the training data": len(self.train)}
        start_modes(self.model)
        require_trainable(self.model, self.train, config.batch_size, sizes)
        self.modes = ModeChanges({"model": self.model})
        self.optimizers = self._make_optimizers()
        require_optimizers(self.optimizers)
        self.schedulers = self._make_schedulers()
        require_schedulers(self.schedulers, config)

    @property
    def learning_rate(self) -> float:
        return float(self.optimizers[0].param_groups[0]["lr"])

    def objects(self) -> dict[str, Any]:
        """Return what the recipe made."""
        made = self.ingredients
        return {
            "model": self.model, "loss": made.loss, "measures": made.measures,
            "train": self.train, "validation": self.validation,
            "optimizer": self.optimizers, "scheduler": self.schedulers,
        }  # fmt: skip

    def new_mean_metrics(self) -> MeanMetrics:
        return MeanMetrics(["loss", *self.ingredients.measures], self.device)

    def learn(self, batches: tuple[Tensor, ...], step: int) -> list[Tensor]:
        """Move the weights once, by the mean loss over all the batches.

        Returns the sums of the loss and of each measure over their examples, measured as they
        were trained. Raises NonFiniteLoss and ExplodingNorm before the weights move (on CUDA,
        which would have to be waited for, the sums tell of a loss later).
        """
        num_samples = sum(map(len, batches))
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        sums = []
        for indices in batches:
            loss, *measured = self._measure(self.train, indices)
            if self.device.type == "cpu" and not math.isfinite(value := loss.item()):
                where = self.train.describe(indices)
                raise NonFiniteLoss(step, value / len(indices), where=where)
            (loss / num_samples).backward()
            sums.append(torch.stack([each.detach().double() for each in (loss, *measured)]))
        self._clip(step, batches)
        for optimizer in self.optimizers:
            optimizer.step()
        for scheduler in self.schedulers:
            if not isinstance(scheduler, ReduceLROnPlateau):
                scheduler.step()
        return list(torch.stack(sums).sum(dim=0))

    def validation_batches(self) -> tuple[Tensor, ...]:
        """Return the indices of the validation examples by batches; () where there are none."""
        if self.validation is None:
            return ()
        return tuple(torch.arange(len(self.validation)).split(self.config.batch_size))

    def validate(self, indices: Tensor, averages: MeanMetrics) -> None:
        """Add the loss and measures of these validation examples.

        Draws no random numbers: layers that would are switched off.
        """
        if self.validation is None:
            raise ValueError("there are no validation examples")
        with torch.no_grad(), evaluating(self.model):
            averages.add(self._measure(self.validation, indices), len(indices))

    def epoch_done(self, monitored: float) -> None:
        """Tell the schedules that go by a metric what it came to in the epoch that has ended."""
        for scheduler in self.schedulers:
            if isinstance(scheduler, ReduceLROnPlateau):
                scheduler.step(monitored)

    def in_units(self, means: Mapping[str, float], prefix: str) -> dict[str, float]:
        """Return the means under their public names, the loss in the units people read."""
        factors = {"loss": self.ingredients.loss_factor}
        return {f"{prefix}_{name}": mean * factors.get(name, 1.0) for name, mean in means.items()}

    def state_dict(self) -> StateDict:
        return {
            "model": self.model.state_dict(),
            "optimizer": [optimizer.state_dict() for optimizer in self.optimizers],
            "scheduler": [scheduler.state_dict() for scheduler in self.schedulers],
        }

    def check(self, state: StateDict) -> None:
        """Raise IncompatibleState unless load_state_dict would take all of it."""
        require_same_shape(self.model.state_dict(), state["model"], "model")
        require_same_schedulers(self.schedulers, state["scheduler"])
        require_same_optimizers(self.optimizers, state["optimizer"])

    def load_state_dict(self, state: StateDict) -> None:
        """Take over what `check` has accepted."""
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizer"], strict=True):
            load_optimizer(optimizer, saved)
        for scheduler, saved in zip(self.schedulers, state["scheduler"], strict=True):
            scheduler.load_state_dict(copy.deepcopy(saved))

    def _make_optimizers(self) -> list[Optimizer]:
        if self.ingredients.optimizers:
            return list(self.ingredients.optimizers(self.model))
        return make_optimizers(self.config, self.model)

    def _make_schedulers(self) -> list[LRScheduler]:
        epoch_steps = self.route.steps_per_epoch
        total_steps = self.config.epochs * epoch_steps
        if self.ingredients.schedulers:
            return list(self.ingredients.schedulers(self.optimizers, total_steps))
        return make_schedulers(
            self.config, self.optimizers, total_steps=total_steps, epoch_steps=epoch_steps
        )

    def _measure(self, examples: Examples, indices: Tensor) -> list[Tensor]:
        """Return the summed loss and the summed measures over these examples."""
        began_at = time.perf_counter()
        inputs, targets = examples.batch(indices.to(self.device))
        self.throughput.add(len(indices), time.perf_counter() - began_at)
        outputs = self.model(*inputs)
        loss = self.ingredients.loss(outputs, targets) * len(indices)
        with torch.no_grad():
            measures = self.ingredients.measures.values()
            return [loss, *(measure(outputs, targets).sum() for measure in measures)]

    def _clip(self, step: int, batches: tuple[Tensor, ...]) -> None:
        if self.config.max_grad_norm is None:
            return
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_grad_norm)
        if self.device.type != "cpu" and not self._norm_limit.is_set:
            return  # it would have to be waited for

        def where() -> str:
            return self.train.describe(torch.cat(batches))

        if not math.isfinite(norm.item()):
            raise NonFiniteLoss(step, norm.item(), "gradient", where())
        self._norm_limit.check(norm.item(), step, where)


def _build(config: TrainingConfig, context: Context) -> Ingredients:
    recipe = config.find_recipe()
    parameters = recipe.parse_parameters(config.parameters)
    ingredients: object = recipe.builder()(parameters, context)
    if isinstance(ingredients, DatasetIngredients):
        problem = f"got DatasetIngredients from {recipe.build}; allowed: Ingredients"
        raise InputError({"recipe": f"{problem}, or the kind loop with ingredients_loop(build)"})
    if not isinstance(ingredients, Ingredients):
        raise TypeError(f"{recipe.build} returned {type(ingredients).__name__}, not Ingredients")
    if not len(ingredients.train):
        raise InputError({"recipe": f"{recipe.name} has no training examples"})
    measured = ["loss", *ingredients.measures]
    available = [f"train_{name}" for name in measured]
    if ingredients.validation is not None:
        available += [f"val_{name}" for name in measured]
    allowed = f"{recipe.name} measures {', '.join(available)}"
    if config.monitor not in available:
        raise InputError({"monitor": f"got {config.monitor!r}; {allowed}"})
    if missing := [name for name in config.monitors if name not in available]:
        raise InputError({"monitors": f"got {missing[0]!r}; {allowed}"})
    return ingredients
