"""The loop that trains by the methods of a Hugging Face Trainer.

A step is an optimizer step, or a batch of an evaluation.
"""

import math
from collections.abc import Callable, Generator
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

import torch
from accelerate.optimizer import AcceleratedOptimizer
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils.data import DataLoader, IterableDataset
from transformers import Trainer
from transformers.optimization import GreedyLR
from transformers.trainer_pt_utils import LengthGroupedSampler

from trainops.kinds.loop.grad_norms import whole
from trainops.kinds.loop.gradients import Gradients
from trainops.kinds.loop.module.batch import count_examples
from trainops.kinds.loop.reading import Reading
from trainops.kinds.loop.replicas import Replicas
from trainops.kinds.loop.run import Run, Yielded
from trainops.kinds.loop.samplers import options_of
from trainops.kinds.loop.trainer_settings import TransformersParameters
from trainops.kinds.loop.transformers.evaluation import TrainerEvaluation, worker_options
from trainops.kinds.loop.transformers.events import TrainerEvents
from trainops.kinds.loop.transformers.requirements import require_trainer
from trainops.kinds.loop.transformers.starting import end_model, start_model
from trainops.learning.compiling import always_compiled
from trainops.runtime.config import Strict
from trainops.runtime.errors import InputError

P = TypeVar("P", bound=Strict)
Steps: TypeAlias = Generator[Yielded, None, None]
# `missing`: optimizer steps of epochs that callbacks have ended early
BEGINNING = {"step": 0, "is_evaluating": False, "has_begun": False, "ended": "", "missing": 0}
ON_METRICS = (ReduceLROnPlateau, GreedyLR)  # schedulers that step after an evaluation
as_float32 = partial(torch.as_tensor, dtype=torch.float32)  # float64 would change that of a loss


def transformers_loop(
    make: Callable[[Run, P], Trainer], *, is_random: bool = True, shards_itself: bool = False
) -> Callable[[Run, P], Steps]:
    """Return the loop that trains by the Trainer which `make(run, parameters)` returns.

    `is_random`: whether its datasets and collator may draw from the global random streams.
    `shards_itself`: of several ranks, each has other examples of its iterable datasets.
    """

    def train(run: Run, parameters: P) -> Steps:
        is_skipping = isinstance(parameters, TransformersParameters) and parameters.skip_undecodable
        reading = Reading(is_random, is_skipping, shards_itself)
        trainer = make(run, parameters)
        training = TransformersTraining(run, trainer, reading)
        given = "TrainingArguments has torch_compile=True"
        with always_compiled("recipe", given) if trainer.args.torch_compile else nullcontext():
            yield from training.epochs()

    return train


def order_of(trainer: Trainer, dataset: Any) -> dict[str, Any]:
    """Return arguments of `Run.loader` for the order of the examples. Raises InputError."""
    if isinstance(dataset, IterableDataset):
        return {}
    sampler = trainer._get_train_sampler(dataset)  # without unused columns, as in Trainer.train
    if isinstance(sampler, LengthGroupedSampler):  # batches of similar lengths
        return {"lengths": list(sampler.lengths)}
    return {"shuffle": False} if sampler is None else options_of("train", sampler, len(dataset))


def _require_no_length(dataset: object, reading: Reading) -> None:
    """Raise InputError for shards with lengths, by which each rank would make another schedule."""
    if reading.shards_itself and hasattr(dataset, "__len__"):
        problem = f"got a {type(dataset).__name__} with a length for 'train', which shards itself"
        raise InputError({"recipe": f"{problem}; allowed: one without __len__, and max_steps"})


class PartOfRank:
    """An iterable dataset's loader with the number of batches of one rank, where it is known."""

    def __init__(self, loader: DataLoader[Any], num_ranks: int) -> None:
        self.dataset, self._loader, self._num_ranks = loader.dataset, loader, num_ranks

    def __len__(self) -> int:
        return math.ceil(len(self._loader) / self._num_ranks)


class TransformersTraining:
    """Epochs, accumulation and evaluations as in Trainer.train; `progress` is kept.

    Each rank has a Trainer of its own, which knows of no other process: trainops divides the
    batches and averages the gradients.
    """

    def __init__(self, run: Run, trainer: Trainer, reading: Reading) -> None:
        require_trainer(trainer, run)
        run.norms.require_known(trainer.args.max_grad_norm > 0, "max_grad_norm of the arguments")
        self._run, self._trainer, args = run, trainer, trainer.args
        self._progress: dict[str, Any] = run.keep(
            "progress", {**BEGINNING, "num_ranks": run.num_ranks}
        )
        self._epoch_number = 0
        start_model(trainer)
        loader = trainer.get_train_dataloader()
        self._is_iterable = isinstance(loader.dataset, IterableDataset)
        self._train = run.loader(
            "train",
            loader.dataset,
            batch_size=args.train_batch_size,
            **order_of(trainer, loader.dataset),
            drop_last=args.dataloader_drop_last and not self._is_iterable,
            collate_fn=loader.collate_fn,
            **reading.options("train", loader.dataset),
            **worker_options(args),
        )
        # It asks for a length and a dataset, which this loader has, too.
        sized: Any = self._train
        if self._is_iterable:
            if run.num_ranks > 1:
                _require_no_length(loader.dataset, reading)
            sized = PartOfRank(loader, 1 if reading.shards_itself else run.num_ranks)
        counted = trainer.set_initial_training_values(args, sized)
        num_epochs, self._steps_per_epoch, *_, num_batches, self._max_steps = counted
        self._num_batches_per_epoch = int(num_batches or 0)
        # without a length they are very many, of which each takes one step at least
        self._num_epochs = min(num_epochs, max(self._max_steps, math.ceil(args.num_train_epochs)))
        self._model, self._optimizer, self._scheduler = self._prepare()
        wrapped = self._model
        if not run.is_sharded:  # else `_prepare` has divided it
            wrapped = run.wrap(self._model, find_unused_parameters=True)
        self._replicas = Replicas(run, self._model, wrapped)
        trainer.model_wrapped = wrapped
        best: dict[str, Any] = {}
        if args.load_best_model_at_end:
            run.keep("best_weights", best)
        self._events = TrainerEvents(trainer, self._replicas, best)
        self._evaluation: TrainerEvaluation | None = None
        if places := self._places():
            self._evaluation = TrainerEvaluation(
                run, trainer, self._events, self._replicas, places, reading
            )
        trainer.callback_handler.train_dataloader = loader
        states = self._events.begin(self._max_steps, self._num_epochs)
        if self._events.is_heard:
            run.keep("callbacks", states)

    def epochs(self) -> Steps:
        progress = self._progress
        for epoch in self._run.epochs(self._num_epochs):
            self._epoch_number = epoch
            if self._was_stopped and self._trainer.args.max_steps <= 0:
                break  # a longer training ends where a callback stopped the shorter one
            if not (self._was_stopped or progress.get("has_begun")):
                yield from self._evaluate_on_start()
                self._continue()
                self._events.call("on_epoch_begin")
                progress["has_begun"] = True
            yield from self._epoch()
            if self._was_stopped:
                break
            if not progress["is_evaluating"]:  # else the epoch has ended
                self._events.call("on_epoch_end")
                self._events.agree()
                self._events.log()
            yield from self._evaluate("epoch")
            progress["has_begun"] = False
            if self._is_stopping:
                progress["ended"] = "" if self._is_over else "stopped"
                break
            missing = self._steps_per_epoch - self._steps_in_epoch
            progress["missing"] = progress.get("missing", 0) + missing
        progress["ended"] = progress.get("ended") or "length"
        self._events.end()
        end_model(self._trainer)

    def _epoch(self) -> Steps:
        args = self._trainer.args
        window: list[Any] = []
        for batch in self._train:
            if self._was_stopped or self._num_batches > self._num_batches_per_epoch:
                return  # as does the Trainer, where a dataset has more than its length
            if not self._progress["is_evaluating"]:  # else this batch has been trained
                window.append(batch)
                is_last = self._num_batches == self._num_batches_per_epoch
                if len(window) < args.gradient_accumulation_steps and not is_last:
                    continue
                metrics = self._step(window)
                window = []
                yield metrics
            yield from self._evaluate("step")
            if self._is_stopping or self._trainer.control.should_epoch_stop:
                return
        if window:
            self._hold(window)

    def _hold(self, window: list[Any]) -> None:
        """Hold the gradients of a window that an iterable dataset has ended, as the Trainer does.

        The first window of the next epoch adds to them.
        """
        self._accumulate(window)
        self._progress["is_holding"] = True
        self._events.end_substep()

    def _places(self) -> list[str]:
        """Return where it may be evaluated: callbacks may ask for it after any step or epoch."""
        trainer = self._trainer
        usual = {"epoch": "epoch", "steps": "step"}.get(trainer.args.eval_strategy, "")
        further = [each for each in ("step", "epoch") if each != usual]
        if trainer.eval_dataset is None or not self._events.is_heard:
            further = []
        on_start = ["start"] if trainer.args.eval_on_start else []
        return [*([usual] if usual else []), *further, *on_start]

    @property
    def _was_stopped(self) -> bool:
        """Whether a callback has ended the training, before this attempt."""
        return self._progress.get("ended") == "stopped"

    @property
    def _is_stopping(self) -> bool:
        return self._is_over or bool(self._trainer.control.should_training_stop)

    def _continue(self) -> None:
        """Let a longer training continue where the length has ended the shorter one."""
        if self._progress.get("ended"):
            self._progress["ended"] = ""
            self._events.continue_training()

    @property
    def _is_over(self) -> bool:
        return self._num_steps >= self._max_steps

    @property
    def _num_batches(self) -> int:
        """Batches of the epoch that each rank has trained on."""
        return self._train.num_taken

    @property
    def _num_steps(self) -> int:
        """Optimizer steps so far; without max_steps, as many as lead here with these ranks."""
        if self._trainer.args.max_steps > 0 or self._is_iterable:
            return int(self._progress["step"])
        before = self._epoch_number * self._steps_per_epoch - self._progress.get("missing", 0)
        return int(before) + self._steps_in_epoch

    @property
    def _steps_in_epoch(self) -> int:
        return math.ceil(self._num_batches / self._trainer.args.gradient_accumulation_steps)

    def _step(self, window: list[Any]) -> Yielded:
        """Take an optimizer step, in the order of Trainer.train."""
        trainer, model, events = self._trainer, self._model, self._events
        self._continue()
        loss = self._accumulate(window)
        norm, rate = self._clip(), self._trainer._get_learning_rate()
        events.call("on_pre_optimizer_step")
        self._optimizer.step()
        events.call("on_optimizer_step")
        self._follow_ranks()
        was_skipped = trainer.accelerator.optimizer_step_was_skipped
        if not (was_skipped or isinstance(self._scheduler, ON_METRICS)):
            self._scheduler.step()
        model.zero_grad()
        self._progress |= {"step": self._progress["step"] + 1, "has_begun": True}
        self._progress["is_holding"] = False
        self._locate()
        events.note_step(norm, rate)
        events.call("on_step_end")
        events.agree()
        events.log()
        return {"train_loss": loss, "learning_rate": rate}

    def _locate(self) -> None:
        """Tell the Trainer its place: a resume may continue within an evaluation."""
        self._trainer.state.global_step = self._num_steps
        self._trainer.state.epoch = (
            self._epoch_number + self._num_batches / self._num_batches_per_epoch
        )

    def _clip(self) -> float | Tensor | None:
        """Clip the gradients; return their norm, if it is limited or logged."""
        accelerator, limit = self._trainer.accelerator, self._trainer.args.max_grad_norm
        parameters = self._model.parameters()
        if limit > 0:
            norm = whole(accelerator.clip_grad_norm_(parameters, limit))
            self._run.check_norm(norm, is_scaled=accelerator.scaler is not None)
            return norm
        if self._events.is_heard:
            return whole(accelerator.clip_grad_norm_(parameters, math.inf))
        return None

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
        self._events.call("on_step_begin")
        for number, (batch, divisor) in enumerate(zip(batches, divisors, strict=True), start=1):
            trainer.current_gradient_accumulation_steps = divisor  # type: ignore[assignment]
            with replicas.reducing(is_last=number == len(batches)):
                losses.append(trainer.training_step(replicas.step, batch, num_items))
            self._events.add_loss(losses[-1])
            if number < len(batches):
                self._events.end_substep()
        return sum(losses[1:], losses[0])

    def _follow_ranks(self) -> None:
        """Let a schedule whose length is that of the epochs continue at this place of them."""
        if self._progress.get("num_ranks", 1) != self._run.num_ranks:
            is_by_length = not isinstance(self._scheduler, ON_METRICS)
            if self._trainer.args.max_steps <= 0 and is_by_length:
                self._scheduler.last_epoch = self._num_steps - 1
            self._progress["num_ranks"] = self._run.num_ranks

    def _evaluate(self, place: str) -> Steps:
        """Evaluate, where that is due or has been interrupted; then perhaps save."""
        is_due = self._trainer.control.should_evaluate
        if self._progress["is_evaluating"] or is_due:
            metrics = yield from self._evaluated(place)
            self._events.save()
            yield metrics
        else:
            self._events.save()

    def _evaluate_on_start(self) -> Steps:
        """Evaluate before the first step; neither schedulers nor the best weights follow it."""
        evaluation = self._evaluation
        if evaluation is None or not self._trainer.args.eval_on_start or self._progress["step"]:
            return
        self._replicas.share_buffers()
        metrics = yield from evaluation.batches(self._model, "start")
        yield metrics

    def _evaluated(self, place: str) -> Generator[Yielded, None, Yielded]:
        progress = self._progress
        if self._evaluation is None:
            problem = "a callback asks for an evaluation, but the Trainer has no eval_dataset"
            raise InputError({"recipe": f"{problem}; allowed: a Trainer with an eval_dataset"})
        progress["is_evaluating"] = True
        self._locate()
        self._replicas.share_buffers()
        metrics = yield from self._evaluation.batches(self._model, place)
        if isinstance(self._scheduler, ON_METRICS):
            self._scheduler.step(self._events.monitored(metrics))
        self._events.compare(metrics)
        self._events.agree()
        progress["is_evaluating"] = self._trainer.control.should_evaluate = False
        return metrics

    def _prepare(self) -> tuple[nn.Module, AcceleratedOptimizer, LRScheduler]:
        """Create, prepare by Accelerate and keep what changes."""
        run, trainer, max_steps = self._run, self._trainer, self._max_steps
        # else the kernels of a compiled model depend on the shapes seen before
        trainer.accelerator.state.dynamo_plugin.dynamic = False
        if run.is_sharded:
            run.wrap(cast(nn.Module, trainer.model))  # before the optimizer is made
        model, optimizer = trainer.accelerator.prepare(trainer.model, trainer.create_optimizer())
        trainer.optimizer = optimizer
        scheduler = trainer.create_scheduler(num_training_steps=max_steps)
        trainer.is_in_train = True
        handler = trainer.callback_handler
        handler.model, handler.optimizer, handler.lr_scheduler = trainer.model, optimizer, scheduler
        run.keep("model", trainer.model)
        run.keep("optimizer", optimizer.optimizer)
        run.keep("scheduler", scheduler)
        if self._is_iterable:
            progress = self._progress  # not `self`, in which random generators are looked for
            own = trainer.accelerator.unwrap_model(model, keep_torch_compile=False)
            run.keep("gradients", Gradients(own, lambda: bool(progress.get("is_holding"))))
        if trainer.accelerator.scaler is not None:
            run.keep("scaler", trainer.accelerator.scaler)
        return model, optimizer, scheduler
