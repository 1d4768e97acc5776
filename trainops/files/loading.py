"""Verify a trainops checkpoint as a resume does: load it into a fresh job of its own config."""

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import torch

from trainops.files.checks import CheckResult
from trainops.files.errors import InvalidFields
from trainops.files.known import checks_of
from trainops.kind import KINDS, Kind
from trainops.runtime import rank_state, reproducibility
from trainops.runtime.checkpoint.manifest import Checkpoint
from trainops.runtime.checkpoint.snapshot import freeze
from trainops.runtime.checkpointer import RANDOM
from trainops.runtime.config import OperationConfig
from trainops.runtime.errors import ConfigError, IncompatibleState, InputError
from trainops.runtime.job import ResumableJob, StateDict, closed_after
from trainops.runtime.ledger import MemoryLedger
from trainops.runtime.ranks import split
from trainops.runtime.subtasks import is_of_subtask


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a checkpoint alone does not hold.

    `config` is its operation's where the manifest has none (checkpoints of older versions);
    `inputs` are paths by the ids that the config names; `secret` is that of a privacy account,
    None where it is not known.
    """

    kind: str = ""
    config: Mapping[str, object] | None = None
    inputs: Mapping[str, Path] | None = None
    secret: bytes | None = None


def check_loading(checkpoint: Checkpoint, state: StateDict, around: Surroundings) -> CheckResult:
    """Load the parts into a fresh job, and compare what it then stands at.

    Random streams of this process stand afterwards where they stood before. What cannot be had
    here, as data, is a warning that names it. Raises InvalidFields where a resume would fail.
    """
    kind = around.kind or str(checkpoint.identity.get("kind", ""))
    configs = (around.config, checkpoint.identity.get("config"), state["state"].get("config"))
    raw = next((each for each in configs if each is not None), None)
    if kind not in KINDS or not isinstance(raw, Mapping):
        return _not_tried("the checkpoint contains no config (written by an older version)")
    if is_of_subtask(checkpoint.identity):
        return _not_tried("it belongs to a subtask; resume its parent's checkpoint")
    engine = KINDS[kind]
    try:
        config = engine.parse_config(raw)
    except ConfigError as error:
        return _not_tried(f"its config is not valid here: {error}")
    if problem := _missing(engine, config, around):
        return _not_tried(problem)
    with _streams_kept(config):
        return _loaded(engine, config, checkpoint, state, around)


def _loaded(
    engine: Kind,
    config: OperationConfig,
    checkpoint: Checkpoint,
    state: StateDict,
    around: Surroundings,
) -> CheckResult:
    ledger = MemoryLedger(secret=around.secret or b"") if "ledger" in engine.ports else None
    try:
        job = engine.make_job(config, around.inputs or {}, ledger)
    except (InputError, OSError, RuntimeError) as error:
        return _not_tried(f"a job cannot be created from its config here: {error}")
    with closed_after(job):
        return _taken(engine, job, checkpoint, state)


def _taken(
    engine: Kind, job: ResumableJob, checkpoint: Checkpoint, state: StateDict
) -> CheckResult:
    """Have the job load the state, and advance where its kind compares what comes of that."""
    checks = checks_of(engine)
    trial = checks.trial if checks else None
    before = trial.before(job) if trial else None
    parts, of_ranks = split(dict(freeze(state)))
    streams = parts.pop(RANDOM, {})
    with _raised_as_incompatible("a resume would fail"):
        rank_state.hand_over(job, of_ranks, is_check=True)
        job.load_state_dict(parts)
        if job.step != checkpoint.step:
            raise IncompatibleState(f"the job is at step {job.step}, not {checkpoint.step}")
        reproducibility.load_state_dict(streams)
    warnings = trial.after(job, state, before) if trial else []
    compared = f"loaded into a fresh job of kind {checkpoint.identity.get('kind', '')}".rstrip()
    detail = f"{compared}: at {job.unit} {job.step}, {job.place}"
    if trial is not None:
        with _raised_as_incompatible("the first step after a resume would fail"):
            if job.step < job.total_steps:
                job.advance()
        detail += f"; {trial.compared}"
    else:
        detail += "; compared: what the job checks of each part; no step was made"
    return CheckResult(detail, warnings)


def _missing(engine: Kind, config: OperationConfig, around: Surroundings) -> str:
    """Return what would be needed and is not here."""
    names = [*engine.dataset_ids(config), *config.models()]
    if absent := [name for name in names if name not in (around.inputs or {})]:
        return f"its config needs {', '.join(absent)}, which are not here; verify it by its id"
    if around.secret is None and engine.uses_ledger(config.model_dump(mode="json")):
        return "the updates of its clients are masked with a secret of its installation"
    return ""


def _not_tried(why: str) -> CheckResult:
    return CheckResult("the other checks remain valid", [f"not loaded into a job: {why}"])


@contextmanager
def _streams_kept(config: OperationConfig) -> Iterator[None]:
    """Make and load a job as an attempt does; leave streams, threads and output as they were."""
    before, threads = reproducibility.state_dict(), torch.get_num_threads()
    is_deterministic = torch.are_deterministic_algorithms_enabled()
    try:
        with redirect_stdout(io.StringIO()):  # a recipe may print
            reproducibility.set_determinism(config.deterministic, config.threads)
            yield
    finally:
        reproducibility.set_determinism(is_deterministic, threads)
        reproducibility.load_state_dict(before)


@contextmanager
def _raised_as_incompatible(what: str) -> Iterator[None]:
    try:
        yield
    except IncompatibleState as error:
        raise InvalidFields({what: str(error)}) from error
    except Exception as error:  # of the job's own code, whatever the state made it do
        raise InvalidFields({what: repr(error)[:300]}) from error
