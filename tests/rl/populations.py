"""Jobs of small populations, and what to do with them."""

from tests.rl.cases import CARTPOLE, GRID, of
from trainops.kind import KINDS
from trainops.runtime.checkpoint.snapshot import freeze

__all__ = ["CARTPOLE", "GRID", "job_of", "of", "played", "resumed"]


def job_of(config, seed=7):
    engine = KINDS["rl"]
    return engine.make_job(engine.parse_config({"seed": seed, **config}))


def played(config, steps):
    """Return a job after N steps."""
    job = job_of(config)
    for _ in range(steps):
        job.advance()
    return job


def resumed(job, config):
    """Return a new job that took over the state of another."""
    other = job_of(config)
    other.load_state_dict(freeze(job.state_dict()))
    return other
