"""The directory of a transformer trainer's checkpoint, as a training file.

It holds `training_state.pth` {optimizer_state_dict, scheduler_state_dict?, scaler_state_dict?,
epoch, step, total_batches?, best_val_f1?, best_val_acc?}, the weights as `model.safetensors` or
`pytorch_model.bin`, and the model's `config.json`. Epochs count from 1; `step` counts the batches
of the epoch, and is 0 where the epoch is finished.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainops.files import foreign
from trainops.files.checks import CheckResult, Step
from trainops.files.description import DirectoryFormat
from trainops.files.errors import DamagedFile, ForbiddenContent, InvalidFields, UnknownFormat
from trainops.files.fields import Fields, shown
from trainops.files.finite import not_finite
from trainops.files.optimizers import read_optimizer, read_scheduler, steps_taken
from trainops.kinds.training.files.file import TrainingFile, disagreements
from trainops.kinds.training.files.loaders import IteratorState, LoaderManagerState, LoaderState

STATE, CONFIG = "training_state.pth", "config.json"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # the first that is there
ARCHIVES = (STATE, *WEIGHTS)
FILES = (*ARCHIVES, CONFIG)
NAME = re.compile(r"last_checkpoint|recovery_checkpoint|best_model|checkpoint_epoch\d+_step\d+")
LEAST_RATE = 1e-8
MAX_CONFIG_BYTES = 2**20


def is_one(path: Path) -> bool:
    """Whether it is such a directory, whole or not."""
    return any((path / name).is_file() for name in ARCHIVES)


class StepDirectoryReading:
    """One directory on its way in. The steps are to be taken in their order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: TrainingFile
        self._trees: dict[str, Any] = {}
        self._state: Mapping[str, Any] = {}

    @property
    def steps(self) -> tuple[Step, ...]:
        return (
            ("files", self.find_files),
            ("content", self.look_inside),
            ("fields", self.read_fields),
            ("finite numbers", self.check_numbers),
            ("agreement", self.check_agreement),
        )

    @property
    def weights(self) -> str:
        """The name of the file with the weights."""
        return next((name for name in WEIGHTS if (self.path / name).is_file()), WEIGHTS[0])

    def find_files(self) -> str | CheckResult:
        """Compare which files are there. Raises DamagedFile."""
        for name in (STATE, self.weights):
            if not (self.path / name).is_file():
                other = f" or {WEIGHTS[1]}" if name in WEIGHTS else ""
                raise DamagedFile(f"{name}{other} is missing")
        found = f"{STATE}, {self.weights}"
        if problem := self._config_problem():
            return CheckResult(found, [problem])
        return f"{found}, {CONFIG}"

    def look_inside(self) -> str:
        """Read the outlines. Raises FormatErrors."""
        for name in (STATE, self.weights):
            with foreign.opened(self.path / name) as content:
                try:
                    outline = foreign.outline_in(content)
                except DamagedFile as error:
                    raise DamagedFile(f"{name}: {error}") from error
                if outline.enums:
                    raise ForbiddenContent(", ".join(sorted(outline.enums)))
                self._trees[name] = foreign.load(content, outline)
        return "undamaged archives of tensors and plain values"

    def read_fields(self) -> str:
        """Return where it stands, after reading every field. Raises InvalidFields."""
        self.file, self._state = parse(self._trees[STATE], self._trees[self.weights])
        epoch, step, batches = (self._state[name] for name in ("epoch", "step", "total_batches"))
        is_done = not step or (batches and step >= batches)
        within = "completed" if is_done else f"{step} of {batches or 'unknown'} batches"
        return f"epoch {epoch}, {within}; {len(self.file.model)} tensors"

    def check_numbers(self) -> str:
        if wrong := not_finite(self._trees):
            raise InvalidFields(wrong)
        return "no NaN and no infinity in any tensor"

    def check_agreement(self) -> CheckResult:
        """Compare position, optimizer and schedule. Raises InvalidFields."""
        if wrong := disagreements(self.file):
            raise InvalidFields(wrong)
        return CheckResult(
            "compared: the optimizer's steps with batches, the schedule with the optimizer's "
            "steps, learning rates with their base; not compared: shapes, which only a job knows",
            warnings(self.file, self._state),
        )

    def _config_problem(self) -> str:
        path = self.path / CONFIG
        if not path.is_file():
            return f"{CONFIG} is missing; the other tool needs it"
        try:
            with path.open("rb") as file:
                is_object = isinstance(json.loads(file.read(MAX_CONFIG_BYTES)), dict)
        except (ValueError, RecursionError):
            is_object = False
        return "" if is_object else f"{CONFIG} is no JSON object"


def read(path: Path) -> TrainingFile:
    """Return the training file that the directory is. Raises FormatErrors and OSErrors."""
    reading = StepDirectoryReading(path)
    for _, take in reading.steps:
        take()
    return reading.file


def place(path: Path) -> tuple[int, float]:
    """Return epoch and batch of a directory as numbers to compare; a finished epoch is last.

    Raises FormatErrors and OSErrors.
    """
    with foreign.opened(path / STATE) as content:
        fields = Fields(foreign.load(content, foreign.outline_in(content)))
        epoch, step = fields.integer("epoch"), fields.integer("step")
    fields.finish()
    return epoch, step or float("inf")


def parse(tree: Any, weights: Any) -> tuple[TrainingFile, Mapping[str, Any]]:
    """Return the training file, and the plain values of the state. Raises InvalidFields."""
    fields = Fields(tree)
    plain = {
        "epoch": fields.integer("epoch"),
        "step": fields.integer("step"),
        "total_batches": fields.integer("total_batches", default=0) or 0,
        "best_val_f1": fields.number("best_val_f1", default=0.0),
        "best_val_acc": fields.number("best_val_acc", default=0.0),
    }
    optimizer = read_optimizer(fields.within("optimizer_state_dict"))
    scheduler = (
        (read_scheduler(fields.within("scheduler_state_dict")),)
        if fields.has("scheduler_state_dict")
        else ()
    )
    scaler = fields.mapping("scaler_state_dict", default=None)
    model = Fields({"weights": weights}, "", fields.problems).tensors("weights")
    if not model and not fields.problems:
        fields.wrong("weights", "has no tensors; must be the model's")
    if plain["step"] and not plain["epoch"]:
        fields.wrong("epoch", f"is 0 at batch {plain['step']}; epochs count from 1")
    fields.finish()
    epoch, batch, batches = _position(plain, optimizer, scheduler)
    loader = LoaderState(number=0, name="train", batch_idx=batch)
    return (
        TrainingFile(
            save_timestamp=0.0,
            epoch=epoch,
            global_step=batches,
            model=model,
            optimizers=(optimizer,),
            schedulers=scheduler,
            amp_scaler=scaler,
            top_loaders=LoaderManagerState(train=IteratorState(batch, (loader,), batch, (0,))),
            metrics={name: plain[name] for name in ("best_val_f1", "best_val_acc")},
        ),
        plain,
    )


def warnings(file: TrainingFile, state: Mapping[str, Any]) -> list[str]:
    """Return what is odd, but may be: a scaler skips steps, a schedule may end at 0."""
    found, total, step = [], state["total_batches"], state["step"]
    moves = max(steps_taken(file.optimizers[0]), default=0)
    if not total:
        found.append("total_batches is missing: the length of its epochs is not known")
    elif step > total:
        found.append(f"step is {step} of {total} batches; the epoch counts as completed")
    if not moves:
        found.append("the optimizer has no count of its steps")
    elif total and not _is_some_accumulation(file, total, moves):
        found.append(
            f"{moves} steps of the optimizer fit no gradient accumulation over "
            f"{file.global_step} batches"
        )
    for scheduler in file.schedulers:
        last = scheduler.get("last_epoch")
        if moves and last not in (None, moves):
            found.append(f"the schedule stands at {last}, after {moves} steps of the optimizer")
    found += [
        f"param_groups[{number}].lr is {shown(group.get('lr'))}; less than {LEAST_RATE:g}"
        for number, group in enumerate(file.optimizers[0]["param_groups"])
        if group.get("lr", 1.0) < LEAST_RATE
    ]
    found += [
        f"{name} is {shown(state[name])}; it lies between 0 and 1"
        for name in ("best_val_f1", "best_val_acc")
        if not 0 <= state[name] <= 1
    ]
    return found


def _position(
    plain: Mapping[str, Any], optimizer: Mapping[str, Any], scheduler: tuple[Mapping[str, Any], ...]
) -> tuple[int, int, int]:
    """Return the epoch from 0, its next batch, and how many batches there were in all.

    Without the length of its epochs, the optimizer's steps stand for the last.
    """
    epoch, step, total = plain["epoch"], plain["step"], plain["total_batches"]
    is_done = not step or 0 < total <= step
    first, batch = (epoch, 0) if is_done else (epoch - 1, step)
    if total or not first:
        return first, batch, max(first * total + batch, (epoch - 1) * total + step)
    positions = [each.get("last_epoch") or 0 for each in scheduler]
    return first, batch, max(steps_taken(optimizer), default=0) or max(positions, default=0)


def _is_some_accumulation(file: TrainingFile, total: int, moves: int) -> bool:
    """Whether some number of batches to a step makes this many steps; an epoch's rest makes one."""
    batch = file.global_step - file.epoch * total
    return any(
        file.epoch * -(-total // size) + batch // size == moves for size in range(1, total + 1)
    )


def newest(directory: Path) -> list[Path]:
    """Return the checkpoints of a directory of them, the furthest first; those unread are last."""
    found = [each for each in directory.iterdir() if NAME.fullmatch(each.name) and is_one(each)]
    return sorted(found, key=_sortable, reverse=True)


def _sortable(path: Path) -> tuple[float, float, str]:
    try:
        return (*place(path), path.name)
    except (UnknownFormat, DamagedFile, ForbiddenContent, InvalidFields, OSError):
        return (-1.0, 0.0, path.name)


DIRECTORY = DirectoryFormat(
    files=FILES,
    archives=ARCHIVES,
    mark=STATE,
    named_like="last_checkpoint with its like",
    is_one=is_one,
    steps=lambda path: StepDirectoryReading(path).steps,
    read=read,
    newest=newest,
)
