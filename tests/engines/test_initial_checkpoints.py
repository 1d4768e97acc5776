"""A server without a GPU writes the first checkpoint of an operation that runs on one."""

from contextlib import contextmanager

import pytest
import torch

from tests.engines.contract import Case, ScriptedSupervisor, undisturbed
from trainops.kind import KINDS
from trainops.process.forking import fork
from trainops.process.warm_start import warm_start
from trainops.runtime import reproducibility
from trainops.runtime.checkpoint.store import Candidate, CheckpointPolicy, CheckpointStore
from trainops.runtime.errors import NotExact
from trainops.runtime.loop import Failed, Succeeded, run

KIND = KINDS["training"]
CASE = Case("training", "short", {"recipe": "toy", "batch_size": 8, "epochs": 1, "threads": 1}, ())
GPU = {"device_type": "cuda", "device_name": "NVIDIA H100", "processor": "of the worker"}
STREAMS = [torch.zeros(16, dtype=torch.uint8)]


@contextmanager
def on_gpu():
    """Compute on a GPU, as far as a checkpoint can tell."""
    here = reproducibility.environment()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reproducibility, "environment", lambda: here | GPU)
        patch.setattr(torch.cuda, "is_initialized", lambda: True)
        patch.setattr(torch.cuda, "device_count", lambda: 1)
        patch.setattr(torch.cuda, "get_rng_state_all", lambda: STREAMS)
        patch.setattr(torch.cuda, "set_rng_state_all", lambda states: None)
        yield


def config(**changes):
    return KIND.parse_config({"seed": 7, **CASE.config, **changes})


@pytest.fixture
def trained(tmp_path):
    """The last checkpoint of a run on a GPU."""
    reproducibility.set_determinism(deterministic=True, threads=1)
    with on_gpu():
        checkpoint = undisturbed(CASE, tmp_path / "source").checkpoints[-1]
    assert checkpoint.environment["device_type"] == "cuda"
    return Candidate(checkpoint.path, checkpoint.digest)


def forked(source, root, after):
    return fork(KIND, source=source, before=config(), after=after, inputs={}, store=store(root))


def warmed(source, root, after):
    return warm_start(KIND, source=source, config=after, inputs={}, store=store(root))[0]


def store(root, *found):
    candidates = [Candidate(each.path, each.digest) for each in found]
    return CheckpointStore(root / "new", identity={"attempt": 0}, candidates=candidates)


def resumed(checkpoint, root, after):
    supervisor = ScriptedSupervisor()
    outcome = run(
        KIND.job_factory(after),
        seed=after.seed,
        store=store(root, checkpoint),
        policy=CheckpointPolicy(every_steps=None, every_seconds=1e9),
        supervisor=supervisor,
        requires_exact=True,
    )
    return outcome, supervisor


@pytest.mark.parametrize("begin", [forked, warmed])
def test_it_continues_exactly_on_the_gpu(trained, tmp_path, begin):
    after = config(epochs=2)
    begun = begin(trained, tmp_path, after)
    with on_gpu():
        outcome, supervisor = resumed(begun, tmp_path, after)
    assert isinstance(outcome, Succeeded), outcome
    receipt = supervisor.receipts[0]
    assert receipt.exact and all(item.restored for item in receipt.items)


def test_a_fork_has_the_environment_of_its_source_and_the_threads_of_its_config(trained, tmp_path):
    source = CheckpointStore(trained.path.parent, identity={}).restore(trained)[0].environment
    begun = forked(trained, tmp_path, config(epochs=2, threads=3))
    assert begun.environment == source | {"threads": 3}
    assert source["device_name"] == "NVIDIA H100" and source["code"]["files"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="it would resume on this GPU")
def test_a_fork_on_another_device_than_its_source_is_not_exact(trained, tmp_path):
    after = config(epochs=2)
    outcome, _ = resumed(forked(trained, tmp_path, after), tmp_path, after)
    assert isinstance(outcome, Failed) and isinstance(outcome.error, NotExact)
    assert "device type: was cuda, is cpu" in str(outcome.error)


def test_a_warm_start_is_new_on_every_device(trained, tmp_path):
    begun = warmed(trained, tmp_path, config(learning_rate=0.5))
    assert begun.environment == {"new_run": True}
    outcome, supervisor = resumed(begun, tmp_path, config(learning_rate=0.5))
    assert isinstance(outcome, Succeeded) and supervisor.receipts[0].exact
