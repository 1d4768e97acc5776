"""An evaluation of a Hugging Face Trainer that can be stopped between its batches."""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import EvalPrediction, Trainer
from transformers.trainer_pt_utils import nested_concat, nested_detach, nested_numpify

from trainops.kinds.loop.module.batch import count_examples, to_device
from trainops.kinds.loop.replicas import Replicas
from trainops.kinds.loop.run import Run, Yielded

if TYPE_CHECKING:
    from trainops.kinds.loop.passes import Passes

IGNORED_INDEX = -100  # by which Hugging Face pads what is concatenated


class TrainerEvaluation:
    """Calls prediction_step and compute_metrics; losses, predictions and labels are kept.

    Each rank evaluates its part of the batches, and has the results of all.
    """

    def __init__(self, run: Run, trainer: Trainer, replicas: Replicas, *, is_random: bool) -> None:
        args, loader = trainer.args, trainer.get_eval_dataloader()
        self._trainer, self._replicas = trainer, replicas
        self._kept: dict[str, Any] = run.keep("evaluation", empty())
        self._loader: Passes = run.loader(
            "validation",
            loader.dataset,
            batch_size=args.eval_batch_size,
            shuffle=False,
            num_workers=args.dataloader_num_workers,
            collate_fn=loader.collate_fn,
            is_random=is_random,
        )

    def batches(self, model: torch.nn.Module) -> Generator[Yielded, None, dict[str, float]]:
        """Evaluate batch by batch, with a yield after each; return the metrics."""
        only_loss = self._trainer.compute_metrics is None or self._trainer.args.prediction_loss_only
        for batch in self._loader:
            model.eval()
            self._add(model, batch, only_loss=only_loss)
            yield {}
        metrics = self._metrics()
        self._kept.update(empty())
        return metrics

    def _add(self, model: torch.nn.Module, batch: Any, *, only_loss: bool) -> None:
        """Evaluate the batch; keep the results of all ranks, each batch of the loader once."""
        is_new = self._replicas.is_counted(self._loader, self._kept.get("batches", 0))
        found = self._evaluated(model, batch, only_loss=only_loss)
        for of_rank in self._replicas.gathered(found if is_new else {}):
            for name, value in of_rank.items():
                self._kept[name].append(value)
        self._kept["batches"] = self._loader.numbers.stop

    def _evaluated(self, model: torch.nn.Module, batch: Any, *, only_loss: bool) -> dict[str, Any]:
        trainer, found = self._trainer, dict[str, Any]()
        loss, logits, labels = trainer.prediction_step(model, batch, only_loss)
        if loss is not None:
            found["losses"], found["counts"] = loss.item(), count_examples(batch)
        if logits is not None:
            if (prepare := trainer.preprocess_logits_for_metrics) is not None:
                logits = prepare(logits, labels)  # type: ignore[arg-type] # labels may be missing
            found["predictions"] = to_device(nested_detach(logits), torch.device("cpu"))
        if labels is not None:
            found["labels"] = to_device(nested_detach(labels), torch.device("cpu"))
        return found

    def _metrics(self) -> dict[str, float]:
        kept, metrics = self._kept, {}
        if self._trainer.compute_metrics is not None and kept["predictions"] and kept["labels"]:
            predictions, labels = joined(kept["predictions"]), joined(kept["labels"])
            found = EvalPrediction(predictions=predictions, label_ids=labels)
            metrics = {name: float(v) for name, v in self._trainer.compute_metrics(found).items()}
        if kept["losses"]:
            losses = np.repeat(np.array(kept["losses"], np.float32), kept["counts"])
            metrics["loss"] = float(losses.mean())
        return {
            name if name.startswith("eval_") else f"eval_{name}": each
            for name, each in metrics.items()
        }


def empty() -> dict[str, Any]:
    return {"losses": [], "counts": [], "predictions": [], "labels": [], "batches": 0}


def joined(batches: list[Any]) -> Any:
    """Return the batches as one NumPy array, or a tuple of arrays; shorter ones are padded."""
    whole = batches[0]
    for each in batches[1:]:
        whole = nested_concat(whole, each, padding_index=IGNORED_INDEX)
    return nested_numpify(whole)
