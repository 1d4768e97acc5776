"""A validation that can be stopped between its batches, and early stopping by its metrics."""

import math
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch

from trainops.kinds.loop.means import number_of
from trainops.kinds.loop.metric_states import MetricStates
from trainops.kinds.loop.module.average import WeightAverage
from trainops.kinds.loop.module.base import TrainingModule
from trainops.kinds.loop.module.batch import to_device
from trainops.kinds.loop.module.replicas import Metrics, by_name
from trainops.kinds.loop.module.steps import autocast
from trainops.kinds.loop.passes import Passes
from trainops.kinds.loop.replicas import Replicas
from trainops.kinds.loop.run import Run, Yielded
from trainops.kinds.loop.settings import ModuleParameters
from trainops.learning.measures import is_metric
from trainops.learning.modes import evaluating
from trainops.runtime.errors import InputError


def metric_of(metrics: Metrics, name: str, field: str) -> float:
    """Return a metric of a validation. Raises InputError, which names `field`, if it is missing."""
    if name not in metrics:
        problem = f"got {name!r}, which the validation has not measured"
        raise InputError({field: f"{problem}; allowed: {', '.join(metrics)}"})
    return float(metrics[name])


class ModuleValidation:
    """Means over the examples of the loader "validation"; sums and early stopping are kept.

    The states of torchmetrics are kept with the module.
    """

    def __init__(
        self,
        run: Run,
        module: TrainingModule,
        loader: Passes,
        average: WeightAverage | None,
        parameters: ModuleParameters,
        replicas: Replicas,
    ) -> None:
        if not callable(getattr(module, "validation_step", None)):
            problem = f"{type(module).__name__} has a loader validation"
            raise InputError({"recipe": f"{problem}, but no method validation_step"})
        self._module, self._loader, self._average = module, loader, average
        self._parameters, self._device, self._replicas = parameters, run.device, replicas
        self._autocast = autocast(run.device, parameters)
        self._metrics = MetricStates(module)
        self._kept: dict[str, Any] = run.keep(
            "validation_sums", {"sums": {}, "examples": 0, "batches": 0}
        )
        self._stopping: dict[str, Any] = run.keep("early_stopping", {"best": None, "stale": 0})

    def batches(self) -> Generator[Yielded, None, Metrics]:
        """Validate batch by batch, with a yield after each; return the metrics."""
        for batch in self._loader:
            with self._evaluating():
                self._add(to_device(batch, self._device))
            yield {}
        kept = self._kept
        # as floats: torch may multiply by the reciprocal of a divisor, on a GPU always
        examples = float(kept["examples"])
        metrics: Metrics = {name: float(total) / examples for name, total in kept["sums"].items()}
        metrics |= self._computed()
        kept.update(sums={}, examples=0, batches=0)
        return metrics

    def is_over(self, metrics: Metrics) -> bool:
        """Count validations without improvement; return whether there have been too many."""
        patience, stopping = self._parameters.patience, self._stopping
        if patience is None:
            return False
        name = self._parameters.stopping_metric
        value = metric_of(metrics, name, "parameters.stopping_metric")
        sign = 1 if self._parameters.stopping_mode == "min" else -1
        best = stopping["best"]  # not finite only in states of earlier versions
        is_first = best is None or not math.isfinite(best)
        if math.isfinite(value) and (is_first or sign * value < sign * best):
            stopping.update(best=value, stale=0)
        elif not is_first:  # before the first finite value there is nothing to improve on
            stopping["stale"] += 1
        return bool(stopping["stale"] >= patience)

    def _add(self, batch: Any) -> None:
        """Add the batches that the ranks have taken, each batch of the loader once."""
        kept = self._kept
        is_new = self._replicas.is_counted(self._loader, kept.get("batches", 0))
        with nullcontext() if is_new else self._metrics.unchanged():
            output = by_name(self._module.validation_step(batch), "validation_step")
        measured = {name: each for name, each in output.items() if is_metric(each)}
        self._note_metrics(measured)
        count = self._module.num_examples(batch) if is_new else 0
        values = {
            "val_loss" if name == "loss" else name: (
                number_of(name, value, "validation_step returned") * count if count else 0.0
            )
            for name, value in output.items()
            if name not in measured
        }
        *sums, examples = self._replicas.sums([*values.values(), count])
        for name, value in zip(values, sums, strict=True):
            kept["sums"][name] = kept["sums"].get(name, 0.0) + value
        kept["examples"] += examples
        kept["batches"] = self._loader.numbers.stop

    def _note_metrics(self, measured: Mapping[str, Any]) -> None:
        """Remember which torchmetrics validation_step returns."""
        if measured:
            places = {name: self._metrics.place_of(name, each) for name, each in measured.items()}
            self._kept["metrics"] = {"places": places}

    def _computed(self) -> Metrics:
        """Return the values of the torchmetrics, which add up their states over the ranks."""
        places = self._kept.pop("metrics", {"places": {}})["places"]
        found = {name: self._metrics.metrics[place] for name, place in places.items()}
        if not found:
            return {}
        self._metrics.update_collections()
        self._require_updated(found)
        self._metrics.forget_values()  # validation_step may have asked one for its value
        with torch.no_grad():
            values = {name: float(number_of(name, each.compute())) for name, each in found.items()}
        self._metrics.reset(places.values())
        return dict(values)

    def _require_updated(self, metrics: Mapping[str, Any]) -> None:
        """Raise InputError for torchmetrics that have seen nothing."""
        updated = self._replicas.require_lists(metrics, "validation", [self._loader])
        if unused := [name for name in metrics if name not in updated]:
            problem = f"the metric {unused[0]!r} has seen no batch of the validation"
            raise InputError({"recipe": f"{problem}; allowed: validation_step updates it"})

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Compute without gradients and dropout, by the averaged weights if there are any."""
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(self._autocast)
            if self._average is not None:
                stack.enter_context(self._average.applied_to(self._module))
            stack.enter_context(evaluating(self._module))
            yield
