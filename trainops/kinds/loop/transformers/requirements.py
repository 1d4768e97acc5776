"""What of a Hugging Face Trainer is not driven; refused before the first step by InputError."""

from collections.abc import Callable, Mapping

import torch
from torch.utils.data import IterableDataset
from transformers import (
    DefaultFlowCallback,
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainingArguments,
)

from trainops.runtime.errors import InputError

IGNORED_CALLBACKS = (DefaultFlowCallback, PrinterCallback, ProgressCallback)
OWN_METHODS = (
    "train", "evaluate", "evaluation_loop", "get_train_dataloader", "_get_train_sampler",
    "_inner_training_loop", "get_batch_samples",
)  # fmt: skip
# Arguments that change the training and are not followed: the values that are.
FOLLOWED: Mapping[str, Callable[[object], bool]] = {
    "train_sampling_strategy": lambda each: each in ("random", "sequential"),
    "lr_scheduler_type": lambda each: each not in ("reduce_lr_on_plateau", "greedy"),
    "load_best_model_at_end": lambda each: not each,
    "auto_find_batch_size": lambda each: not each,
    "batch_eval_metrics": lambda each: not each,
    "include_for_metrics": lambda each: not each,
    "neftune_noise_alpha": lambda each: each is None,
    "torch_compile": lambda each: not each,
    "deepspeed": lambda each: not each,
    "fsdp": lambda each: not each,
    "bf16_full_eval": lambda each: not each,
    "fp16_full_eval": lambda each: not each,
    "eval_delay": lambda each: not each,
    "eval_on_start": lambda each: not each,
}


def require_trainer(trainer: object, device: torch.device) -> None:
    if not isinstance(trainer, Trainer):
        problem = f"got a {type(trainer).__name__}; allowed: a transformers.Trainer"
        raise InputError({"recipe": problem})
    for name in OWN_METHODS:
        if getattr(type(trainer), name) is not getattr(Trainer, name):
            problem = f"{type(trainer).__name__} has its own method {name}"
            allowed = "compute_loss, training_step, prediction_step, create_optimizer"
            raise InputError({"recipe": f"{problem}; allowed to override: {allowed}"})
    for callback in trainer.callback_handler.callbacks:
        if type(callback) not in IGNORED_CALLBACKS:
            problem = f"got the callback {type(callback).__name__}, which is not called"
            raise InputError({"recipe": f"{problem}; allowed: none, and report_to='none'"})
    _require_arguments(trainer.args, device)
    _require_datasets(trainer)


def _require_arguments(args: TrainingArguments, device: torch.device) -> None:
    for name, is_followed in FOLLOWED.items():
        value = getattr(args, name, None)
        if value is not None and not is_followed(value):
            problem = f"TrainingArguments has {name}={value!r}"
            raise InputError({"recipe": f"{problem}, which is not supported; leave it out"})
    if args.device.type != device.type or args.n_gpu > 1:
        problem = f"the Trainer uses {args.n_gpu or 'no'} GPU, the operation {device.type}"
        allowed = "TrainingArguments(use_cpu=run.device.type == 'cpu')"
        raise InputError({"recipe": f"{problem}; allowed: {allowed}, and one GPU"})


def _require_datasets(trainer: Trainer) -> None:
    given = {"train_dataset": trainer.train_dataset}
    if trainer.args.eval_strategy != "no":
        given["eval_dataset"] = trainer.eval_dataset
    for name, dataset in given.items():
        if dataset is None or isinstance(dataset, IterableDataset | Mapping):
            problem = f"got a {type(dataset).__name__} as {name}"
            raise InputError({"recipe": f"{problem}; allowed: one map-style dataset"})
