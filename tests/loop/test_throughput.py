"""What each form counts for the points of its speed: examples, and seconds of waiting."""

import time

import pytest
import torch
from torch.utils.data import IterableDataset

from tests.loop.datasets import Augmented, Stream
from trainops.kind import KINDS
from trainops.kinds.loop.course import Course
from trainops.kinds.loop.run import Run
from trainops.runtime.errors import ConfigError, InputError
from trainops.runtime.job import Measured

WAIT_SECONDS = 0.002


def new_run():
    return Run(Course(lambda: None), seed=3, device=torch.device("cpu"), inputs={})


class Slow(Augmented):
    def __getitem__(self, index):
        time.sleep(WAIT_SECONDS)
        return super().__getitem__(index)


class Texts(IterableDataset):
    def __iter__(self):
        yield from (["a", "b"], ["c"])


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_loader_counts_its_examples_and_the_time_until_they_are_there(num_workers):
    run = new_run()
    for _ in run.loader("train", Slow(10), batch_size=4, num_workers=num_workers):
        pass
    counted = run.throughput
    assert counted.num_samples == 10
    assert counted.wait_seconds >= 10 * WAIT_SECONDS / max(1, num_workers)


def test_several_loaders_and_streams_are_counted_together():
    run = new_run()
    loaders = {
        "a": run.loader("a", Augmented(7), batch_size=3),
        "b": run.loader("b", Stream(4), batch_size=3),
    }
    for _ in run.loaders(loaders, length=5):
        pass
    assert run.throughput.num_samples == 11


def test_batches_of_unknown_size_and_loops_without_loaders_have_no_examples():
    run = new_run()
    assert (run.throughput.num_samples, run.throughput.wait_seconds) == (None, None)
    for _ in run.loader("train", Texts(), batch_size=None):
        pass
    assert run.throughput.num_samples is None
    assert run.throughput.wait_seconds > 0


FORMS = {
    "training": ({"recipe": "toy", "batch_size": 8}, 8, "training"),
    "loop": ({"recipe": "digits_loop"}, None, "loop"),
    "module": ({"recipe": "pair"}, 4, "loop"),
    "lightning": ({"recipe": "lit"}, None, "loop"),
    "transformers": ({"recipe": "hugging", "monitor": "eval_loss"}, 4, "loop"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.slow
def test_every_form_counts_its_examples(form):
    if form in ("lightning", "transformers"):
        pytest.importorskip({"lightning": "lightning.pytorch"}.get(form, form))
    given, batch_size, kind = FORMS[form]
    job = KINDS[kind].make_job(KINDS[kind].parse_config(given), {}, None)
    try:
        assert isinstance(job, Measured)
        job.advance()
        counted = job.throughput
        assert counted.num_samples == batch_size if batch_size else counted.num_samples > 1
        assert counted.wait_seconds > 0
    finally:
        if hasattr(job, "close"):
            job.close()


def test_a_loop_cannot_yield_a_metric_that_looks_measured(follow):
    def train(run, parameters):
        for _ in run.epochs(2):
            yield {"system/samples_per_second": 1.0}

    with pytest.raises(InputError, match="allowed: names that do not begin with system/"):
        follow(train)


def test_a_measured_metric_cannot_be_monitored():
    with pytest.raises(ConfigError, match="monitor: got 'system/samples_per_second'"):
        KINDS["loop"].parse_config(
            {"recipe": "digits_loop", "monitor": "system/samples_per_second"}
        )
