"""An evaluation of a Hugging Face Trainer that can be stopped between its batches."""

from collections.abc import Generator, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset
from transformers import EvalPrediction, Trainer, TrainingArguments
from transformers.trainer_pt_utils import nested_concat, nested_detach, nested_numpify

from trainops.kinds.loop.module.batch import count_examples, to_device
from trainops.kinds.loop.passes import Passes
from trainops.kinds.loop.reading import Reading
from trainops.kinds.loop.replicas import Replicas
from trainops.kinds.loop.run import Run, Yielded
from trainops.kinds.loop.transformers.events import TrainerEvents

IGNORED_INDEX = -100  # by which Hugging Face pads what is concatenated


class TrainerEvaluation:
    """Calls prediction_step and compute_metrics; losses, predictions and labels are kept.

    Several datasets are evaluated one after the other; metrics have the names of their datasets.
    Each rank evaluates its part of the batches, and has the results of all. `places`: names of the
    places of the loop that evaluate; the loaders of the first one have the plain names.
    """

    def __init__(
        self,
        run: Run,
        trainer: Trainer,
        events: TrainerEvents,
        replicas: Replicas,
        places: Sequence[str],
        reading: Reading,
    ) -> None:
        self._trainer, self._events, self._replicas = trainer, events, replicas
        self._kept: dict[str, Any] = run.keep("evaluation", empty())
        datasets = trainer.eval_dataset
        names = list(datasets) if isinstance(datasets, dict) else [None]
        self._sets = [
            EvaluatedSet(run, trainer, name, number, places, reading)
            for number, name in enumerate(names)
        ]

    def batches(
        self, model: torch.nn.Module, place: str
    ) -> Generator[Yielded, None, dict[str, float]]:
        """Evaluate batch by batch, with a yield after each; return the metrics."""
        only_loss = self._trainer.compute_metrics is None or self._trainer.args.prediction_loss_only
        for each in self._sets:
            if each.prefix in self._kept.get("done", {}):
                continue
            self._trainer.callback_handler.eval_dataloader = each.prepared
            for batch in each.loaders[place]:
                model.eval()
                self._add(model, batch, each.loaders[place], only_loss=only_loss)
                self._events.call("on_prediction_step")
                yield {}
            metrics = self._metrics(each.prefix)
            self._events.end_evaluation(metrics)
            done = self._kept.get("done", {}) | {each.prefix: metrics}
            self._kept.update(empty() | {"done": done})
        found = {name: each for one in self._kept["done"].values() for name, each in one.items()}
        self._kept.update(empty())
        return found

    def _add(self, model: torch.nn.Module, batch: Any, loader: Passes, *, only_loss: bool) -> None:
        """Evaluate the batch; keep the results of all ranks, each batch of the loader once."""
        is_new = self._replicas.is_counted(loader, self._kept.get("batches", 0))
        found = self._evaluated(model, batch, only_loss=only_loss)
        for of_rank in self._replicas.gathered(found if is_new else {}):
            for name, value in of_rank.items():
                self._kept[name].append(value)
        self._kept["batches"] = loader.numbers.stop

    def _evaluated(self, model: torch.nn.Module, batch: Any, *, only_loss: bool) -> dict[str, Any]:
        trainer, found = self._trainer, dict[str, Any]()
        loss, logits, labels = trainer.prediction_step(model, batch, only_loss)
        if "inputs" in trainer.args.include_for_metrics:
            name = getattr(trainer.model, "main_input_name", "input_ids")
            found["inputs"] = to_device(nested_detach(batch[name]), torch.device("cpu"))
        if loss is not None:
            found["losses"], found["counts"] = loss.item(), count_examples(batch)
        if logits is not None:
            if (prepare := trainer.preprocess_logits_for_metrics) is not None:
                logits = prepare(logits, labels)  # type: ignore[arg-type] # labels may be missing
            found["predictions"] = to_device(nested_detach(logits), torch.device("cpu"))
        if labels is not None:
            found["labels"] = to_device(nested_detach(labels), torch.device("cpu"))
        return found

    def _metrics(self, prefix: str) -> dict[str, float]:
        kept, metrics = self._kept, {}
        included = self._trainer.args.include_for_metrics
        losses = np.repeat(np.array(kept["losses"], np.float32), kept["counts"])
        if self._trainer.compute_metrics is not None and kept["predictions"] and kept["labels"]:
            predictions, labels = joined(kept["predictions"]), joined(kept["labels"])
            found = EvalPrediction(
                predictions=predictions,
                label_ids=labels,
                inputs=joined(kept["inputs"]) if kept.get("inputs") else None,
                losses=losses if "loss" in included else None,
            )
            metrics = {name: float(v) for name, v in self._trainer.compute_metrics(found).items()}
        if kept["losses"]:
            metrics["loss"] = float(losses.mean())
        return {
            name if name.startswith(f"{prefix}_") else f"{prefix}_{name}": each
            for name, each in metrics.items()
        }


class EvaluatedSet:
    """A dataset of evaluations, with a loader for each place of the loop that evaluates."""

    def __init__(
        self,
        run: Run,
        trainer: Trainer,
        name: str | None,
        number: int,
        places: Sequence[str],
        reading: Reading,
    ) -> None:
        self.prefix = "eval" if name is None else f"eval_{name}"
        args, given = trainer.args, [] if name is None else [name]
        self.prepared = trainer.get_eval_dataloader(*given)
        suffix = f"_{number}" if number else ""
        names = {each: f"_{each}" if each != places[0] else "" for each in places}
        is_iterable = isinstance(self.prepared.dataset, IterableDataset)
        of_set = reading.options(f"validation{suffix}", self.prepared.dataset)
        self.loaders: dict[str, Passes] = {
            place: run.loader(
                f"validation{names[place]}{suffix}",
                # each loader restores the state of its dataset
                deepcopy(self.prepared.dataset)
                if is_iterable and place != places[0]
                else self.prepared.dataset,
                batch_size=args.eval_batch_size,
                shuffle=False,
                collate_fn=self.prepared.collate_fn,
                **of_set,
                **worker_options(args),
            )
            for place in places
        }


def worker_options(args: TrainingArguments) -> dict[str, Any]:
    return {
        "num_workers": args.dataloader_num_workers,
        "prefetch_factor": args.dataloader_prefetch_factor,
        "persistent_workers": args.dataloader_persistent_workers,
        "pin_memory": args.dataloader_pin_memory,
    }


def empty() -> dict[str, Any]:
    lists = ("losses", "counts", "predictions", "labels", "inputs")
    return {**{name: [] for name in lists}, "batches": 0, "done": {}}


def joined(batches: list[Any]) -> Any:
    """Return the batches as one NumPy array, or a tuple of arrays; shorter ones are padded."""
    whole = batches[0]
    for each in batches[1:]:
        whole = nested_concat(whole, each, padding_index=IGNORED_INDEX)
    return nested_numpify(whole)
