"""The other ranks of an attempt, as the loop in rank 0 sees them."""

import contextlib
import os
import select
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from trainops.process import rank_handle
from trainops.process.node_link import NodeLink, RemoteRank
from trainops.process.protocol import now
from trainops.process.rank_handle import END_SECONDS, RankHandle
from trainops.process.rank_process import RankConnection, join, timeout_seconds
from trainops.process.rank_protocol import Capture, Captured, Done, Make, Restore, Step, ToRank
from trainops.process.rendezvous import Rendezvous
from trainops.process.wire import Hangup
from trainops.runtime import rank_state
from trainops.runtime.checkpoint import archives
from trainops.runtime.checkpoint.manifest import Candidate
from trainops.runtime.config import OperationConfig
from trainops.runtime.errors import RankLost
from trainops.runtime.job import ResumableJob, StateDict
from trainops.runtime.ranks import Devices, RankedJob

GRACE_SECONDS = 2.0  # in which the first error of a rank arrives, or its process ends
A = TypeVar("A", Done, Captured)


class RankGroup:
    """Leads the other ranks. Used by the thread of the loop only."""

    def __init__(
        self, devices: Devices, local: Sequence[RankHandle], rendezvous: Rendezvous
    ) -> None:
        self.devices, self._rendezvous = devices, rendezvous
        self._local = local  # on this node
        self._links: Sequence[NodeLink] = ()  # to the other nodes
        self._ranks: Sequence[RankHandle | RemoteRank] = local  # all of them, by number
        self._config: OperationConfig | None = None
        self._timeout_seconds = 0.0
        self._began_at = 0.0  # the newest command, on the clock of deadlines
        self._poll = select.poll()
        for rank in local:
            self._poll.register(rank.wire, select.POLLIN)
        self._logs = [threading.Thread(target=each.forward, daemon=True) for each in local]

    @property
    def descriptors(self) -> list[int]:
        """What a process that is forked later closes."""
        return [rank.wire.fileno() for rank in self._local]

    def connect(self, links: Sequence[NodeLink]) -> None:
        """Lead the ranks of the other nodes, too."""
        self._links = links
        self._ranks = [*self._local, *(rank for link in links for rank in link.ranks)]
        for link in links:
            self._poll.register(link, select.POLLIN)

    def begin(self, config: OperationConfig) -> None:
        """Begin to forward their logs. No process may be forked any more."""
        self._config, self._timeout_seconds = config, timeout_seconds(config)
        for thread in self._logs:
            thread.start()

    def make(self) -> None:
        if self._config is None:
            raise RuntimeError("the ranks have not begun")
        self._send(Make())
        join(self.devices, self._config, self._rendezvous)

    def advance(self) -> None:
        self._send(Step())

    def restore(self, candidate: Candidate) -> None:
        self._send(Restore(candidate))

    def wait(self) -> None:
        self._answers(Done)

    def state_dict(self, job: ResumableJob) -> StateDict:
        if not isinstance(job, RankedJob):
            raise TypeError(f"a {type(job).__name__} cannot be computed by several processes")
        self._send(Capture())
        own = rank_state.fingerprints(job)
        parts: StateDict = {}
        for rank, captured in zip(self._ranks, self._answers(Captured), strict=True):
            rank_state.require_equal(own, captured.fingerprints, rank.number, job.step)
            parts[f"rank{rank.number}"] = archives.read_shared(rank.shared)
        return parts

    def origin(self, error: BaseException) -> BaseException:
        """Return the first error of all ranks. Other errors than RuntimeErrors are rank 0's own."""
        if not isinstance(error, RuntimeError):
            return error
        at = now()
        self._listen(GRACE_SECONDS)
        problems = [problem for rank in self._ranks if (problem := rank.problem()) is not None]
        lost = next((each for each in problems if isinstance(each, RankLost)), None)
        if lost is not None:
            return lost
        silent = [rank for rank in self._ranks if rank.error is None]
        if silent and at - self._began_at >= self._timeout_seconds:
            return silent[0].hanging(self._timeout_seconds)
        earlier = [each for each in self._ranks if each.error is not None and each.error.at < at]
        first = min(earlier, key=lambda each: each.error.at if each.error else at, default=None)
        return error if first is None else first.problem() or error

    def close(self) -> None:
        """End the processes, and forward the last lines of their logs."""
        deadline = now() + END_SECONDS
        for rank in self._local:
            rank.wire.close()
        for link in self._links:
            link.close()
        for rank in self._local:
            rank.end(deadline - now())
        for thread in self._logs:
            if thread.is_alive():  # else they have not begun
                thread.join(END_SECONDS)

    def _send(self, message: ToRank) -> None:
        self._look()
        self._began_at = now()
        receivers: list[RankHandle | NodeLink] = [*self._local, *self._links]
        for each in receivers:
            with contextlib.suppress(Hangup):  # its end is noticed where it is waited for
                each.send(message)

    def _look(self, milliseconds: float = 0) -> None:
        """Take what has arrived. Raises RankFailed and RankLost."""
        if self._poll.poll(milliseconds):
            self._read()
            for rank in self._ranks:
                if (problem := rank.problem()) is not None:
                    raise problem

    def _read(self) -> None:
        for rank in self._local:
            if rank.status is None and rank.wire.has_input(0):
                rank.read()
        for link in self._links:
            link.clear()

    def _listen(self, seconds: float) -> None:
        """Take what arrives until each rank has failed or ended, or the time is over."""
        deadline = now() + seconds
        while any(rank.problem() is None for rank in self._ranks) and now() < deadline:
            if self._poll.poll(10):
                self._read()

    def _answers(self, message_class: type[A]) -> list[A]:
        """Return one answer of each rank. Raises RankFailed and RankLost."""
        while silent := [rank for rank in self._ranks if not rank.answers]:
            if now() - self._began_at >= self._timeout_seconds:
                raise silent[0].hanging(self._timeout_seconds)
            self._look(100)
        answers = [rank.answers.pop(0) for rank in self._ranks]
        return [each for each in answers if isinstance(each, message_class)]


def fork(
    devices: Devices,
    work: Callable[[RankConnection], None],
    *,
    closing: Sequence[int],
    rendezvous: Rendezvous | None = None,
    is_quiet: bool = False,
) -> RankGroup:
    """Fork the other ranks of node 0, which do `work`; see `rank_handle.fork`.

    devices: of rank 0. rendezvous: where ranks are on other nodes, too.
    """
    if rendezvous is None:
        file = os.memfd_create("rendezvous")
        rendezvous = Rendezvous(Path(f"/proc/self/fd/{file}"))
    numbers = range(1, devices.num_local)
    ranks = fork_ranks(devices, numbers, rendezvous, work, closing=closing, is_quiet=is_quiet)
    return RankGroup(devices, ranks, rendezvous)


def fork_ranks(
    devices: Devices,
    numbers: Iterable[int],
    rendezvous: Rendezvous,
    work: Callable[[RankConnection], None],
    *,
    closing: Sequence[int],
    is_quiet: bool = False,
) -> list[RankHandle]:
    """Fork the processes of these ranks; each closes what it inherits of those before it."""
    ranks: list[RankHandle] = []
    for number in numbers:
        inherited = [*closing, *(rank.wire.fileno() for rank in ranks)]
        own = replace(devices, rank=number)
        ranks.append(rank_handle.fork(own, rendezvous, work, closing=inherited, is_quiet=is_quiet))
    return ranks
