"""Errors for attributes of the trainer that trainops does not provide, with what to use instead."""

from typing import Any, NoReturn

FILES = "self.logger.experiment or trainops.log: a run has no directory, and shows what is logged"
LATER = "an operation of its own, or a program that loads the exported weights: make() only trains"
STEPPING = "a hook, since trainops drives the loop; trainer.current_epoch and trainer.global_step"
INSTEAD = {
    "default_root_dir": FILES,
    "log_dir": FILES,
    "save_checkpoint": "nothing: trainops saves by itself, the best weights by `monitor`",
    "print": "self.print",
    "fit": "nothing: trainops trains what make() returns",
    "validate": LATER,
    "test": LATER,
    "predict": LATER,
    "test_loop": LATER,
    "predict_loop": LATER,
    "validate_loop": STEPPING,
    "train_loop": STEPPING,
    "train_dataloaders": "trainer.train_dataloader",
    "val_dataloader": "trainer.val_dataloaders",
    "lr_schedulers": "trainer.lr_scheduler_configs, or self.lr_schedulers()",
    "batch_idx": "the argument batch_idx of hooks",
    "total_batch_idx": "trainer.global_step, or a count of your own",
    "running_sanity_check": "trainer.sanity_checking",
    "gpus": "trainer.num_devices",
    "num_gpus": "trainer.num_devices",
    "num_processes": "trainer.world_size",
    "device_ids": "self.device, or trainer.strategy.root_device",
    "accelerator": "self.device.type",
    "root_gpu": "self.device",
    "use_amp": "trainer.precision",
    "amp_backend": "trainer.precision",
    "precision_plugin": "trainer.precision",
    "scaler": "trainer.precision; trainops scales losses itself",
    "distributed_sampler_kwargs": "trainer.world_size and trainer.global_rank",
    "init_module": "configure_model of the module",
    "tuner": "a study of the learning rate or the batch size",
    "val_check_batch": "trainer.val_check_interval",
    "num_sanity_val_batches": "nothing: there is no sanity check",
    "num_test_batches": "trainer.num_val_batches",
    "num_predict_batches": "trainer.num_val_batches",
}


class WithoutOthers:
    """Raises an AttributeError that says what to use instead; `_place` is before the name."""

    _place = "trainer"
    _hidden: frozenset[str] = frozenset()  # names that are of no use to a module

    def __getattr__(self, name: str) -> NoReturn:
        use = f"{self._place}.{name}"
        problem = f"the module or a callback uses {use}, which trainops does not provide"
        raise AttributeError(f"{problem}; allowed: {self._allowed(name)}")

    def _allowed(self, name: str) -> str:
        names = {*dir(type(self)), *vars(self)} - self._hidden
        return ", ".join(sorted(each for each in names if not each.startswith("_")))


class EpochLoop(WithoutOthers):
    """What LearningRateMonitor asks for: the number of a step, which is the current one."""

    _place = "trainer.fit_loop.epoch_loop"
    _batches_that_stepped = None

    def _allowed(self, name: str) -> str:
        return STEPPING


class FitLoop(WithoutOthers):
    """Lightning's loop over epochs, as far as modules use it."""

    _place = "trainer.fit_loop"

    def __init__(self, trainer: Any) -> None:
        self.epoch_loop, self.max_epochs = EpochLoop(), trainer.max_epochs

    def setup_data(self) -> None:
        """Do nothing: the loaders are there."""

    def _allowed(self, name: str) -> str:
        return STEPPING
