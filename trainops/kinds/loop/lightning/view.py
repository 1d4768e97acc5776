"""What a LightningModule sees as its trainer."""

import math
from collections.abc import Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from lightning.pytorch import Callback, LightningDataModule, LightningModule
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.profilers import PassThroughProfiler
from lightning.pytorch.trainer.states import RunningStage, TrainerFn, TrainerStatus
from torch import Tensor, distributed
from torch.distributed.nn.functional import all_gather
from torch.optim import Optimizer

from trainops.kinds.loop.lightning.loaders import Loaders, num_batches, shown
from trainops.kinds.loop.lightning.logged import Logged
from trainops.kinds.loop.lightning.logger import OperationLogger
from trainops.kinds.loop.lightning.optimizers import LRSchedulerConfig
from trainops.kinds.loop.lightning.unknown import INSTEAD, FitLoop, WithoutOthers
from trainops.kinds.loop.replicas import Reductions
from trainops.kinds.loop.trainer_settings import LightningParameters

# Of this class, or of no use to a module.
INTERNAL = frozenset(
    {"barebones", "configure", "count_step", "fit_loop", "has_reached_max_steps", "is_at_end",
     "measure", "num_epochs"}
)  # fmt: skip


class RankStrategy(WithoutOthers):
    """The strategy that modules and callbacks see."""

    _place = "trainer.strategy"

    def __init__(self, reductions: Reductions) -> None:
        self._reductions = reductions
        self.root_device = reductions.device
        self.global_rank, self.local_rank = reductions.rank, reductions.local_rank
        self.world_size, self.is_global_zero = reductions.num_ranks, reductions.rank == 0

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        """Return whether all ranks have decided so, or any of them."""
        if all:
            return not self._reductions.any([not decision])[0]
        return self._reductions.any([bool(decision)])[0]

    def all_gather(self, tensor: Tensor, group: Any = None, sync_grads: bool = False) -> Tensor:
        """Return the tensors of all ranks, stacked; the tensor itself for one rank."""
        if self._reductions.num_ranks == 1:
            return tensor
        with nullcontext() if sync_grads else torch.no_grad():
            return torch.stack(all_gather(tensor.contiguous(), group))

    def barrier(self, name: str | None = None) -> None:
        """Wait for the other ranks."""
        if self._reductions.num_ranks > 1:
            distributed.barrier()

    def broadcast(self, thing: Any, src: int = 0) -> Any:
        """Return what rank `src` gives."""
        return self._reductions.gathered(thing)[src]


class TrainerView(WithoutOthers):
    """The attributes of Lightning's Trainer that modules and callbacks read.

    Setting should_stop stops.
    """

    barebones = False
    sanity_checking = False
    testing = predicting = interrupted = received_sigterm = False
    test_dataloaders = predict_dataloaders = None
    min_steps = ckpt_path = None
    min_epochs = 0
    overfit_batches, num_sanity_val_steps, reload_dataloaders_every_n_epochs = 0.0, 0, 0
    progress_bar_callback = checkpoint_callback = None  # which are not called
    fast_dev_run = False
    # What LearningRateMonitor asks for: whether this step is logged, and its number.
    _logger_connector = SimpleNamespace(should_update_logs=True)
    _hidden = INTERNAL

    def __init__(
        self,
        settings: LightningParameters,
        progress: dict[str, Any],
        logged: Logged,
        module: LightningModule,
        datamodule: LightningDataModule | None,
        reductions: Reductions,
        log_every_n_steps: int,
    ) -> None:
        self.log_every_n_steps = log_every_n_steps
        self.profiler = PassThroughProfiler()
        self.train_dataloader = self.val_dataloaders = None  # until they are known
        self.global_rank, self.local_rank = reductions.rank, reductions.local_rank
        self.world_size, self.num_nodes = reductions.num_ranks, reductions.num_nodes
        self.num_devices = self.world_size // self.num_nodes
        self.node_rank = self.global_rank // self.num_devices
        self.is_global_zero = reductions.rank == 0
        self._progress, self._logged = progress, logged
        self.logger = OperationLogger(logged)
        self.loggers = [self.logger]
        self.callbacks: list[Callback] = []
        self.strategy = RankStrategy(reductions)
        self.val_check_interval = settings.val_check_interval or 1.0
        self.model = self.lightning_module = module
        self.datamodule = datamodule
        self.max_steps = settings.max_steps or -1
        self.max_epochs = settings.max_epochs if settings.max_steps is None else -1
        self.fit_loop = FitLoop(self)
        self.accumulate_grad_batches = settings.accumulate_grad_batches
        self.gradient_clip_val = settings.gradient_clip_val
        self.gradient_clip_algorithm = settings.gradient_clip_algorithm
        self.precision = settings.precision
        self.limit_train_batches, self.limit_val_batches = (
            1.0 if each is None else each  # all, as in Lightning
            for each in (settings.limit_train_batches, settings.limit_val_batches)
        )
        self.check_val_every_n_epoch = settings.check_val_every_n_epoch
        self.current_epoch = 0
        self.training, self.validating = True, False
        self.is_at_end = False  # the batch is the last one of its epoch
        self.num_training_batches: int | float = 0  # inf: its dataset is iterable
        self._is_fixed = True  # else passes may be shorter
        self.num_val_batches: list[int | float] = [0]
        self.configure([], [])

    def configure(self, optimizers: list[Optimizer], configs: list[LRSchedulerConfig]) -> None:
        self.optimizers, self.lr_scheduler_configs = optimizers, configs

    def measure(self, loaders: Loaders) -> None:
        """Learn the loaders, and the number of batches."""
        self.train_dataloader = shown(loaders.given, self.world_size)
        self.val_dataloaders = shown(loaders.given_validation, self.world_size)
        self.num_training_batches = num_batches(loaders.train)
        self._is_fixed = loaders.train.source.fixed_length() is not None
        self.num_val_batches = [num_batches(each) for each in loaders.validations]

    @property
    def state(self) -> SimpleNamespace:
        stage = RunningStage.VALIDATING if self.validating else RunningStage.TRAINING
        return SimpleNamespace(fn=TrainerFn.FITTING, status=TrainerStatus.RUNNING, stage=stage)

    @property
    def evaluating(self) -> bool:
        return self.validating

    @property
    def enable_validation(self) -> bool:
        return self.val_dataloaders is not None

    @property
    def progress_bar_metrics(self) -> dict[str, float]:
        return self._logged.progress_bar

    @property
    def checkpoint_callbacks(self) -> list[Callback]:
        return []

    @property
    def early_stopping_callbacks(self) -> list[EarlyStopping]:
        return [each for each in self.callbacks if isinstance(each, EarlyStopping)]

    @property
    def early_stopping_callback(self) -> EarlyStopping | None:
        return next(iter(self.early_stopping_callbacks), None)

    @property
    def global_step(self) -> int:
        """Number of optimizer steps."""
        return int(self._progress["global_step"])

    def count_step(self) -> None:
        self._progress["global_step"] += 1

    @property
    def is_last_batch(self) -> bool:
        if not self._is_fixed:
            return self.is_at_end
        return bool(self._progress["batch"] + 1 >= self.num_training_batches)

    @property
    def estimated_stepping_batches(self) -> int:
        """Number of optimizer steps of the whole training."""
        if self.max_epochs == -1 or isinstance(self.num_training_batches, float):
            return self.max_steps  # as in Lightning
        return self.max_epochs * self._num_windows

    @property
    def num_epochs(self) -> int:
        """Number of epochs that the training takes at most, each with one step at least."""
        if self.max_epochs != -1:
            return self.max_epochs
        is_known = self.model.automatic_optimization and self._is_fixed
        return math.ceil(self.max_steps / max(1, self._num_windows)) if is_known else self.max_steps

    @property
    def has_reached_max_steps(self) -> bool:
        return 0 < self.max_steps <= self.global_step

    @property
    def _num_windows(self) -> int:
        """Number of accumulation windows of an epoch."""
        return math.ceil(self.num_training_batches / self.accumulate_grad_batches)

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

    def _allowed(self, name: str) -> str:
        return INSTEAD.get(name) or super()._allowed(name)
