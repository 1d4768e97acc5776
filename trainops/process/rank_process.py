"""The process of a rank other than 0: it has a job of its own, and follows rank 0."""

import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed

from trainops.process.failure_messages import failure_message
from trainops.process.protocol import now
from trainops.process.rank_protocol import (
    Capture,
    Captured,
    Done,
    Make,
    RankError,
    Restore,
    Step,
    ToRank,
)
from trainops.process.reason_codes import reason_code
from trainops.process.rendezvous import Rendezvous
from trainops.process.wire import Hangup, Wire
from trainops.runtime import rank_state, reproducibility
from trainops.runtime.checkpoint import archives
from trainops.runtime.checkpoint.manifest import Candidate, read_manifest
from trainops.runtime.checkpoint.store import CheckpointStore
from trainops.runtime.checkpoint.stream import part_of
from trainops.runtime.config import OperationConfig
from trainops.runtime.devices import choose_device
from trainops.runtime.errors import ConfigError, IncompatibleState
from trainops.runtime.job import Composed, ResumableJob, close
from trainops.runtime.ranks import Devices, DividedJob, RankedJob, is_rank_part, split

DEVICES = "CUDA_VISIBLE_DEVICES"
TIMEOUT_SHARE = 0.9  # of the stall timeout: a rank that hangs is named before the attempt is killed


def join(devices: Devices, config: OperationConfig, rendezvous: Rendezvous) -> None:
    """Join the process group: NCCL where each rank has a GPU, gloo on CPUs.

    To be called before the first use of CUDA: a rank sees its own GPU only. Raises ConfigError.
    """
    if config.device != "cpu" and (visible := _visible_devices()):
        os.environ[DEVICES] = _own_device(visible, devices)
    is_on_gpu = choose_device(config.device).type == "cuda"
    distributed.init_process_group(
        "nccl" if is_on_gpu else "gloo",
        store=rendezvous.store(devices),
        rank=devices.rank,
        world_size=devices.num_ranks,
        timeout=timedelta(seconds=timeout_seconds(config)),
        device_id=torch.device("cuda", 0) if is_on_gpu else None,
    )


def timeout_seconds(config: OperationConfig) -> float:
    """Return for how long a rank waits for the others."""
    return TIMEOUT_SHARE * config.limits.stall_timeout_seconds


def _visible_devices() -> str:
    """Return the GPUs of this attempt: without the variable, as in a check, all of the machine.

    torch counts them by NVML, which leaves CUDA as it is.
    """
    visible = os.environ.get(DEVICES)
    return ",".join(map(str, range(torch.cuda.device_count()))) if visible is None else visible


def _own_device(visible: str, devices: Devices) -> str:
    given = visible.split(",")
    if len(given) < devices.num_local:
        problem = f"got {devices.num_local}; this attempt has {len(given)} GPUs ({visible})"
        raise ConfigError({"processes": f"{problem}; allowed: one process for each GPU, or fewer"})
    return given[devices.local_rank]


@dataclass(frozen=True, slots=True)
class RankConnection:
    """What connects the process of a rank with rank 0."""

    devices: Devices
    wire: Wire[ToRank]
    shared: Path  # memory that both processes have
    rendezvous: Rendezvous


class RankProcess:
    """Does what rank 0 sends, until the line ends or an exception is raised."""

    def __init__(
        self,
        line: RankConnection,
        config: OperationConfig,
        make_job: Callable[[Devices], ResumableJob],
    ) -> None:
        self._line, self._devices = line, line.devices
        self._config, self._make_job = config, make_job
        self._job: RankedJob | None = None

    def serve(self) -> None:
        wire = self._line.wire
        try:
            while True:
                for message in wire.read():
                    if (reply := self._handle(message)) is not None:
                        wire.send(reply)
        except Hangup:
            return  # rank 0 has ended
        except Exception as error:  # noqa: BLE001 - the one place where an error of a rank is sent
            wire.send(_rank_error(error))
        finally:
            close(self._job)

    def _handle(self, message: ToRank) -> Done | Captured | None:
        match message:
            case Step():
                self.job.advance()
                return None
            case Make():
                self._make()
            case Restore(candidate=candidate):
                self._restore(candidate)
            case Capture():
                return self._capture()
        return Done()

    @property
    def job(self) -> RankedJob:
        if self._job is None:
            raise RuntimeError("the job is not made yet")
        return self._job

    def _make(self) -> None:
        """Make the job as rank 0 does, with the same weights; then draw other random numbers."""
        join(self._devices, self._config, self._line.rendezvous)
        reproducibility.seed_all(self._config.seed)
        job = self._make_job(self._devices)
        if not isinstance(job, RankedJob):
            raise TypeError(f"a {type(job).__name__} cannot be computed by several processes")
        reproducibility.include(job.objects if isinstance(job, Composed) else dict)
        rank_state.seed_rank(self._config.seed, self._devices)
        self._job = job

    def _restore(self, candidate: Candidate) -> None:
        """Load what this rank needs: of divided models of as many ranks, its own part."""
        artifacts = read_manifest(candidate.path, candidate.digest).artifacts
        names = {name for each in artifacts if is_rank_part(name := part_of(each.name))}
        is_as_many = len(names) == self._devices.num_ranks - 1
        is_divided = isinstance(self.job, DividedJob) and self.job.is_divided
        left_out = names - {f"rank{self._devices.rank}"} if is_as_many and is_divided else ()
        store = CheckpointStore(candidate.path.parent, identity={})
        state, of_ranks = split(store.load(candidate, left_out=left_out))
        state.pop(rank_state.STREAMS, None)
        rank_state.hand_over(self.job, of_ranks)
        self.job.load_state_dict(state)
        own = of_ranks.get(f"rank{self._devices.rank}")
        if not is_as_many or own is None:
            rank_state.seed_rank(self._config.seed, self._devices, self.job.step)
        elif isinstance(own, dict):
            rank_state.load_rank_part(self.job, own)
        else:
            raise IncompatibleState(f"rank{self._devices.rank} is no dict in the state")

    def _capture(self) -> Captured:
        archives.write_shared(rank_state.rank_part(self.job), self._line.shared)
        return Captured(rank_state.fingerprints(self.job))


def _rank_error(error: Exception) -> RankError:
    at = now()
    trace = "".join(traceback.format_exception(error))
    code = reason_code(error) or "JOB_ERROR"
    return RankError(at, code, failure_message(error), trace[-20_000:])
