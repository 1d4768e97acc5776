"""What `ranked_lit` trains, by Lightning's own Trainer with DistributedDataParallel."""

import os
import warnings
from pathlib import Path

import lightning.pytorch as lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import distributed
from torch.nn import functional
from torch.utils.data import DataLoader

from tests.loop.lit_module import Data
from tests.ranks.lit import Parameters
from tests.ranks.lit_module import ShardedData, TwoLoaders, make
from trainops.runtime import rank_state, reproducibility
from trainops.runtime.ranks import Devices

SEED = 7
OWN = ("module", "scheduler", "batch_size", "fault", "damaged", "skip_undecodable", "iterable")


class Divided(Data):
    """The batches of each rank, as trainops divides them."""

    def loader(self, dataset):
        whole = torch.arange(len(dataset)).split(self.hparams.batch_size)
        rank, num_ranks = distributed.get_rank(), distributed.get_world_size()
        length = -(-len(whole) // num_ranks)
        own = [whole[(at * num_ranks + rank) % len(whole)].tolist() for at in range(length)]
        return DataLoader(dataset, batch_sampler=own, generator=torch.Generator())


class DividedTwo(Divided, TwoLoaders):
    pass


class SeedsRank(lightning.Callback):
    def on_train_epoch_start(self, trainer, module):
        if trainer.current_epoch == 0 and trainer.global_rank:
            rank_state.seed_rank(SEED, Devices(trainer.global_rank, trainer.world_size))


def train_all(rank, num_ranks, directory, settings):
    """Be one rank of all trainings; rank 0 saves their results by name."""
    os.environ["LOCAL_RANK"] = str(rank)
    for name, given in settings.items():
        result = train(Parameters.parse(given), num_ranks, f"{directory}/{rank}")
        if rank == 0:
            torch.save(result, Path(directory) / f"{name}.pt")


def train(parameters, num_ranks, root):
    given = parameters.model_dump()
    arguments = {n: v for n, v in given.items() if n not in OWN and v is not None}
    reproducibility.seed_all(SEED)
    module, _ = make(None, parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = lightning.Trainer(
            accelerator="cpu", devices=num_ranks, logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
            default_root_dir=root, use_distributed_sampler=False, callbacks=[SeedsRank()],
            strategy=DDPStrategy(find_unused_parameters=True), **arguments,
        )  # fmt: skip
        data = DividedTwo if parameters.module == "two" else Divided
        data = ShardedData if parameters.iterable else data
        trainer.fit(module, data(parameters.batch_size))
    data = trainer.datamodule
    held_out = {"val_loss": data.held_out.tensors}
    if parameters.module == "two":
        held_out["val_far"] = data.far().dataset.tensors
    is_half = parameters.precision == "bf16-mixed"
    losses = {}
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=is_half):
        # the Trainer's own mean divides by the mean batch size, rounded down
        for name, (inputs, targets) in held_out.items():
            losses[name] = float(functional.mse_loss(module.eval()(inputs).float(), targets))
    states = [each.state_dict()["state"] for each in trainer.optimizers]
    return {"model": module.state_dict(), "optimizers": states, "losses": losses}
