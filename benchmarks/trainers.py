"""What a step costs in each form of training, beside plain PyTorch and other trainers.

The same network (of two sizes), batches and optimizer on one thread. All contenders take turns in
one process; a turn is some epochs after one that warms up, and its figure is the time of an
epoch's step. The first tables are of a TensorDataset, whose batches a loop takes at once; the next
of a dataset of one's own, whose examples are taken one by one. The last is the time to the first
new step of a resume, at two places of a long epoch whose examples cost a millisecond each: of a
whole attempt, of its loader, and of skipping as Accelerate does it.
"""

import contextlib
import io
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.loop import Silent
from trainops.runtime.checkpoint.manifest import Candidate, Checkpoint
from trainops.runtime.checkpoint.store import CheckpointPolicy, CheckpointStore
from trainops.runtime.job import Progress
from trainops.runtime.loop import Directive, Succeeded, run

os.environ["TRAINOPS_RECIPES"] = ",".join(
    f"benchmarks.trainer_recipes:{name}"
    for name in ("LOOP", "MODULE", "LIGHTNING", "TRANSFORMERS", "SLOW")
)
Spread: TypeAlias = dict[str, tuple[float, float, float]]  # lowest, median and highest
ROUNDS = 5
EPOCHS_OF = {256: 3, 1024: 1}  # by the width of the network
PLACES = (0.1, 0.9)


def main() -> dict[str, Any]:
    torch.set_num_threads(1)
    steps: dict[str, Spread] = {
        f"layers of {width}": _steps(width, epochs) for width, epochs in EPOCHS_OF.items()
    }
    for num_workers in (0, 2):
        name = f"layers of 256, a dataset of one's own, {num_workers} worker processes"
        steps[name] = _one_by_one(num_workers)
    for case, found in steps.items():
        bare = found["PyTorch"][1]
        print(f"\nMicroseconds a step, {case}, {ROUNDS} rounds in turns")
        print(f"{'':34}{'median':>9}{'lowest':>9}{'highest':>9}{'beside PyTorch':>16}")
        for name, (low, middle, high) in found.items():
            print(f"{name:34}{middle:9.0f}{low:9.0f}{high:9.0f}{middle / bare:15.2f}x")
    resumes = _resumes()
    print("\nSeconds to the first new step of a resume, by the place in the epoch")
    for name, seconds in resumes.items():
        print(f"{name:34}" + "".join(f"{at:>8.0%} {each:6.2f}" for at, each in seconds.items()))
    return {"microseconds": steps, "resume_seconds": resumes}


def _steps(width: int, epochs: int) -> Spread:
    from benchmarks import trainer_recipes as parts

    parts.WIDTH, parts.KIND, parts.OPTIONS = width, TensorDataset, {}
    contenders = {
        "PyTorch": _plain,
        "Accelerate": _accelerate,
        "loop": lambda epochs: _ours("loop", epochs),
        "loop, a checkpoint every 100 steps": lambda epochs: _ours("loop", epochs, every=100),
        "module": lambda epochs: _ours("module", epochs),
        "Lightning Trainer": _lightning,
        "LightningModule, here": lambda epochs: _ours("lightning", epochs),
        "Hugging Face Trainer": _hugging,
        "Hugging Face Trainer, here": lambda epochs: _ours("transformers", epochs),
    }
    return _in_turns(contenders, epochs)


def _one_by_one(num_workers: int) -> Spread:
    from benchmarks import trainer_recipes as parts

    parts.WIDTH, parts.KIND = 256, parts.Rows

    def drawing_nothing(epochs: int) -> None:
        parts.OPTIONS = {"num_workers": num_workers, "is_random": False}
        _ours("loop", epochs)

    def drawing(contender: Any) -> Any:
        def called(epochs: int) -> None:
            parts.OPTIONS = {"num_workers": num_workers}
            contender(epochs)

        return called

    contenders = {
        "PyTorch": drawing(_plain),
        "loop": drawing(lambda epochs: _ours("loop", epochs)),
        "loop, is_random=False": drawing_nothing,
    }
    return _in_turns(contenders, EPOCHS_OF[256])


def _in_turns(contenders: Mapping[str, Any], epochs: int) -> Spread:
    from benchmarks import trainer_recipes as parts

    num_steps = epochs * parts.NUM_EXAMPLES // parts.BATCH
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(1 + ROUNDS):
        for name, contender in contenders.items():
            with (
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                one, several = _seconds(contender, 1), _seconds(contender, 1 + epochs)
            if number:  # the first round imports
                found[name].append((several - one) / num_steps * 1e6)
    return {name: (min(each), median(each), max(each)) for name, each in found.items()}


def _seconds(contender: Any, epochs: int) -> float:
    torch.manual_seed(0)
    begun = time.perf_counter()
    contender(epochs)
    return time.perf_counter() - begun


def _plain(epochs: int, prepare: Any = lambda *things: things, backward: Any = None) -> None:
    from torch.nn import functional

    from benchmarks import trainer_recipes as parts

    model = parts.network()
    optimizer = torch.optim.AdamW(model.parameters())
    batches = DataLoader(parts.dataset(), batch_size=parts.BATCH, shuffle=True, **parts.OPTIONS)
    model, optimizer, batches = prepare(model, optimizer, batches)
    for _ in range(epochs):
        for inputs, targets in batches:
            loss = functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            (backward or torch.Tensor.backward)(loss)
            optimizer.step()


def _accelerate(epochs: int) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    _plain(epochs, accelerator.prepare, accelerator.backward)


def _lightning(epochs: int) -> None:
    from lightning.pytorch import Trainer

    from benchmarks import trainer_recipes as parts

    Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    ).fit(parts.Lit())  # fmt: skip


def _hugging(epochs: int) -> None:
    from benchmarks import trainer_recipes as parts

    parts.hugging(epochs).train()


def _ours(form: str, epochs: int, every: int | None = None) -> None:
    from trainops.kind import KINDS

    name = "max_epochs" if form == "lightning" else "epochs"
    config = KINDS["loop"].parse_config(
        {"recipe": f"bench_{form}", "parameters": {name: epochs}, "threads": 1}
    )
    with tempfile.TemporaryDirectory() as directory:
        outcome = run(
            KINDS["loop"].job_factory(config),
            seed=0,
            store=CheckpointStore(Path(directory), identity={"operation_id": "bench"}),
            policy=CheckpointPolicy(every_steps=every, every_seconds=3600.0),
            supervisor=Silent(),
        )
    assert isinstance(outcome, Succeeded), outcome  # noqa: S101


def _resumes() -> dict[str, dict[float, float]]:
    from benchmarks.trainer_recipes import NUM_SLOW

    contenders = {
        "an attempt": _attempt,
        "run.loader": _go_to,
        "Accelerate, skip_first_batches": _skip,
        "taking the batches before": _take,
    }
    for contender in contenders.values():
        contender(0)  # imports
    return {
        name: {place: contender(int(place * NUM_SLOW)) for place in PLACES}
        for name, contender in contenders.items()
    }


class Until(Silent):
    """A supervisor that cancels at a step; it knows how long after its own start that was.

    `saved` are the checkpoints to continue from.
    """

    def __init__(self, step: int) -> None:
        self.step, self.begun, self.seconds = step, time.perf_counter(), 0.0
        self.saved: list[Candidate] = []

    def report(self, progress: Progress) -> Directive:
        if progress.step < self.step:
            return Directive.PROCEED
        self.seconds = self.seconds or time.perf_counter() - self.begun
        return Directive.CANCEL

    def checkpointed(self, checkpoint: Checkpoint) -> None:
        self.saved.append(Candidate(checkpoint.path, checkpoint.digest))


def _attempt(first: int) -> float:
    """Return the seconds from the start of a resumed attempt to the end of its first step."""
    from trainops.kind import KINDS

    config = KINDS["loop"].parse_config({"recipe": "bench_slow", "threads": 1})
    with tempfile.TemporaryDirectory() as directory:
        saved: list[Candidate] = []
        for step in (first, first + 1):
            supervisor = Until(step)
            run(
                KINDS["loop"].job_factory(config),
                seed=0,
                store=CheckpointStore(
                    Path(directory), identity={"operation_id": "bench"}, candidates=saved
                ),
                policy=CheckpointPolicy(every_steps=None, every_seconds=3600.0),
                supervisor=supervisor,
            )
            saved = supervisor.saved
    return supervisor.seconds


def _go_to(first: int) -> float:
    from benchmarks.trainer_recipes import NUM_SLOW, SlowRows, dataset
    from trainops.kinds.loop.course import Course
    from trainops.kinds.loop.run import Run

    run = Run(Course(lambda: None), seed=0, device=torch.device("cpu"), inputs={})
    loader = run.loader("train", dataset(SlowRows, NUM_SLOW))
    return _timed(lambda: next(loader.source.items(0, first)))


def _skip(first: int) -> float:
    from accelerate import skip_first_batches

    return _timed(lambda: next(iter(skip_first_batches(_slow_batches(), first))))


def _take(first: int) -> float:
    def take() -> None:
        batches = iter(_slow_batches())
        for _ in range(first + 1):
            next(batches)

    return _timed(take)


def _slow_batches() -> DataLoader[Any]:
    from benchmarks.trainer_recipes import NUM_SLOW, SlowRows, dataset

    return DataLoader(dataset(SlowRows, NUM_SLOW), shuffle=True)


def _timed(act: Any) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun
