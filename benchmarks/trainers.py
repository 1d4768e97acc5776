"""What a step costs in each form of training, beside plain PyTorch and other trainers.

The same network (of two sizes), batches and optimizer on one thread. All contenders take turns in
one process; a turn is some epochs after one that warms up, and its figure is the time of an
epoch's step. The second table is the time to the first new step of a resume, at two places of a
long epoch whose examples cost a millisecond each, beside skipping as Accelerate does it.
"""

import contextlib
import io
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.loop import Silent

os.environ["TRAINOPS_RECIPES"] = ",".join(
    f"benchmarks.trainer_recipes:{name}" for name in ("LOOP", "MODULE", "LIGHTNING", "TRANSFORMERS")
)
ROUNDS = 5
EPOCHS_OF = {256: 3, 1024: 1}  # by the width of the network
NUM_BATCHES, ITEM_SECONDS = 400, 1e-3
PLACES = (0.1, 0.9)


def main() -> dict[str, Any]:
    torch.set_num_threads(1)
    steps = {width: _steps(width, epochs) for width, epochs in EPOCHS_OF.items()}
    for width, found in steps.items():
        bare = found["PyTorch"][1]
        print(f"\nMicroseconds a step, layers of {width}, {ROUNDS} rounds in turns")
        print(f"{'':34}{'median':>9}{'lowest':>9}{'highest':>9}{'beside PyTorch':>16}")
        for name, (low, middle, high) in found.items():
            print(f"{name:34}{middle:9.0f}{low:9.0f}{high:9.0f}{middle / bare:15.2f}x")
    resumes = _resumes()
    print("\nSeconds to the first new step of a resume, by the place in the epoch")
    for name, seconds in resumes.items():
        print(f"{name:34}" + "".join(f"{at:>8.0%} {each:6.2f}" for at, each in seconds.items()))
    return {"microseconds": steps, "resume_seconds": resumes}


def _steps(width: int, epochs: int) -> dict[str, tuple[float, float, float]]:
    from benchmarks import trainer_recipes as parts

    parts.WIDTH = width
    num_steps = epochs * parts.NUM_EXAMPLES // parts.BATCH
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
    batches = DataLoader(parts.dataset(), batch_size=parts.BATCH, shuffle=True)
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
    from trainops.runtime.checkpoint.store import CheckpointPolicy, CheckpointStore
    from trainops.runtime.loop import Succeeded, run

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
    contenders = {
        "run.loader": _go_to,
        "Accelerate, skip_first_batches": _skip,
        "taking the batches before": _take,
    }
    return {
        name: {place: _resumed(contender, int(place * NUM_BATCHES)) for place in PLACES}
        for name, contender in contenders.items()
    }


def _resumed(contender: Any, first: int) -> float:
    begun = time.perf_counter()
    contender(first)
    return time.perf_counter() - begun


class Slow(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return NUM_BATCHES

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(ITEM_SECONDS)
        return torch.tensor(index)


def _go_to(first: int) -> None:
    from trainops.kinds.loop.course import Course
    from trainops.kinds.loop.run import Run

    run = Run(Course(lambda: None), seed=0, device=torch.device("cpu"), inputs={})
    next(run.loader("train", Slow()).source.items(0, first))


def _skip(first: int) -> None:
    from accelerate import skip_first_batches

    next(iter(skip_first_batches(DataLoader(Slow(), shuffle=True), first)))


def _take(first: int) -> None:
    batches = iter(DataLoader(Slow(), shuffle=True))
    for _ in range(first + 1):
        next(batches)
