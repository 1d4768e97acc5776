"""The logger of a LightningModule and its callbacks: what it gets, the operation shows."""

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from lightning.pytorch.loggers import Logger

from trainops.kinds.loop.lightning.logged import Logged
from trainops.media import Audio, Histogram, Image, Table, log
from trainops.media.arrays import Array, array_of
from trainops.media.recorder import RECORDER
from trainops.runtime.errors import InputError


class OperationLogger(Logger):
    """What `self.logger` is. Hyperparameters, which are in the config, and graphs are ignored."""

    name, version = "trainops", ""

    def __init__(self, logged: Logged) -> None:
        super().__init__()
        self.experiment = Writer()
        self._logged = logged

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log numbers of the current step, as `self.log` does with on_step. Raises InputError.

        `step` is ignored.
        """
        if RECORDER.is_preparing:  # each attempt comes by here
            problem = "the logger got a call before the first step"
            raise InputError({"recipe": f"{problem}; allowed: in steps and validations"})
        self._logged.add_points(metrics)

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """Do nothing."""


class Writer:
    """What `self.logger.experiment` is: methods of TensorBoard's SummaryWriter, by trainops.log.

    Steps and times that are given are ignored: everything belongs to the current step.
    """

    def add_scalar(self, tag: str, scalar_value: Any, *_: Any, **__: Any) -> None:
        log(tag, scalar_value)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, Any], *_: Any, **__: Any
    ) -> None:
        for name, value in tag_scalar_dict.items():
            self.add_scalar(f"{main_tag}/{name}", value)

    def add_image(
        self, tag: str, img_tensor: Any, *_: Any, dataformats: str = "CHW", **__: Any
    ) -> None:
        log(tag, _image(array_of(img_tensor, "add_image"), dataformats))

    def add_images(
        self, tag: str, img_tensor: Any, *_: Any, dataformats: str = "NCHW", **__: Any
    ) -> None:
        images = np.moveaxis(array_of(img_tensor, "add_images"), dataformats.upper().find("N"), 0)
        log(tag, [_image(each, dataformats.upper().replace("N", "")) for each in images])

    def add_histogram(self, tag: str, values: Any, *_: Any, **__: Any) -> None:
        log(tag, Histogram(values))

    def add_audio(
        self, tag: str, snd_tensor: Any, *_: Any, sample_rate: int = 44100, **__: Any
    ) -> None:
        log(tag, Audio(snd_tensor, sample_rate))

    def add_text(self, tag: str, text_string: str, *_: Any, **__: Any) -> None:
        log(tag, Table(["text"], [[text_string]]))

    def flush(self) -> None:
        """Do nothing."""

    close = flush

    def __getattr__(self, name: str) -> NoReturn:
        known = sorted(each for each in dir(type(self)) if not each.startswith("_"))
        problem = f"the recipe uses logger.experiment.{name}, which trainops does not provide"
        raise AttributeError(f"{problem}; allowed: {', '.join(known)}")


def _image(array: Array, layout: str) -> Image:
    """Return pixels of axes in this order, such as CHW. Raises InputError.

    As in TensorBoard, numbers that are no integers are cut to 0 and 1.
    """
    layout = layout.upper()
    if sorted(layout) not in (["C", "H", "W"], ["H", "W"]) or array.ndim != len(layout):
        problem = f"got dataformats {layout} for an image of {array.ndim} axes"
        raise InputError({"recipe": f"{problem}; allowed: an order of C, H and W, or of H and W"})
    pixels = array.transpose([layout.find(axis) for axis in "HWC" if axis in layout])
    return Image(pixels if pixels.dtype.kind in "iub" else pixels.clip(0, 1))
