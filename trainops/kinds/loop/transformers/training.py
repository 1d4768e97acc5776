"""The loop that trains by the methods of a Hugging Face Trainer.

A step is an optimizer step, or a batch of an evaluation.
"""

import math
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, TypeAlias, TypeVar

import torch
from accelerate.optimizer import AcceleratedOptimizer
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from transformers import Trainer

from trainops.kinds.loop.module.batch import count_examples
from trainops.kinds.loop.replicas import Replicas
from trainops.kinds.loop.run import Run, Yielded
from trainops.kinds.loop.transformers.evaluation import TrainerEvaluation
from trainops.kinds.loop.transformers.requirements import require_trainer
from trainops.runtime.config import Strict

P = TypeVar("P", bound=Strict)
Steps: TypeAlias = Generator[Yielded, None, None]
as_float32 = partial(torch.as_tensor, dtype=torch.float32)  # float64 would change that of a loss


def transformers_loop(
    make: Callable[[Run, P], Trainer], *, is_random: bool = True
) -> Callable[[Run, P], Steps]:
    """Return the loop that trains by the Trainer which `make(run, parameters)` returns.

    `is_random`: whether its datasets and collator may draw from the global random streams.
    """

    def train(run: Run, parameters: P) -> Steps:
        run.require_undivided("a Trainer of transformers")
        training = TransformersTraining(run, make(run, parameters), is_random=is_random)
        yield from training.epochs()

    return train


class TransformersTraining:
    """Epochs, accumulation and evaluations as in Trainer.train; `progress` is kept.

    Each rank has a Trainer of its own, which knows of no other process: trainops divides the
    batches and averages the gradients.
    """

    def __init__(self, run: Run, trainer: Trainer, *, is_random: bool) -> None:
        require_trainer(trainer, run.device)
        run.norms.require_known(trainer.args.max_grad_norm > 0, "max_grad_norm of the arguments")
        self._run, self._trainer, args = run, trainer, trainer.args
        self._progress: dict[str, Any] = run.keep(
            "progress", {"step": 0, "is_evaluating": False, "num_ranks": run.num_ranks}
        )
        self._epoch_number = 0
        loader = trainer.get_train_dataloader()
        self._train = run.loader(
            "train",
            loader.dataset,
            batch_size=args.train_batch_size,
            shuffle=args.train_sampling_strategy == "random",
            drop_last=args.dataloader_drop_last,
            num_workers=args.dataloader_num_workers,
            collate_fn=loader.collate_fn,
            is_random=is_random,
        )
        # It asks for a length and a dataset, which this loader has, too.
        counted = trainer.set_initial_training_values(args, self._train)  # type: ignore[arg-type]
        self._num_epochs, self._steps_per_epoch, *_, self._max_steps = counted
        self._model, self._optimizer, self._scheduler = self._prepare()
        wrapped = run.wrap(self._model, find_unused_parameters=True)
        self._replicas = Replicas(run, self._model, wrapped)
        trainer.model_wrapped = wrapped
        self._evaluation: TrainerEvaluation | None = None
        if args.eval_strategy != "no":
            self._evaluation = TrainerEvaluation(run, trainer, self._replicas, is_random=is_random)

    def epochs(self) -> Steps:
        for epoch in self._run.epochs(self._num_epochs):
            self._epoch_number = epoch
            yield from self._epoch()
            if self._trainer.args.eval_strategy == "epoch":
                yield from self._evaluate()
            if self._is_over:
                break
        self._trainer.is_in_train = False

    def _epoch(self) -> Steps:
        args = self._trainer.args
        window: list[Any] = []
        for batch in self._train:
            if not self._progress["is_evaluating"]:  # else this batch has been trained
                window.append(batch)
                is_last = self._train.is_at_end
                if len(window) < args.gradient_accumulation_steps and not is_last:
                    continue
                metrics = self._step(window)
                window = []
                yield metrics
            if args.eval_strategy == "steps" and self._is_evaluation_due:
                yield from self._evaluate()
            if self._is_over:
                return

    @property
    def _is_evaluation_due(self) -> bool:
        every = self._trainer.args.eval_steps or self._trainer.args.logging_steps
        every_steps = math.ceil(self._max_steps * every) if every < 1 else int(every)
        return self._is_over or self._num_steps % every_steps == 0

    @property
    def _is_over(self) -> bool:
        return self._num_steps >= self._max_steps

    @property
    def _num_batches(self) -> int:
        """Batches of the epoch that each rank has trained on."""
        return self._train.numbers.start // self._run.num_ranks + 1

    @property
    def _num_steps(self) -> int:
        """Optimizer steps so far; without max_steps, as many as lead here with these ranks."""
        if self._trainer.args.max_steps > 0:
            return int(self._progress["step"])
        in_epoch = math.ceil(self._num_batches / self._trainer.args.gradient_accumulation_steps)
        return self._epoch_number * self._steps_per_epoch + in_epoch

    def _step(self, window: list[Any]) -> Yielded:
        """Take an optimizer step, in the order of Trainer.train."""
        trainer, args, model = self._trainer, self._trainer.args, self._model
        loss = self._accumulate(window)
        if args.max_grad_norm > 0:
            norm = trainer.accelerator.clip_grad_norm_(model.parameters(), args.max_grad_norm)
            self._run.check_norm(norm, is_scaled=trainer.accelerator.scaler is not None)
        rate = self._scheduler.get_last_lr()[0]
        self._optimizer.step()
        self._follow_ranks()
        if not trainer.accelerator.optimizer_step_was_skipped:
            self._scheduler.step()
        model.zero_grad()
        self._progress["step"] += 1
        trainer.state.global_step = self._num_steps
        trainer.state.epoch = self._epoch_number + self._num_batches / len(self._train)
        return {"train_loss": loss, "learning_rate": rate}

    def _accumulate(self, window: list[Any]) -> Tensor:
        """Let the gradients be those of the whole window; return the loss.

        Of several ranks, their mean is that over all items (such as tokens) of their windows where
        the Trainer counts items, and otherwise over all examples.
        """
        trainer, replicas = self._trainer, self._replicas
        device = trainer.args.device
        batches, num_items = trainer.get_batch_samples(iter(window), len(window), device)
        divisors: list[int | Tensor] = [len(batches)] * len(batches)
        if replicas.num_ranks > 1:
            shares = replicas.shares([count_examples(each) for each in batches])
            divisors = [as_float32(1 / each) for each in shares]
            num_items = None if num_items is None else as_float32(replicas.mean(num_items))
        losses = []
        for number, (batch, divisor) in enumerate(zip(batches, divisors, strict=True), start=1):
            trainer.current_gradient_accumulation_steps = divisor  # type: ignore[assignment]
            with replicas.reducing(is_last=number == len(batches)):
                losses.append(trainer.training_step(replicas.step, batch, num_items))
        return sum(losses[1:], losses[0])

    def _follow_ranks(self) -> None:
        """Let a schedule whose length is that of the epochs continue at this place of them."""
        if self._progress.get("num_ranks", 1) != self._run.num_ranks:
            if self._trainer.args.max_steps <= 0:
                self._scheduler.last_epoch = self._num_steps - 1
            self._progress["num_ranks"] = self._run.num_ranks

    def _evaluate(self) -> Steps:
        if self._evaluation is None:
            return
        self._progress["is_evaluating"] = True
        self._replicas.share_buffers()
        metrics = yield from self._evaluation.batches(self._model)
        self._progress["is_evaluating"] = False
        yield metrics

    def _prepare(self) -> tuple[nn.Module, AcceleratedOptimizer, LRScheduler]:
        """Create, prepare by Accelerate and keep what changes."""
        run, trainer, max_steps = self._run, self._trainer, self._max_steps
        model, optimizer = trainer.accelerator.prepare(trainer.model, trainer.create_optimizer())
        trainer.optimizer = optimizer
        scheduler = trainer.create_scheduler(num_training_steps=max_steps)
        trainer.is_in_train = True
        trainer.state.max_steps, trainer.state.num_train_epochs = max_steps, self._num_epochs
        run.keep("model", trainer.model)
        run.keep("optimizer", optimizer.optimizer)
        run.keep("scheduler", scheduler)
        if trainer.accelerator.scaler is not None:
            run.keep("scaler", trainer.accelerator.scaler)
        return model, optimizer, scheduler
