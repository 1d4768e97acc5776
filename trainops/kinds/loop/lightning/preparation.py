"""Before the first step: the loaders of a module, and what is kept of it."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.utilities.seed import isolate_rng
from torch import distributed
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from trainops.kinds.loop.lightning.attributes import (
    Attributes,
    Gradients,
    Modes,
    SavedByHooks,
)
from trainops.kinds.loop.lightning.requirements import overrides
from trainops.kinds.loop.metric_states import MetricStates
from trainops.kinds.loop.passes import Passes
from trainops.kinds.loop.run import Run
from trainops.runtime.errors import InputError


def keep_module(
    run: Run, module: LightningModule, data: LightningDataModule | None, progress: Mapping[str, Any]
) -> None:
    """Keep all state of the module and its DataModule but that of optimizers and schedulers."""
    run.keep("metrics", MetricStates(module))
    run.keep("model", module)
    run.keep("attributes", Attributes(module))
    run.keep("modes", Modes(module))
    is_manual = not module.automatic_optimization
    run.keep("gradients", Gradients(module, lambda: is_manual or bool(progress["is_gathering"])))
    if overrides(module, LightningModule, "on_save_checkpoint"):
        run.keep("saved_by_module", SavedByHooks(module, progress))
    if data is not None and overrides(data, LightningDataModule, "state_dict"):
        run.keep("data_module", data)


def loaders(
    run: Run, module: LightningModule, data: LightningDataModule | None
) -> tuple[Passes, Passes | None]:
    """Return the loaders of training and validation, after prepare_data and setup."""
    _prepare_data(run, [each for each in (data, module) if each is not None])
    for each in (data, module):
        if each is not None:
            each.setup("fit")
    module.configure_model()
    training, validation = (_loader(module, data, name) for name in ("train", "val"))
    if training is None:
        problem = f"{type(module).__name__} and its DataModule have no method train_dataloader"
        raise InputError({"recipe": problem})
    if validation is None or not overrides(module, LightningModule, "validation_step"):
        return follow(run, "train", training), None
    return follow(run, "train", training), follow(run, "validation", validation)


def _prepare_data(run: Run, parts: Sequence[LightningDataModule | LightningModule]) -> None:
    """Let rank 0 prepare the data for all, and its random streams stay those of the others."""
    if run.rank == 0:
        with isolate_rng() if run.num_ranks > 1 else nullcontext():
            for each in parts:
                each.prepare_data()
    if run.num_ranks > 1:
        distributed.barrier()


def _loader(module: LightningModule, data: LightningDataModule | None, name: str) -> object:
    method = f"{name}_dataloader"
    if data is not None and overrides(data, LightningDataModule, method):
        return getattr(data, method)()
    return getattr(module, method)() if overrides(module, LightningModule, method) else None


def follow(run: Run, name: str, loader: object) -> Passes:
    """Return a loader of the run. Raises InputError for what it cannot do, by its name."""
    if not isinstance(loader, DataLoader):
        problem = f"got a {type(loader).__name__} as the loader {name!r}"
        raise InputError({"recipe": f"{problem}; allowed: one DataLoader of torch"})
    if problem := _problem(loader):
        raise InputError({"recipe": f"the loader {name!r} has {problem}"})
    return run.loader(
        name,
        loader.dataset,
        batch_size=loader.batch_size or 1,
        shuffle=isinstance(loader.sampler, RandomSampler),
        drop_last=loader.drop_last,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
    )


def _problem(loader: DataLoader[Any]) -> str:
    sampler = loader.sampler
    if type(loader.batch_sampler) is not BatchSampler:
        return f"the batch sampler {type(loader.batch_sampler).__name__}; allowed: a batch size"
    if type(sampler) not in (SequentialSampler, RandomSampler):
        return f"the sampler {type(sampler).__name__}; allowed: shuffle, and none"
    is_whole = len(sampler) == len(loader.dataset)  # type: ignore[arg-type]
    if isinstance(sampler, RandomSampler) and (sampler.replacement or not is_whole):
        return "a RandomSampler with replacement or num_samples; allowed: shuffle"
    if loader.worker_init_fn is not None:
        return "a worker_init_fn; allowed: none, workers are seeded by trainops"
    return ""
