"""What a module must offer; everything else is refused before the first step, by InputError."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, islice

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from trainops.kinds.loop.batches import MapBatches
from trainops.kinds.loop.module.base import TrainingModule
from trainops.kinds.loop.module.optimization import Schedule
from trainops.kinds.loop.passes import Passes
from trainops.kinds.loop.run import Run
from trainops.kinds.loop.settings import ModuleParameters
from trainops.kinds.loop.streams import StreamBatches
from trainops.learning.optimizer_state import needs_closure
from trainops.runtime.errors import InputError

ONLY = "optimizer"  # the name where there is one
MAX_NAMED = 20  # names in a message


def require_precision(parameters: ModuleParameters, device: torch.device) -> None:
    if parameters.precision == "fp16" and device.type != "cuda":
        problem = f"got fp16 on {device.type}; allowed: fp16 on GPUs; fp32 and bf16 anywhere"
        raise InputError({"parameters.precision": problem})


def require_ranks(run: Run, validation: Passes | None, parameters: ModuleParameters) -> None:
    """Raise InputError for what several ranks cannot compute exactly."""
    if run.num_ranks == 1:
        return
    with_ranks = f"with {run.num_ranks} processes"
    if parameters.compile:
        problem = f"got true {with_ranks}"
        raise InputError({"parameters.compile": f"{problem}; allowed: false"})
    if validation is not None and not isinstance(validation.source, MapBatches | StreamBatches):
        problem = f"got several loaders as the loader 'validation' {with_ranks}"
        raise InputError({"recipe": f"{problem}; allowed: one loader"})


def require_divisible(module: TrainingModule, parameters: ModuleParameters) -> None:
    """Raise InputError for what a module that is divided over the ranks cannot have."""
    with_sharding = "with sharding: full"
    if parameters.ema_decay is not None:
        problem = f"got {parameters.ema_decay} {with_sharding}"
        raise InputError({"parameters.ema_decay": f"{problem}; allowed: nothing"})
    if parameters.precision == "fp16":
        problem = f"got fp16 {with_sharding}"
        raise InputError({"parameters.precision": f"{problem}; allowed: fp32, bf16"})
    for epoch in range(parameters.epochs):
        if frozen := module.frozen(epoch):
            problem = f"frozen({epoch}) names {', '.join(map(repr, frozen))} {with_sharding}"
            raise InputError({"recipe": f"{problem}; allowed: nothing"})


def require_methods(module: object) -> None:
    if not isinstance(module, TrainingModule):
        problem = f"got a {type(module).__name__}; allowed: a TrainingModule"
        raise InputError({"recipe": problem})
    for name in ("loaders", "optimizers", "training_step"):
        own = getattr(type(module), name, None)
        if not callable(own) or own is getattr(TrainingModule, name, None):
            raise InputError({"recipe": f"{type(module).__name__} has no method {name}"})


def require_loaders(loaders: object, parameters: ModuleParameters) -> tuple[Passes, Passes | None]:
    """Return the loader "train", and "validation" if there is one."""
    if not isinstance(loaders, Mapping):
        problem = f"loaders() returned a {type(loaders).__name__}"
        raise InputError({"recipe": f"{problem}; allowed: a dict with train, and validation"})
    names = set(loaders)
    if "train" not in names or names - {"train", "validation"}:
        problem = f"got the loaders {', '.join(sorted(names)) or 'none'}"
        raise InputError({"recipe": f"{problem}; allowed: train, and validation"})
    for name, each in loaders.items():
        _require_passes(name, each)
    if "validation" not in names:
        for field in ("patience", "validate_every_steps"):
            if (value := getattr(parameters, field)) is not None:
                problem = f"got {value}, but the module has no loader validation"
                raise InputError({f"parameters.{field}": f"{problem}; allowed: nothing"})
    return loaders["train"], loaders.get("validation")


def _require_passes(name: str, loader: object) -> None:
    if not isinstance(loader, Passes):
        problem = f"got a {type(loader).__name__} as the loader {name!r}"
        raise InputError({"recipe": f"{problem}; allowed: what run.loader returns"})


def require_optimizers(made: object, parameters: ModuleParameters) -> dict[str, Optimizer]:
    """Return the optimizers by name."""
    if not isinstance(made, Optimizer | Mapping):
        problem = f"optimizers() returned a {type(made).__name__}"
        allowed = "an optimizer of torch, or a dict of several by name"
        raise InputError({"recipe": f"{problem}; allowed: {allowed}"})
    optimizers = {ONLY: made} if isinstance(made, Optimizer) else dict(made)
    if not optimizers or not all(isinstance(each, Optimizer) for each in optimizers.values()):
        kinds = ", ".join(type(each).__name__ for each in optimizers.values()) or "none"
        raise InputError({"recipe": f"got the optimizers {kinds}; allowed: at least one of torch"})
    for (one, first), (other, second) in combinations(optimizers.items(), 2):
        if set(parameters_of(first)) & set(parameters_of(second)):
            problem = f"the optimizers {one!r} and {other!r} share parameters"
            raise InputError({"recipe": f"{problem}; allowed: each parameter in one optimizer"})
    if parameters.precision == "fp16":
        for name, each in optimizers.items():
            if needs_closure(each):
                problem = f"got fp16 with {type(each).__name__} as {name!r}"
                raise InputError({"parameters.precision": f"{problem}; allowed: fp32, bf16"})
    return optimizers


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    return [each for group in optimizer.param_groups for each in group["params"]]


def require_turns(
    given: Sequence[str], step: int, optimizers: Mapping[str, Optimizer]
) -> tuple[str, ...]:
    """Return the names of the optimizers that step."""
    return _require_names(f"turns({step})", given, optimizers)


def require_frozen(given: Sequence[str], epoch: int, module: nn.Module) -> tuple[str, ...]:
    """Return the names of the parts of the module that are frozen."""
    known: dict[str, None] = {}
    for place, each in module.named_modules(remove_duplicate=False):
        of_part = [name for name, _ in each.named_parameters(place, recurse=False)]
        known |= dict.fromkeys([*([place] if place else []), *of_part])
    return _require_names(f"frozen({epoch})", given, known)


def _require_names(what: str, given: object, known: Mapping[str, object]) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        problem = f"{what} returned the {type(given).__name__} {given!r:.60}"
        example = [given] if given in known else [next(iter(known), "")]
        raise InputError({"recipe": f"{problem}; allowed: a list of names, such as {example}"})
    names = tuple(given)
    if unknown := [each for each in names if not (isinstance(each, str) and each in known)]:
        problem = f"{what} names {', '.join(map(repr, unknown))}"
        further = f" and {len(known) - MAX_NAMED} more" if len(known) > MAX_NAMED else ""
        allowed = ", ".join(islice(known, MAX_NAMED)) + further
        raise InputError({"recipe": f"{problem}; allowed: {allowed}"})
    return names


def require_schedules(
    schedules: Sequence[Schedule], optimizers: Mapping[str, Optimizer], *, has_validation: bool
) -> None:
    for each in schedules:
        _require_schedule(each)
        name = type(each.scheduler).__name__
        if isinstance(each.scheduler, ReduceLROnPlateau) != (each.interval == "validation"):
            problem = f"got the interval {each.interval!r} for {name}"
            allowed = "validation for ReduceLROnPlateau; step and epoch for others"
            raise InputError({"recipe": f"{problem}; allowed: {allowed}"})
        if each.interval == "validation" and not has_validation:
            problem = f"got {name}, but the module has no loader validation"
            raise InputError({"recipe": f"{problem}; allowed: schedules by step and epoch"})
        if each.scheduler.optimizer not in optimizers.values():
            problem = f"the optimizer of {name} is not among those of the module"
            raise InputError({"recipe": f"{problem}; allowed: {', '.join(optimizers)}"})


def _require_schedule(given: object) -> None:
    if not (isinstance(given, Schedule) and isinstance(given.scheduler, LRScheduler)):
        problem = f"got a {type(given).__name__} as a schedule"
        raise InputError({"recipe": f"{problem}; allowed: Schedule(scheduler, interval)"})
