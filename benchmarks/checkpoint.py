"""What a checkpoint costs a training, beside what others' cost and what the machine can do at best.

A model in training with Adam is saved in turns by each contender, in one process. The stall is the
time that the call takes; the added time is that of all steps from the call until the checkpoint is
written, beyond what as many steps take when nothing is saved. Each size is measured in a process of
its own, once with a core to spare and once with the training on every core.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import torch
from blake3 import blake3
from torch import nn
from torch.distributed.checkpoint.state_dict_saver import async_save

from benchmarks.loop import Silent
from trainops.runtime.checkpoint.manifest import Checkpoint, CheckpointType
from trainops.runtime.checkpoint.pages import private_pages
from trainops.runtime.checkpoint.snapshot import SafePoint
from trainops.runtime.checkpoint.store import Candidate, CheckpointPolicy, CheckpointStore
from trainops.runtime.checkpointer import Checkpointer
from trainops.runtime.job import Metrics, StateDict

ROOT = Path(__file__).resolve().parent.parent
MEGABYTES = {50: (1024, 4, 9), 1500: (2048, 30, 3)}  # -> width, layers, rounds
THREADS = {"a core to spare": 1, "every core busy": os.cpu_count() or 1}
BATCH = 32
NUM_STEPS = 8  # at least, in a window
CHUNK = 8 * 2**20
LOADING = (
    "fresh memory", "read, BLAKE3, from disk", "trainops, load, from disk", "read, BLAKE3",
    "trainops, load",
)  # fmt: skip
Spread = tuple[float, float, float]  # lowest, median, highest


class MlpJob:
    """A multilayer perceptron in training with Adam."""

    unit: ClassVar[str] = "step"
    place = "somewhere"
    total_steps = 2**31

    def __init__(self, width: int, num_layers: int) -> None:
        self.step = 0
        layers = [nn.Linear(width, width, bias=False) for _ in range(num_layers)]
        self.model = nn.Sequential(*layers)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-6)
        self.inputs = torch.randn(BATCH, width)

    def advance(self) -> Metrics:
        self.optimizer.zero_grad()
        self.model(self.inputs).square().mean().backward()
        self.optimizer.step()
        self.step += 1
        return {}

    def state_dict(self) -> StateDict:
        learned = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        return {"state": {"step": self.step}, **learned}

    def load_state_dict(self, state: StateDict) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["state"]["step"]

    def result(self) -> dict[str, Any]:
        return {}


class Keeping(Silent):
    """Remembers the newest checkpoint."""

    newest: Checkpoint

    def checkpointed(self, checkpoint: Checkpoint) -> None:
        self.newest = checkpoint


# A contender takes the job and a new directory, and returns whether it has finished.
Contender = Callable[[MlpJob, Path], Callable[[], bool]]


class Ours:
    def __init__(self) -> None:
        self.safe_point = SafePoint(clock=time.monotonic, share=0.005)
        self.supervisor = Keeping()

    def __call__(self, job: MlpJob, directory: Path) -> Callable[[], bool]:
        store = CheckpointStore(directory, identity={"operation_id": "bench"})
        attempt = Checkpointer(store, CheckpointPolicy(), self.supervisor, self.safe_point)
        attempt.start_saving(job, CheckpointType.PERIODIC)
        return attempt.is_free


def torch_save(job: MlpJob, directory: Path) -> Callable[[], bool]:
    torch.save(job.state_dict(), directory / "all.pt")
    return lambda: True


def torch_save_durably(job: MlpJob, directory: Path) -> Callable[[], bool]:
    draft = directory / "all.draft"
    with draft.open("wb") as file:
        torch.save(job.state_dict(), file)
        file.flush()
        os.fsync(file.fileno())
    with draft.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    (directory / "all.sha256").write_text(digest)
    draft.rename(directory / "all.pt")
    return lambda: True


def dcp_async_save(job: MlpJob, directory: Path) -> Callable[[], bool]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it saves in a single process
        future: Any = async_save(job.state_dict(), checkpoint_id=directory / "dcp")

    def is_done() -> bool:
        return future.done() and (future.result() or True)

    return is_done


def main() -> dict[str, Any]:
    """Measure every size and load, print the tables, and return seconds."""
    results = {}
    for megabytes in MEGABYTES:
        for load, threads in THREADS.items():
            command = [sys.executable, "-m", "benchmarks.checkpoint", str(megabytes), str(threads)]
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
            results[f"{megabytes} MB, {load}"] = figures = json.loads(done.stdout)
            _print(f"{megabytes} MB, {load}", figures)
    return {"spread": "lowest, median, highest", "seconds": results}


def _print(title: str, figures: dict[str, Any]) -> None:
    memcpy = figures["limits"]["memcpy"][1]
    print(f"\n{title}: a step takes {figures['step'][1]:.3f} s; seconds, and copies of the state")
    print(f"{'':28}{'stall':>10}{'':18}{'added in all':>14}")
    for name, each in figures["contenders"].items():
        print(f"{name:28}" + "".join(_figure(each[what], memcpy) for what in ("stall", "added")))
    print(f"{'limits':28}{'seconds':>10}{'':18}{'GB/s':>14}")
    for name, spread in figures["limits"].items():
        rate = figures["bytes"] / 1e9 / spread[1]
        print(f"{name:28}{spread[1]:10.4f} ({spread[0]:.4f}-{spread[2]:.4f}){rate:14.2f}")


def _figure(spread: Spread, memcpy: float) -> str:
    low, middle, high = spread
    return f"{middle:9.4f} ({low:.4f} to {high:.4f}) {middle / memcpy:6.2f}x"


def measure(megabytes: int, threads: int) -> dict[str, Any]:
    """Return the spreads of this process's measurements, in seconds."""
    torch.set_num_threads(threads)
    width, num_layers, rounds = MEGABYTES[megabytes]
    num_bytes = 3 * 4 * width * width * num_layers
    with tempfile.TemporaryDirectory(prefix="trainops-bench-") as directory:
        root = Path(directory)
        limits = _limits(num_bytes, root, rounds)
        job, ours = MlpJob(width, num_layers), Ours()
        job.advance()
        contenders: dict[str, Contender] = {
            "trainops": ours,
            "torch.save": torch_save,
            "torch.save, fsync, SHA-256": torch_save_durably,
            "dcp.async_save": dcp_async_save,
        }
        steps, seconds = _turns(job, contenders, root, rounds)
        limits |= _files(job, ours, root, rounds)
    return {
        "bytes": num_bytes,
        "rounds": rounds,
        "step": _spread(steps),
        "contenders": {
            name: {"stall": _spread(stalls), "added": _spread(added)}
            for name, (stalls, added) in seconds.items()
        },
        "limits": {name: _spread(each) for name, each in limits.items()},
    }


def _limits(num_bytes: int, root: Path, rounds: int) -> dict[str, list[float]]:
    """Return what one copy, and one write with fsync, take at best."""
    source = torch.randint(0, 255, (num_bytes,), dtype=torch.uint8)
    target = source.clone()
    seconds: dict[str, list[float]] = {"memcpy": [], "write, fsync": []}
    for number in range(rounds):
        seconds["memcpy"].append(_timed(lambda: target.copy_(source)))
        path = root / f"raw-{number}"
        os.sync()
        seconds["write, fsync"].append(_timed(partial(_write, path, source)))
        path.unlink()
    return seconds


def _write(path: Path, source: torch.Tensor) -> None:
    content = source.numpy().data
    with path.open("xb", buffering=0) as file:
        for first in range(0, len(content), CHUNK):
            file.write(content[first : first + CHUNK])
        os.fsync(file.fileno())


def _turns(
    job: MlpJob, contenders: dict[str, Contender], root: Path, rounds: int
) -> tuple[list[float], dict[str, tuple[list[float], list[float]]]]:
    """Return the seconds of undisturbed steps, and each contender's stalls and added times."""
    steps: list[float] = []
    seconds: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in contenders}
    for number in range(rounds + 1):  # the first round warms up: buffers, imports, caches
        for name, save in contenders.items():
            directory = root / f"{name}-{number}"
            directory.mkdir()
            os.sync()
            before = [_timed(job.advance) for _ in range(NUM_STEPS)]
            stall, elapsed, num_steps = _window(job, save, directory)
            after = [_timed(job.advance) for _ in range(NUM_STEPS // 2)]
            shutil.rmtree(directory)
            if number:
                seconds[name][0].append(stall)
                seconds[name][1].append(elapsed - num_steps * median(before + after))
                steps += before + after
    return steps, seconds


def _window(job: MlpJob, save: Contender, directory: Path) -> tuple[float, float, int]:
    """Save, and train on until that is done; return the stall, all seconds, and the steps."""
    began = time.perf_counter()
    is_done = save(job, directory)
    stall, num_steps = time.perf_counter() - began, 0
    while num_steps < NUM_STEPS or not is_done():
        job.advance()
        num_steps += 1
    return stall, time.perf_counter() - began, num_steps


def _files(job: MlpJob, ours: Ours, root: Path, rounds: int) -> dict[str, list[float]]:
    """Return what writing and loading a checkpoint take when nothing else is done."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds):
        store = CheckpointStore(root / f"files-{number}", identity={"operation_id": "bench"})
        os.sync()
        began = time.perf_counter()
        written = store.write(CheckpointType.FINAL, step=job.step, state=ours.safe_point.state)
        seconds["trainops, write"].append(time.perf_counter() - began)
        for name in LOADING:
            seconds[name].append(_in_a_new_process(name, written.path, written.digest))
        shutil.rmtree(store.root)
    return seconds


def _in_a_new_process(name: str, path: Path, digest: str) -> float:
    """Return the seconds of one of LOADING: who resumes is a new process, too."""
    command = [sys.executable, "-m", "benchmarks.checkpoint", name, str(path), digest]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return float(done.stdout)


def measure_loading(name: str, path: Path, digest: str) -> float:
    """Return the seconds of reading and hashing a checkpoint's files, or of loading it.

    "fresh memory" is the time to allocate and fill as much memory, which a load needs as well.
    """
    if name == "fresh memory":
        num_bytes = sum(each.stat().st_size for each in path.iterdir())
        pages = private_pages(num_bytes, huge=False)
        return _timed(lambda: torch.frombuffer(pages, dtype=torch.uint8).zero_())
    store = CheckpointStore(path.parent, identity={})
    if name.endswith("disk"):
        _forget(path)
    else:
        _read(path)
    if name.startswith("read"):
        return _timed(lambda: _read(path))
    return _timed(lambda: store.load(Candidate(path, digest)))


def _read(directory: Path) -> None:
    chunk = memoryview(bytearray(2**20))
    for path in directory.iterdir():
        hasher = blake3()
        with path.open("rb", buffering=0) as file:
            while size := file.readinto(chunk):
                hasher.update(chunk[:size])
        hasher.digest()


def _forget(directory: Path) -> None:
    """Drop the files from the page cache."""
    for path in directory.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _spread(seconds: list[float]) -> Spread:
    return min(seconds), median(seconds), max(seconds)


if __name__ == "__main__":
    match sys.argv[1:]:
        case name, path, digest:
            print(measure_loading(name, Path(path), digest))
        case megabytes, threads:
            print(json.dumps(measure(int(megabytes), int(threads))))
