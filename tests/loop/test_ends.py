"""A job that has ended, failed or was stopped leaves no worker process and no open descriptor."""

import gc
from multiprocessing import active_children
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset

from tests.engines.contract import Case, ScriptedSupervisor, attempt
from tests.waiting import wait_until
from trainops.files.loading import Surroundings, check_loading
from trainops.kind import KINDS
from trainops.kinds.loop.job import LoopJob
from trainops.process.forking import fork
from trainops.process.warm_start import warm_start
from trainops.runtime.checkpoint.store import Candidate, CheckpointStore
from trainops.runtime.errors import InputError
from trainops.runtime.loop import Stopped, Succeeded

DESCRIPTORS = Path("/proc/self/fd")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="needs /proc"),
]
WORKERS = {"num_workers": 2, "persistent_workers": True}


class Map(Dataset):
    def __init__(self, damaged=None):
        self.damaged = damaged

    def __len__(self):
        return 9

    def __getitem__(self, index):
        if index == self.damaged:
            raise OSError("damaged")
        return torch.full((4,), float(index))


class Stream(IterableDataset):
    def __init__(self, damaged=None):
        self.examples = Map(damaged)

    def __iter__(self):
        yield from map(self.examples.__getitem__, range(9))


def trains(dataset, *, fails_at=None, **options):
    def train(run, parameters):
        model = run.keep("model", nn.Linear(4, 1))
        counts = run.keep("counts", {"steps": 0})
        batches = run.loader("train", dataset, batch_size=3, shuffle=False, **options)
        for _ in run.epochs(2):
            for batch in batches:
                counts["steps"] += 1
                if counts["steps"] == fails_at:
                    raise ValueError("boom")
                yield {"train_loss": model(batch).square().mean()}

    return train


def open_files():
    return sum(1 for _ in DESCRIPTORS.iterdir())


@pytest.fixture
def nothing_left(follow):
    """Run an attempt after a first one, which imports modules; then require that all is closed."""
    follow(trains(Map()))
    before = open_files()
    yield follow
    assert active_children() == []
    wait_until(lambda: open_files() <= before)  # threads of queues close the last ones


@pytest.mark.parametrize("at", [None, 1, 3])
@pytest.mark.parametrize("options", [WORKERS, {"num_workers": 1}, {}])
@pytest.mark.parametrize("make", [Map, Stream])
def test_a_job_that_ends_or_is_stopped_leaves_nothing(nothing_left, make, options, at):
    nothing_left(trains(make(), **options), at=at)


@pytest.mark.parametrize("make", [Map, Stream])
def test_a_job_that_fails_leaves_nothing(nothing_left, make):
    with pytest.raises(ValueError, match="boom") as error:
        nothing_left(trains(make(), fails_at=2, **WORKERS))
    assert active_children() == []
    del error  # its traceback refers to the batch, which lies in shared memory
    gc.collect()


@pytest.mark.parametrize("make", [Map, Stream])
def test_a_job_whose_dataset_fails_in_a_worker_leaves_nothing(nothing_left, make):
    with pytest.raises(InputError, match="damaged") as error:
        nothing_left(trains(make(damaged=7), **WORKERS))
    assert active_children() == []
    del error
    gc.collect()


def test_several_loaders_leave_nothing(nothing_left):
    def train(run, parameters):
        run.keep("model", nn.Linear(4, 1))
        loaders = {name: run.loader(name, Map(), **WORKERS) for name in ("left", "right")}
        both = run.loaders(loaders)
        for _ in run.epochs(2):
            for _, batch in both:
                yield {"train_loss": batch.mean()}

    nothing_left(train, at=3)


@pytest.mark.parametrize("at", [None, 3])
def test_a_module_leaves_nothing(nothing_left, tmp_path, at):
    parameters = {"epochs": 2, "num_workers": 2}
    case = Case("loop", "pair", {"recipe": "pair", "parameters": parameters}, ())
    outcome = attempt(case, tmp_path, ScriptedSupervisor(at=at))
    assert isinstance(outcome, Succeeded if at is None else Stopped)


@pytest.fixture
def stopped(tmp_path):
    """Return a checkpoint in the middle of an epoch of loader workers, and its config."""
    case = Case(
        "loop", "pair", {"recipe": "pair", "parameters": {"epochs": 2, "num_workers": 2}}, ()
    )
    supervisor = ScriptedSupervisor(at=3)
    assert isinstance(attempt(case, tmp_path / "stopped", supervisor), Stopped)
    return supervisor.checkpoints[-1], KINDS["loop"].parse_config({"seed": 7, **case.config})


def checked(checkpoint, config, root):
    candidate = Candidate(checkpoint.path, checkpoint.digest)
    restored, state = CheckpointStore(checkpoint.path.parent, identity={}).restore(candidate)
    found = check_loading(restored, state, Surroundings("loop", config.model_dump()))
    assert "loaded into a fresh job" in found.detail


def forked(checkpoint, config, root):
    store = CheckpointStore(root, identity={"attempt": 0})
    source = Candidate(checkpoint.path, checkpoint.digest)
    fork(KINDS["loop"], source=source, before=config, after=config, inputs={}, store=store)


def warmed(checkpoint, config, root):
    store = CheckpointStore(root, identity={"attempt": 0})
    source = Candidate(checkpoint.path, checkpoint.digest)
    warm_start(KINDS["loop"], source=source, config=config, inputs={}, store=store)


@pytest.mark.parametrize("load", [checked, forked, warmed])
def test_a_job_that_only_loads_a_checkpoint_leaves_nothing(stopped, tmp_path, monkeypatch, load):
    closed = []
    monkeypatch.setattr(LoopJob, "close", wrapped(LoopJob.close, closed))
    load(*stopped, tmp_path / "new")
    assert len(closed) == 1
    assert active_children() == []


def wrapped(close, closed):
    def close_and_count(job):
        closed.append(job)
        close(job)

    return close_and_count
