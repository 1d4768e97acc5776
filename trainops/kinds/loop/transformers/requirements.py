"""What of a Hugging Face Trainer is not driven; refused before the first step by InputError."""

import operator
from collections.abc import Callable, Mapping
from typing import Any

from transformers import EarlyStoppingCallback, Trainer, TrainingArguments

from trainops.kinds.loop.run import Run
from trainops.kinds.loop.transformers.events import own_callbacks
from trainops.runtime.errors import InputError

REPORTING = "transformers.integrations"  # the package of callbacks of other services
OWN_METHODS = (
    "train", "evaluate", "evaluation_loop", "get_train_dataloader",
    "_inner_training_loop", "get_batch_samples",
)  # fmt: skip
SHARDED = "sharding: full in the config of the operation"
# Arguments that change the training and are not followed: the values that are, and what to use.
FOLLOWED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "train_sampling_strategy": (
        lambda each: each in ("random", "sequential", "group_by_length"),
        "random, sequential, group_by_length",
    ),
    "auto_find_batch_size": (
        operator.not_, "per_device_train_batch_size with gradient_accumulation_steps"
    ),
    "batch_eval_metrics": (
        operator.not_, "compute_metrics of all predictions, with preprocess_logits_for_metrics"
    ),
    "eval_do_concat_batches": (bool, "True, with which compute_metrics gets one array"),
    "deepspeed": (operator.not_, SHARDED),
    "fsdp": (operator.not_, SHARDED),
}  # fmt: skip


def require_trainer(trainer: object, run: Run) -> None:
    if not isinstance(trainer, Trainer):
        problem = f"got a {type(trainer).__name__}; allowed: a transformers.Trainer"
        raise InputError({"recipe": problem})
    for name in OWN_METHODS:
        if getattr(type(trainer), name) is not getattr(Trainer, name):
            problem = f"{type(trainer).__name__} has its own method {name}"
            allowed = "compute_loss, training_step, prediction_step, create_optimizer"
            raise InputError({"recipe": f"{problem}; allowed to override: {allowed}"})
    for callback in own_callbacks(trainer):
        if type(callback).__module__.startswith(REPORTING):
            problem = f"got the callback {type(callback).__name__}, which is not called"
            allowed = "report_to='none', and TrainerCallbacks of your own"
            raise InputError({"recipe": f"{problem}; allowed: {allowed}"})
        _require_stopping(trainer, callback)
    _require_arguments(trainer.args, run)
    _require_datasets(trainer)


def _require_stopping(trainer: Trainer, callback: object) -> None:
    """Raise InputError for an early stopping that has no metric or no evaluations."""
    args = trainer.args
    if not isinstance(callback, EarlyStoppingCallback):
        return
    for name, lacks in (
        ("metric_for_best_model", args.metric_for_best_model is None),
        ("eval_strategy", args.eval_strategy == "no"),
    ):
        if lacks:
            problem = f"got {name}={getattr(args, name)!s} with {type(callback).__name__}"
            allowed = {"eval_strategy": "steps, epoch"}.get(name, "the name of a metric")
            raise InputError({"recipe": f"{problem}; allowed: {allowed}"})


def _require_arguments(args: TrainingArguments, run: Run) -> None:
    for name, (is_followed, allowed) in FOLLOWED.items():
        value = getattr(args, name, None)
        if value is not None and not is_followed(value):
            problem = f"TrainingArguments has {name}={value!r}"
            raise InputError({"recipe": f"{problem}; allowed: {allowed}"})
    if args.torch_compile and run.num_ranks > 1:
        problem = f"TrainingArguments has torch_compile=True with {run.num_ranks} processes"
        raise InputError({"recipe": f"{problem}; allowed: False, or one process"})
    if run.is_sharded:
        _require_divisible(args)
    if args.device.type != run.device.type or args.n_gpu > 1:
        problem = f"the Trainer uses {args.n_gpu or 'no'} GPU, the operation {run.device.type}"
        allowed = "TrainingArguments(use_cpu=run.device.type == 'cpu')"
        raise InputError({"recipe": f"{problem}; allowed: {allowed}, and one GPU"})


def _require_divisible(args: TrainingArguments) -> None:
    """Raise InputError for what a model that is divided over the ranks cannot have."""
    for name in ("load_best_model_at_end", "fp16"):
        if getattr(args, name):
            problem = f"TrainingArguments has {name}=True with sharding: full"
            raise InputError({"recipe": f"{problem}; allowed: False"})


def _require_datasets(trainer: Trainer) -> None:
    given = {"train_dataset": trainer.train_dataset}
    is_asked = own_callbacks(trainer) and trainer.eval_dataset is not None
    if trainer.args.eval_strategy != "no" or trainer.args.eval_on_start or is_asked:
        given["eval_dataset"] = trainer.eval_dataset
    if isinstance(several := given.get("eval_dataset"), dict):
        given |= {f"eval_dataset[{name!r}]": each for name, each in several.items()}
        del given["eval_dataset"]
    for name, dataset in given.items():
        if dataset is None or isinstance(dataset, Mapping):
            problem = f"got a {type(dataset).__name__} as {name}"
            allowed = "a dataset"
            allowed += "" if name == "train_dataset" else ", or a dict of them by name"
            raise InputError({"recipe": f"{problem}; allowed: {allowed}"})
