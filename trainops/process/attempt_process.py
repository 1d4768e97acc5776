"""The process of one attempt: it computes, and answers to its supervisor over the wire.

It has no database, no credentials and no way to decide how the operation ends. Four things end it
when its supervisor is gone: the kernel (PR_SET_PDEATHSIG), the end of the wire, the supervisor's
own kill, and a timer of the kernel that only a grant moves on, which fires even while the
interpreter is stuck in foreign code.
"""

import math
import os
import signal
import socket
import sys
from collections.abc import Iterable, Sequence
from functools import partial

from trainops.kind import KINDS, Kind
from trainops.messages import prepare
from trainops.process import exit_codes, node_process, selfcheck, twin
from trainops.process.node_listener import NodeListener
from trainops.process.node_protocol import ToLeader, ToNode
from trainops.process.protocol import Join, LedgerState, Start, ToChild, ToSecond
from trainops.process.rank_process import RankConnection, RankProcess
from trainops.process.rank_protocol import ToRank, ToRankZero
from trainops.process.ranks import RankGroup, fork
from trainops.process.supervisor_client import SupervisorClient
from trainops.process.wire import Wire
from trainops.runtime import errors, reproducibility
from trainops.runtime.checkpoint.store import CheckpointPolicy, CheckpointStore
from trainops.runtime.config import OperationConfig
from trainops.runtime.job import ResumableJob
from trainops.runtime.ledger import Entry, MemoryLedger
from trainops.runtime.loop import Directive, Outcome, Stopped, run
from trainops.runtime.ranks import ALONE, Devices

prepare(ToChild)  # once, by the forkserver that imports this
prepare(ToSecond)
prepare(ToRank)
prepare(ToRankZero)
prepare(ToNode)
prepare(ToLeader)


def main(descriptor: int) -> int:
    """Run the attempt that arrives on this end of the wire; return the exit code."""
    wire = Wire[ToChild](socket.socket(fileno=descriptor), ToChild, max_bytes=math.inf)
    start, more = _first_messages(wire)
    if isinstance(start, Join):
        node_process.run(start, wire, partial(_follow, start.start))
        return 0
    listener = None if start.nodes is None else NodeListener(start.nodes, start.num_ranks)
    ranks = _ranks(start, [descriptor], listener)  # before there are threads, as the second process
    second = _second(start, [descriptor, *(ranks.descriptors if ranks else [])])
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    supervisor = SupervisorClient(wire, grant_until=start.grant_until, second=second)
    for number in (signal.SIGTERM, signal.SIGUSR1):  # the latter: some time before a batch job ends
        signal.signal(number, supervisor.handle_signal)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    supervisor.listen(more)
    try:
        if listener is not None and ranks is not None and not _gather(listener, supervisor, ranks):
            supervisor.finish(Stopped(supervisor.directive))
        else:
            supervisor.finish(_run(start, supervisor, ranks))
    except errors.LeaseLost:
        return exit_codes.LEASE_LOST  # another attempt owns the operation: write and send nothing
    except Exception as error:  # noqa: BLE001 - the one place where an attempt's outcome is sent
        supervisor.fail(error, "PLATFORM_ERROR")
    finally:
        if ranks is not None:
            ranks.close()
    return 0


def _first_messages(wire: Wire[ToChild]) -> tuple[Start | Join, Sequence[ToChild]]:
    """Return the first message, and those that came with it: perhaps a `Stop`."""
    messages: list[ToChild] = []
    while not messages:
        messages += wire.read()
    start, *more = messages
    if not isinstance(start, Start | Join):
        raise TypeError(f"the first message is a {type(start).__name__}, neither Start nor Join")
    return start, more


def _ranks(
    start: Start,
    closing: Sequence[int],
    listener: NodeListener | None = None,
    *,
    is_quiet: bool = False,
) -> RankGroup | None:
    """Return the other ranks of the attempt; None where there is one process only."""
    if start.num_ranks == 1:
        return None
    num_nodes = 1 if start.nodes is None else start.nodes.num_nodes
    devices = Devices(0, start.num_ranks, num_nodes)
    closed = closing if listener is None else [*closing, *listener.descriptors]
    return fork(
        devices,
        partial(_follow, start),
        closing=closed,
        rendezvous=None if listener is None else listener.rendezvous,
        is_quiet=is_quiet,
    )


def _gather(listener: NodeListener, supervisor: SupervisorClient, ranks: RankGroup) -> bool:
    """Wait for the other nodes, and lead their ranks; return whether that is still wanted."""
    supervisor.listening(listener.port)
    links = listener.accept(lambda: supervisor.directive is Directive.PROCEED)
    ranks.connect(links)
    for link in links:
        link.begin(silent=supervisor.node_silent, stop=supervisor.handle_signal)
    return supervisor.directive is Directive.PROCEED


def _follow(start: Start, line: RankConnection) -> None:
    """Do the work of the process of another rank."""
    kind, config = _prepared(start)
    make_job = partial(kind.make_job, config, start.inputs, None, None)
    RankProcess(line, config, make_job).serve()


def _second(start: Start, closing: Sequence[int]) -> twin.Twin | None:
    """Return the process that checks the first checkpoint.

    A subtask has none (ADR 30), nor do several nodes: each would need second processes.
    """
    is_possible = start.subtask is None and start.nodes is None
    if not is_possible or not start.has_self_check:
        return None
    return twin.fork(partial(_checked, start), closing=closing)


def _checked(start: Start, wire: Wire[ToSecond]) -> None:
    """Do the second process's work, with ranks of its own."""
    ranks = _ranks(start, [wire.fileno()], is_quiet=True)
    kind, config = _prepared(start)
    devices = _led(ranks, config)

    def make_job(entries: Iterable[Entry]) -> ResumableJob:
        if start.ledger is None:
            return kind.make_job(config, start.inputs, devices=devices)
        secret = bytes.fromhex(start.ledger.secret)
        ledger = MemoryLedger(entries, secret=secret, is_durable=True)
        return kind.make_job(config, start.inputs, ledger)

    selfcheck.attend(make_job, config.seed, wire, ranks)


def _prepared(start: Start) -> tuple[Kind, OperationConfig]:
    os.environ.update(start.environment)
    kind = KINDS[start.kind]
    config = kind.parse_config(start.config)
    reproducibility.set_determinism(config.deterministic, config.threads)
    return kind, config


def _led(ranks: RankGroup | None, config: OperationConfig) -> Devices:
    """Begin to lead the ranks, if there are others; return what the job of rank 0 is given."""
    if ranks is None:
        return ALONE
    ranks.begin(config)
    return ranks.devices


def _run(start: Start, supervisor: SupervisorClient, ranks: RankGroup | None) -> Outcome:
    kind, config = _prepared(start)
    devices = _led(ranks, config)
    store = CheckpointStore(
        start.directory,
        identity=start.identity,
        candidates=start.candidates,
        reserve_bytes=start.reserve_bytes,
        storage_id=start.storage_id,
    )
    policy = CheckpointPolicy(
        every_steps=config.checkpoint.every_steps,
        every_seconds=config.checkpoint.every_seconds,
        least_seconds=config.checkpoint.least_seconds,
    )
    ledger = None if start.ledger is None else _Ledger(supervisor, start.ledger)
    supervisor.begin_self_check(config, ledger)

    def make_job() -> ResumableJob:
        if start.subtask is not None:
            return kind.make_subtask(config, start.inputs, ledger, start.subtask)
        job = kind.make_job(config, start.inputs, ledger, supervisor.subtasks, devices)
        return supervisor.looked_at(job)

    return run(
        make_job,
        seed=config.seed,
        store=store,
        policy=policy,
        supervisor=supervisor,
        requires_exact=start.requires_exact,
        begun=supervisor.begun,
        ranks=ranks,
    )


class _Ledger(MemoryLedger):
    """The operation's ledger; the supervisor records what is appended here."""

    def __init__(self, supervisor: SupervisorClient, state: LedgerState) -> None:
        super().__init__(state.entries, secret=bytes.fromhex(state.secret), is_durable=True)
        self._supervisor = supervisor

    def append(self, entries: Sequence[Entry]) -> None:
        self._supervisor.append(entries)
        super().append(entries)
