"""A fork: the first checkpoint of a new operation, made of another operation's."""

from collections.abc import Mapping
from pathlib import Path

from trainops.kind import Kind
from trainops.lazy import load
from trainops.runtime import rank_state, reproducibility
from trainops.runtime.checkpoint.store import Candidate, Checkpoint, CheckpointStore, CheckpointType
from trainops.runtime.checkpointer import RANDOM
from trainops.runtime.config import OperationConfig
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.job import closed_after
from trainops.runtime.ledger import Ledger
from trainops.runtime.ranks import split
from trainops.runtime.receipt import CHOSEN


def fork(
    engine: Kind,
    *,
    source: Candidate,
    before: OperationConfig,
    after: OperationConfig,
    inputs: Mapping[str, Path],
    store: CheckpointStore,
    ledger: Ledger | None = None,
) -> Checkpoint:
    """Write a checkpoint that was made under one config as the first one under another.

    A job of the new config takes the state before anything is written. The manifest has the
    environment of the source, where the state was computed, with what the new config chooses of
    it. Raises CheckpointCorrupted, IncompatibleState, InputError and SaveFailed.
    """
    reproducibility.set_determinism(after.deterministic, after.threads)
    checkpoint, state = CheckpointStore(source.path.parent, identity={}).restore(source)
    streams = {RANDOM: state.pop(RANDOM)} if RANDOM in state else {}
    state, of_ranks = split(state)
    if engine.adapt:
        state = load(engine.adapt)(state, before, after)
    with closed_after(engine.make_job(after, inputs, ledger)) as job:
        rank_state.hand_over(job, of_ranks, is_check=True)
        job.load_state_dict(dict(state))
        if job.step != checkpoint.step:
            raise IncompatibleState(f"it would be at step {job.step}, not {checkpoint.step}")
    here: Mapping[str, object] = reproducibility.environment()
    return store.write(
        CheckpointType.PERIODIC,
        step=checkpoint.step,
        state=state | streams | of_ranks,
        environment={**checkpoint.environment, **{name: here[name] for name in CHOSEN}},
    )
