"""Before the first step: the loaders of a module, and what is kept of it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Literal, get_args

from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from lightning.pytorch.utilities.seed import isolate_rng
from torch import distributed
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from trainops.kinds.loop.combined import Mode
from trainops.kinds.loop.gradients import Gradients
from trainops.kinds.loop.lightning.attributes import Attributes, Modes, SavedByHooks
from trainops.kinds.loop.lightning.callbacks import LightningHooks
from trainops.kinds.loop.lightning.loaders import Loaders
from trainops.kinds.loop.lightning.requirements import overrides, require_loader_index
from trainops.kinds.loop.metric_states import MetricStates
from trainops.kinds.loop.passes import Passes
from trainops.kinds.loop.reading import Reading
from trainops.kinds.loop.run import Run
from trainops.kinds.loop.samplers import function_of, options_of
from trainops.kinds.loop.trainer_settings import LightningParameters
from trainops.runtime.errors import InputError


def keep_module(
    run: Run, module: LightningModule, data: LightningDataModule | None, progress: Mapping[str, Any]
) -> Attributes:
    """Keep all state of the module and its DataModule but that of optimizers and schedulers.

    Return what begins after the hooks that each attempt calls.
    """
    run.keep("metrics", MetricStates(module))
    run.keep("model", module)
    attributes = run.keep("attributes", Attributes(module))
    run.keep("modes", Modes(module))
    is_manual = not module.automatic_optimization
    run.keep("gradients", Gradients(module, lambda: is_manual or bool(progress["is_gathering"])))
    if overrides(module, LightningModule, "on_save_checkpoint"):
        run.keep("saved_by_module", SavedByHooks(module, progress))
    if data is not None and overrides(data, LightningDataModule, "state_dict"):
        run.keep("data_module", data)
    return attributes


def loaders(
    run: Run,
    module: LightningModule,
    data: LightningDataModule | None,
    hooks: LightningHooks,
    settings: LightningParameters,
    reading: Reading,
) -> Loaders:
    """Return the loader of training and those of validation, after prepare_data and setup."""
    _prepare_data(run, [each for each in (data, module) if each is not None])
    if data is not None:
        data.setup("fit")
    hooks.of_callbacks("setup", stage="fit")
    module.setup("fit")
    module.configure_model()
    training, validation = (_loader(module, data, name) for name in ("train", "val"))
    if training is None:
        problem = f"{type(module).__name__} and its DataModule have no method train_dataloader"
        raise InputError({"recipe": problem})
    if _is_collection(training):
        train = _combine(run, "train", training, "max_size_cycle", reading)  # as in Lightning
    else:
        train = follow(run, "train", training, reading)
    train.limit_to(settings.limit_train_batches)
    is_validated = overrides(module, LightningModule, "validation_step")
    if validation is None or settings.limit_val_batches == 0 or not is_validated:
        return Loaders(train, [], training, None)
    several = _flat(validation)
    require_loader_index(module, len(several))
    names = [f"validation_{number}" if number else "validation" for number in range(len(several))]
    validations = [follow(run, *each, reading) for each in zip(names, several, strict=True)]
    for each in validations:
        each.limit_to(settings.limit_val_batches)
    return Loaders(train, validations, training, validation)


def _flat(given: Any) -> list[Any]:
    """Return the loaders of a validation, which are validated one after the other."""
    if isinstance(given, CombinedLoader) and given._mode == "sequential":
        given = given.flattened
    return _leaves(given)


def _is_collection(given: object) -> bool:
    return isinstance(given, Mapping | list | tuple)


def _leaves(given: Any) -> list[Any]:
    """Return what stands in mappings, lists and tuples, in their order."""
    if not _is_collection(given):
        return [given]
    parts = given.values() if isinstance(given, Mapping) else given
    return [leaf for each in parts for leaf in _leaves(each)]


def _arranged(like: Any, leaves: Iterator[Any]) -> Any:
    """Return mappings, lists and tuples like these with other leaves."""
    if isinstance(like, Mapping):
        return {name: _arranged(each, leaves) for name, each in like.items()}
    if isinstance(like, tuple) and hasattr(like, "_fields"):
        return type(like)(*(_arranged(each, leaves) for each in like))
    if isinstance(like, list | tuple):
        return type(like)(_arranged(each, leaves) for each in like)
    return next(leaves)


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


def follow(run: Run, name: str, loader: object, reading: Reading) -> Passes:
    """Return a loader of the run. Raises InputError for what it cannot do, by its name."""
    if isinstance(loader, CombinedLoader):
        return _combine(run, name, loader.iterables, loader._mode, reading)
    if not isinstance(loader, DataLoader):
        problem = f"got a {type(loader).__name__} as the loader {name!r}"
        allowed = "DataLoaders of torch, and a CombinedLoader of them"
        raise InputError({"recipe": f"{problem}; allowed: {allowed}"})
    options: dict[str, Any] = {
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "persistent_workers": loader.persistent_workers,
        "collate_fn": loader.collate_fn,
        "pin_memory": loader.pin_memory,
        "timeout": loader.timeout,
        "worker_init_fn": loader.worker_init_fn,
        **reading.options(name, loader.dataset),
    }
    if isinstance(loader.dataset, IterableDataset):
        options |= {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
        followed = run.loader(name, loader.dataset, **options)
        followed.look_ahead()
        return followed
    followed = run.loader(name, loader.dataset, **_order(name, loader), **options)
    followed.has_batch_sampler = loader.batch_size is None
    return followed


def _order(name: str, loader: DataLoader[Any]) -> dict[str, Any]:
    """Return arguments of `Run.loader` for the order and the size of the batches."""
    num_examples, batches = len(loader.dataset), loader.batch_sampler  # type: ignore[arg-type]
    if batches is None:
        problem = f"the loader {name!r} has batch_size=None"
        raise InputError({"recipe": f"{problem}; allowed: a batch size, or a batch sampler"})
    if isinstance(batches, BatchSampler) and type(batches) is BatchSampler:
        of_sampler = options_of(name, batches.sampler, num_examples)
        return {"batch_size": batches.batch_size, "drop_last": batches.drop_last, **of_sampler}
    return {"batch_sampler": function_of(name, batches, num_examples)}


def _combine(
    run: Run,
    name: str,
    loaders: Any,
    mode: Mode | Literal["sequential"],
    reading: Reading,
) -> Passes:
    """Return one loop over batches of these loaders, in the structure that the loaders stand in."""
    if mode == "sequential":
        problem = f"train_dataloader returned a CombinedLoader with mode={mode!r}"
        raise InputError({"recipe": f"{problem}; allowed: {', '.join(get_args(Mode))}"})
    if run.num_ranks > 1 and name != "train":
        problem = f"the validation has a CombinedLoader with mode={mode!r}"
        allowed = "with several processes, mode='sequential', or a list of loaders"
        raise InputError({"recipe": f"{problem}; allowed: {allowed}"})
    parts = [
        follow(run, f"{name}_{number}", each, reading)
        for number, each in enumerate(_leaves(loaders))
    ]
    combined = run.combine(name, parts, mode, lambda batches: _arranged(loaders, iter(batches)))
    combined.has_batch_sampler = any(each.has_batch_sampler for each in parts)
    return combined
