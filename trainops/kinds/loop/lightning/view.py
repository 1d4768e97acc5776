"""What a LightningModule sees as its trainer."""

from collections.abc import Mapping
from typing import Any, NoReturn

from lightning.pytorch import LightningDataModule, LightningModule
from torch import Tensor
from torch.optim import Optimizer

from trainops.kinds.loop.lightning.logged import Logged
from trainops.kinds.loop.lightning.optimizers import LRSchedulerConfig
from trainops.kinds.loop.passes import Passes
from trainops.kinds.loop.replicas import Reductions
from trainops.kinds.loop.trainer_settings import LightningParameters


class TrainerView:
    """The attributes of Lightning's Trainer that modules read. Setting should_stop stops."""

    logger = None
    barebones = False
    sanity_checking = False
    testing = predicting = False
    node_rank, num_nodes = 0, 1
    max_steps = -1
    progress_bar_callback = None

    def __init__(
        self,
        settings: LightningParameters,
        progress: dict[str, Any],
        logged: Logged,
        module: LightningModule,
        datamodule: LightningDataModule | None,
        reductions: Reductions,
    ) -> None:
        self.global_rank = self.local_rank = reductions.rank
        self.world_size = self.num_devices = reductions.num_ranks
        self.is_global_zero = reductions.rank == 0
        self._progress, self._logged = progress, logged
        self.model = self.lightning_module = module
        self.datamodule = datamodule
        self.max_epochs = settings.max_epochs
        self.accumulate_grad_batches = settings.accumulate_grad_batches
        self.gradient_clip_val = settings.gradient_clip_val
        self.gradient_clip_algorithm = settings.gradient_clip_algorithm
        self.precision = settings.precision
        self.check_val_every_n_epoch = settings.check_val_every_n_epoch
        self.current_epoch = 0
        self.training, self.validating = True, False
        self.num_training_batches, self.num_val_batches = 0, [0]
        self.configure([], [])

    def configure(self, optimizers: list[Optimizer], configs: list[LRSchedulerConfig]) -> None:
        self.optimizers, self.lr_scheduler_configs = optimizers, configs

    def measure(self, train: Passes, validation: Passes | None) -> None:
        """Learn the number of batches."""
        self.num_training_batches = len(train)
        self.num_val_batches = [] if validation is None else [len(validation)]

    @property
    def loggers(self) -> list[Any]:
        return []

    @property
    def global_step(self) -> int:
        """Number of optimizer steps."""
        return int(self._progress["global_step"])

    def count_step(self) -> None:
        self._progress["global_step"] += 1

    @property
    def is_last_batch(self) -> bool:
        return bool(self._progress["batch"] + 1 == self.num_training_batches)

    @property
    def estimated_stepping_batches(self) -> int:
        """Number of optimizer steps of the whole training."""
        return self.max_epochs * -(-self.num_training_batches // self.accumulate_grad_batches)

    @property
    def callback_metrics(self) -> Mapping[str, Tensor]:
        return self._logged.latest

    logged_metrics = callback_metrics

    @property
    def should_stop(self) -> bool:
        return bool(self._progress["should_stop"])

    @should_stop.setter
    def should_stop(self, value: bool) -> None:
        self._progress["should_stop"] = bool(value)

    def __getattr__(self, name: str) -> NoReturn:
        known = sorted(each for each in {*dir(type(self)), *vars(self)} if not each.startswith("_"))
        problem = f"the module uses trainer.{name}, which trainops does not provide"
        raise AttributeError(f"{problem}; allowed: {', '.join(known)}")
