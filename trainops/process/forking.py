"""A fork: the first checkpoint of a new operation, made of another operation's."""

from collections.abc import Mapping
from pathlib import Path

from trainops.kind import Kind
from trainops.lazy import load
from trainops.runtime import reproducibility
from trainops.runtime.attempt import RANDOM
from trainops.runtime.checkpoint.store import Candidate, Checkpoint, CheckpointStore, CheckpointType
from trainops.runtime.config import OperationConfig
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.ledger import PrivacyLedger


def fork(
    engine: Kind,
    *,
    source: Candidate,
    before: OperationConfig,
    after: OperationConfig,
    inputs: Mapping[str, Path],
    store: CheckpointStore,
    ledger: PrivacyLedger | None = None,
) -> Checkpoint:
    """Write a checkpoint that was made under one config as the first one under another.

    A job of the new config takes the state before anything is written. Raises CheckpointCorrupted,
    IncompatibleState, InputError and SaveFailed.
    """
    reproducibility.set_determinism(after.deterministic, after.threads)
    checkpoint, state = CheckpointStore(source.path.parent, identity={}).restore(source)
    streams = {RANDOM: state.pop(RANDOM)} if RANDOM in state else {}
    if engine.adapt:
        state = load(engine.adapt)(state, before, after)
    job = engine.make_job(after, inputs, ledger)
    job.load_state_dict(dict(state))
    if job.step != checkpoint.step:
        raise IncompatibleState(f"it would be at step {job.step}, not {checkpoint.step}")
    return store.write(CheckpointType.PERIODIC, step=checkpoint.step, state=state | streams)
