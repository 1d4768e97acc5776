"""A validation that can be stopped between its batches, and early stopping by its metrics."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from trainops.kinds.loop.means import number_of
from trainops.kinds.loop.module.average import WeightAverage
from trainops.kinds.loop.module.base import TrainingModule
from trainops.kinds.loop.module.batch import to_device
from trainops.kinds.loop.module.replicas import Metrics, by_name
from trainops.kinds.loop.module.steps import autocast
from trainops.kinds.loop.passes import Passes
from trainops.kinds.loop.replicas import Replicas
from trainops.kinds.loop.run import Run, Yielded
from trainops.kinds.loop.settings import ModuleParameters
from trainops.runtime.errors import InputError


class ModuleValidation:
    """Means over the examples of the loader "validation"; sums and early stopping are kept."""

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
        kept.update(sums={}, examples=0, batches=0)
        return metrics

    def is_over(self, metrics: Metrics) -> bool:
        """Count validations without improvement; return whether there have been too many."""
        patience, stopping = self._parameters.patience, self._stopping
        if patience is None:
            return False
        value = self.metric(metrics, self._parameters.stopping_metric)
        sign = 1 if self._parameters.stopping_mode == "min" else -1
        if stopping["best"] is None or sign * value < sign * stopping["best"]:
            stopping.update(best=value, stale=0)
        else:
            stopping["stale"] += 1
        return bool(stopping["stale"] >= patience)

    def metric(self, metrics: Metrics, name: str) -> float:
        """Return a metric. Raises InputError for a name that validation_step does not return."""
        if name not in metrics:
            problem = f"got {name!r}, which the validation has not measured"
            raise InputError({"parameters.stopping_metric": f"{problem}; allowed: {[*metrics]}"})
        return float(metrics[name])

    def _add(self, batch: Any) -> None:
        """Add the batches that the ranks have taken, each batch of the loader once."""
        output: Mapping[str, Any] = by_name(self._module.validation_step(batch), "validation_step")
        kept = self._kept
        is_new = self._replicas.is_counted(self._loader, kept.get("batches", 0))
        count = self._module.num_examples(batch) if is_new else 0
        values = {
            "val_loss" if name == "loss" else name: number_of(name, value) * count if count else 0.0
            for name, value in output.items()
        }
        *sums, examples = self._replicas.sums([*values.values(), count])
        for name, value in zip(values, sums, strict=True):
            kept["sums"][name] = kept["sums"].get(name, 0.0) + value
        kept["examples"] += examples
        kept["batches"] = self._loader.numbers.stop

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Compute without gradients and dropout, by the averaged weights if there are any."""
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            stack.enter_context(self._autocast)
            if self._average is not None:
                stack.enter_context(self._average.applied_to(self._module))
            self._module.eval()
            yield
        self._module.train()
