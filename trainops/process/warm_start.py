"""A warm start: the first checkpoint of a new operation, with the weights of another's."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from trainops.kind import Kind
from trainops.runtime import rank_state, reproducibility
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.checkpoint.store import Candidate, Checkpoint, CheckpointStore, CheckpointType
from trainops.runtime.checkpointer import RANDOM
from trainops.runtime.config import OperationConfig
from trainops.runtime.errors import IncompatibleState
from trainops.runtime.job import ResumableJob, StateDict, WarmStarting, closed_after
from trainops.runtime.ledger import Ledger
from trainops.runtime.receipt import NEW_RUN, Receipt, ReceiptItem

MAX_NAMED = 10
Weights = Mapping[str, object]  # the state dict of a model


def warm_start(
    engine: Kind,
    *,
    source: Candidate,
    config: OperationConfig,
    inputs: Mapping[str, Path],
    store: CheckpointStore,
    ledger: Ledger | None = None,
) -> tuple[Checkpoint, Receipt]:
    """Write the state of a new job, with the weights of a checkpoint, as its first checkpoint.

    Tensors are taken by name where the shapes are equal; the receipt names the others. The job
    takes the state before anything is written. The manifest says that the run is new: it begins
    exactly on any machine. Raises CheckpointCorrupted, IncompatibleState,
    InputError and SaveFailed.
    """
    reproducibility.set_determinism(config.deterministic, config.threads)
    checkpoint, given = CheckpointStore(source.path.parent, identity={}).restore(source)
    with closed_after(engine.make_job(config, inputs, ledger)) as job:
        if not isinstance(job, WarmStarting):
            raise IncompatibleState(f"operations of kind {engine.name} cannot start with weights")
        state, items = _with_weights(job, job.weights, given)
        written = store.write(
            CheckpointType.PERIODIC, step=job.step, state=state, environment={NEW_RUN: True}
        )
        return written, Receipt(job.step, checkpoint.path.name, tuple(items))


def _with_weights(
    job: ResumableJob, weights: Mapping[str, str], given: StateDict
) -> tuple[StateDict, list[ReceiptItem]]:
    """Return the state that the job has loaded, with its random streams, and what was taken."""
    streams = reproducibility.state_dict()
    state, items = job.state_dict(), []
    for part, source_part in weights.items():
        state[part], item = _filled(part, state[part], given.get(source_part, {}))
        items.append(item)
    if not any(item.restored for item in items):
        notes = "; ".join(f"{item.part}: {item.note}" for item in items)
        raise IncompatibleState(f"none of the weights can be taken ({notes})")
    state = freeze(state)
    rank_state.hand_over(job, {}, is_check=True)
    job.load_state_dict(dict(state))
    return state | {RANDOM: streams}, items


def _filled(part: str, own: Weights, given: object) -> tuple[Weights, ReceiptItem]:
    """Return the weights with those that are given, and what was taken."""
    found = given if isinstance(given, Mapping) else {}
    common = own.keys() & found.keys()
    fitting = {name for name in common if _shape(own[name]) == _shape(found[name])}
    shapes = [
        f"{name} {_shape(found[name])}, not {_shape(own[name])}"
        for name in sorted(common - fitting)
    ]
    problems = [
        f"{what}: {_named(names)}"
        for what, names in (
            ("missing", sorted(own.keys() - found.keys())),
            ("unexpected", sorted(found.keys() - own.keys())),
            ("of another shape", shapes),
        )
        if names
    ]
    note = "; ".join([f"{len(fitting)} of {len(own)} tensors", *problems])
    item = ReceiptItem(part, restored=bool(fitting), exact=not problems, note=note)
    taken = {name: _as(own[name], found[name]) for name in fitting}
    return {name: taken.get(name, each) for name, each in own.items()}, item


def _as(own: object, given: object) -> object:
    """Return what is given, in the type of the own tensor."""
    return given.to(own.dtype) if isinstance(own, Tensor) and isinstance(given, Tensor) else given


def _shape(value: object) -> tuple[int, ...] | None:
    return tuple(value.shape) if isinstance(value, Tensor) else None


def _named(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
