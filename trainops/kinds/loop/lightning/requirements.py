"""What a LightningModule must and must not have; refused before the first step by InputError."""

from collections.abc import Sequence

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from torch.optim import Optimizer

from trainops.kinds.loop.run import Run
from trainops.kinds.loop.trainer_settings import LightningParameters
from trainops.learning.optimizer_state import needs_closure
from trainops.runtime.errors import InputError

NOT_SUPPORTED = ("configure_sharded_model",)
BATCH_HOOKS = ("validation_step", "on_validation_batch_start", "on_validation_batch_end")
NOT_WITH_RANKS = ("SyncBatchNorm", "OptimizedModule")  # the latter is what torch.compile returns


def require_module(
    module: object, data: object, settings: LightningParameters, device: torch.device
) -> None:
    if not isinstance(module, LightningModule):
        problem = f"got a {type(module).__name__}"
        raise InputError({"recipe": f"{problem}; allowed: a lightning.pytorch.LightningModule"})
    if not isinstance(data, LightningDataModule | None):
        problem = f"got a {type(data).__name__} as the DataModule"
        raise InputError({"recipe": f"{problem}; allowed: a LightningDataModule"})
    _require_methods(module)
    if settings.precision == "16-mixed":
        _require_scaling(module, device)
    if not module.automatic_optimization:
        _require_manual(settings)


def _require_methods(module: LightningModule) -> None:
    name = type(module).__name__
    for needed in ("training_step", "configure_optimizers"):
        if not overrides(module, LightningModule, needed):
            raise InputError({"recipe": f"{name} has no method {needed}"})
    for method in NOT_SUPPORTED:
        if overrides(module, LightningModule, method):
            problem = f"{name} has the method {method}, which trainops does not call"
            raise InputError({"recipe": f"{problem}; allowed: modules without it"})


def _require_manual(settings: LightningParameters) -> None:
    for field, default in (("accumulate_grad_batches", 1), ("gradient_clip_val", None)):
        if (value := getattr(settings, field)) != default:
            problem = f"got {value} with manual optimization"
            raise InputError({f"parameters.{field}": f"{problem}; allowed: {default}"})


def _require_scaling(module: LightningModule, device: torch.device) -> None:
    problem = ""
    if device.type != "cuda":
        problem = f"got 16-mixed on {device.type}"
    elif not module.automatic_optimization:
        problem = "got 16-mixed with manual optimization"
    elif overrides(module, LightningModule, "optimizer_step"):
        problem = "got 16-mixed with a method optimizer_step"
    if problem:
        raise InputError({"parameters.precision": f"{problem}; allowed: 32-true, bf16-mixed"})


def require_loader_index(module: LightningModule, num_loaders: int) -> None:
    """Raise InputError unless the hooks of validation take the index of one of several loaders."""
    for name in BATCH_HOOKS if num_loaders > 1 else ():
        if not is_param_in_hook_signature(getattr(module, name), "dataloader_idx"):
            problem = f"val_dataloader returned {num_loaders} loaders, but {name} of "
            problem += f"{type(module).__name__} has no parameter dataloader_idx"
            allowed = f"{name}(..., dataloader_idx=0), or one loader"
            raise InputError({"recipe": f"{problem}; allowed: {allowed}"})


def require_ranks(run: Run, module: LightningModule, settings: LightningParameters) -> None:
    """Raise InputError for what several ranks cannot compute exactly."""
    if run.num_ranks == 1:
        return
    with_ranks = f"with {run.num_ranks} processes"
    for place, each in module.named_modules():
        if type(each).__name__ in NOT_WITH_RANKS:
            problem = f"the module has a {type(each).__name__} as {place!r} {with_ranks}"
            raise InputError({"recipe": f"{problem}; allowed: modules without it"})
    if run.is_sharded:
        _require_divisible(module, settings)
    interval, window = settings.val_check_interval, settings.accumulate_grad_batches
    if interval is not None and interval % window:
        problem = f"got {interval} with accumulate_grad_batches {window} {with_ranks}"
        raise InputError(
            {"parameters.val_check_interval": f"{problem}; allowed: multiples of {window}"}
        )


def _require_divisible(module: LightningModule, settings: LightningParameters) -> None:
    """Raise InputError for what a module that is divided over the ranks cannot have."""
    if not module.automatic_optimization:
        problem = "got full with manual optimization"
        raise InputError({"sharding": f"{problem}; allowed: none, or automatic optimization"})
    if settings.precision == "16-mixed":
        problem = "got 16-mixed with sharding: full"
        raise InputError({"parameters.precision": f"{problem}; allowed: 32-true, bf16-mixed"})


def require_optimizers(run: Run, module: LightningModule, optimizers: Sequence[Optimizer]) -> None:
    is_alone = module.automatic_optimization or run.num_ranks == 1
    if closing := [] if is_alone else [each for each in optimizers if needs_closure(each)]:
        problem = f"got {type(closing[0]).__name__} with manual optimization"
        allowed = "1, or automatic optimization"
        raise InputError({"processes": f"{problem}: got {run.num_ranks}; allowed: {allowed}"})
    if module.automatic_optimization and len(optimizers) > 1:
        problem = f"configure_optimizers returned {len(optimizers)} optimizers"
        allowed = "one, or several with automatic_optimization = False"
        raise InputError({"recipe": f"{problem}; allowed: {allowed}"})


def clips_by_norm(module: LightningModule, settings: LightningParameters) -> bool:
    """Whether gradients are clipped by norm, as far as that is known: a module may do it itself."""
    if not module.automatic_optimization:
        return True
    is_by_norm = settings.gradient_clip_algorithm == "norm"
    is_clipped = settings.gradient_clip_val is not None and is_by_norm
    return is_clipped or overrides(module, LightningModule, "configure_gradient_clipping")


def overrides(thing: object, base: type, name: str) -> bool:
    return name in vars(thing) or getattr(type(thing), name, None) is not getattr(base, name)
