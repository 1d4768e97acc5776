"""What `ranked_hugging` trains, by Trainer.train() in processes as torchrun starts them."""

import os
from pathlib import Path

import torch

from tests.loop.hugging import Parameters
from tests.loop.hugging_trainer import make
from trainops.runtime import reproducibility

SEED = 7  # that of the tests


def train_all(rank, num_ranks, directory, cases, kinds):
    """Be one rank of all trainings; rank 0 saves models and evaluations by name.

    `kinds`: of the datasets that are iterable, by name.
    """
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0",  # required, not used
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(num_ranks),
        "OMP_NUM_THREADS": "1",  # else Accelerate sets a number
    }  # fmt: skip
    for name, arguments in cases.items():
        reproducibility.seed_all(SEED)
        given = {"dropout": 0.0, "arguments": arguments | {"ddp_backend": "gloo"}}
        given["iterable"] = kinds.get(name, "")
        trainer = make(None, Parameters.parse(given))
        assert trainer.args.world_size == num_ranks
        trainer.train()
        evaluated = [each for each in trainer.state.log_history if "eval_loss" in each]
        if rank == 0:
            found = {"model": trainer.model.state_dict(), "evaluated": evaluated}
            torch.save(found, Path(directory) / f"{name}.pt")
