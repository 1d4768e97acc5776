"""Take part in an attempt that another worker leads: start the process of this node, and watch it.

It writes nothing of the operation; whatever goes wrong, the leader ends the attempt.
"""

import logging
import os
import threading
import time
from pathlib import Path

from django.conf import settings
from django.db import connection

from apps.checkpoints import storage
from apps.operations import inputs
from apps.operations.attempts import preparation
from apps.operations.attempts.children import Child, ForkServer, ForkServerUnavailable
from apps.operations.attempts.finalization import AWAY
from apps.operations.attempts.node_address import own_address
from apps.operations.lifecycle import Reason
from apps.operations.models import Node, Operation
from apps.operations.scheduling.slots import RunningAttempt, Slots
from trainops.clock import DatabaseNow
from trainops.kind import KINDS
from trainops.process.protocol import (
    Grant,
    Join,
    Listening,
    NodeGroup,
    NodeSilent,
    OfNodes,
    Start,
    Stop,
    now,
)
from trainops.process.wire import Hangup

logger = logging.getLogger(__name__)
LOOK_SECONDS = 0.25
EXIT_SECONDS = 5.0
MAX_OUTPUT_BYTES = 10_000  # that are kept of what its process prints
STOPPING = "its worker is stopping"


def take(worker_id: str, host: str, slots: Slots) -> Node | None:
    """Return what this worker is to start, with its operation; its slots are free already."""
    for node in Node.objects.pending(worker_id).select_related("operation"):
        if slots.gone_at is not None:
            _end(node, STOPPING)
        elif slots.has_room(node.operation.processes, filter(None, node.device.split(","))):
            started = Node.objects.pending(worker_id).filter(pk=node.pk)
            if started.update(started_at=DatabaseNow(), host=host):
                node.host = host
                return node
    return None


def refuse_pending(worker_id: str) -> None:
    """End what this worker was promised and has not started: it is stopping."""
    pending = Node.objects.pending(worker_id)
    pending.update(ended_at=DatabaseNow(), problem=STOPPING)


def running(node: Node, sent_at: float) -> RunningAttempt:
    """Return what holds the slots of a node."""
    return RunningAttempt(
        node.operation_id,
        node.attempt,
        node.device,
        sent_at,
        processes=node.operation.processes,
        node=node.pk,
    )


def supervise(forkserver: ForkServer, node: Node, held: RunningAttempt) -> None:
    """Run the processes of the node to their end. When this returns, nothing of them is left."""
    logger.info("%s: node %s of attempt %s begins", node.operation_id, node.number, node.attempt)
    problem = ""
    try:
        child = forkserver.start(f"{node.operation_id}:{node.attempt}:{node.number}")
        problem = _Supervision(node, held, child).run()
    except ForkServerUnavailable as error:
        problem = str(error)
    _end(node, problem)
    logger.info(
        "%s: node %s has ended%s", node.operation_id, node.number, f": {problem}" if problem else ""
    )


def _end(node: Node, problem: str) -> None:
    Node.objects.filter(pk=node.pk).update(ended_at=DatabaseNow(), problem=problem)


class _Supervision:
    def __init__(self, node: Node, held: RunningAttempt, child: Child) -> None:
        self.node, self.held, self.child = node, held, child
        self.nobody_waits = threading.Event()
        self.is_joined = self.is_told = False
        self.granted_for = held.renewed_at
        self.output = b""

    def run(self) -> str:
        """Return why it ended before its leader; empty: it did not."""
        os.set_blocking(self.child.output, False)
        try:
            problem = self._watch()
        except Hangup:
            self.child.wait(EXIT_SECONDS)
            problem = ""
        except Exception as error:  # whatever it is: the leader waits for this node
            logger.exception("%s: node %s", self.node.operation_id, self.node.number)
            problem = f"{type(error).__name__}: {error}"
        finally:
            self.nobody_waits.set()
            self.child.end()
            self._read_output()
            self.child.close()
        if not problem and self.child.exit_code:
            printed = self.output.decode("utf-8", "replace").strip().rpartition("\n")[2]
            problem = f"its process ended with exit code {self.child.exit_code}; {printed}"
        return problem

    def _watch(self) -> str:
        """Return why it must end. Raises Hangup where its process has ended."""
        prepared = preparation.of_node(self.node.operation, self.nobody_waits)
        is_prepared = False
        while not (reason := self._reason_to_end()):
            if not is_prepared:
                is_prepared = next(prepared, preparation.DONE) is preparation.DONE
            elif not self.is_joined:
                self.is_joined = self._join()
            else:
                self._send_what_is_due()
            self._read_output()
            if self.child.wire.has_input(LOOK_SECONDS):
                list(self.child.wire.read())  # it sends nothing: that is its end
        return reason

    def _reason_to_end(self) -> str:
        held = self.held
        if held.is_lost or held.stop == Operation.Stop.KILL:
            return "the attempt has ended"
        if now() - held.renewed_at > settings.THRESHOLDS.fence_kill_seconds:
            return "this worker could not reach the database"
        if held.must_be_gone_at is not None:
            if not self.is_joined:
                return STOPPING
            if now() > held.must_be_gone_at:
                return "its worker had to go before the attempt ended"
        return ""

    def _join(self) -> bool:
        """Send the first message, once the leader listens; return whether it was sent."""
        try:
            row = Node.objects.filter(pk=self.node.pk).exclude(port=None)
            found = row.values_list("leader", "port").first()
        except AWAY:
            connection.close()
            return False
        if found is None:
            return False
        leader, port = found
        start = self._start_message()
        self.child.wire.send(Join(start, self.node.number, self.node.host, leader, int(port or 0)))
        return True

    def _start_message(self) -> Start:
        node, operation = self.node, self.node.operation
        config = KINDS[operation.kind].parse_config(operation.config)
        paths = inputs.paths(operation.kind, config, inputs.models_of(operation))
        num_nodes = Node.objects.filter(operation=operation, attempt=node.attempt).count() + 1
        return Start(
            kind=operation.kind,
            config=operation.config,
            inputs={name: Path(path) for name, path in paths.items()},
            directory=storage.operation_directory(operation.pk),
            storage_id="",
            operation_id=operation.pk,
            attempt=node.attempt,
            config_hash=operation.config_hash,
            input_digests={},
            has_self_check=False,
            candidates=(),
            reserve_bytes=0,
            grant_until=self._grant_until,
            environment={"CUDA_VISIBLE_DEVICES": node.device},
            num_ranks=config.num_processes * num_nodes,
            nodes=group(num_nodes, node.token),
        )

    @property
    def _grant_until(self) -> float:
        return self.held.renewed_at + settings.THRESHOLDS.child_deadline_seconds

    def _send_what_is_due(self) -> None:
        if self.held.renewed_at > self.granted_for:
            self.granted_for = self.held.renewed_at
            self.child.wire.send(Grant(self._grant_until))
        if self.held.must_be_gone_at is not None and not self.is_told:
            self.is_told = True
            self.child.wire.send(Stop("PREEMPT"))

    def _read_output(self) -> None:
        try:
            while some := os.read(self.child.output, 1 << 16):
                self.output = (self.output + some)[-MAX_OUTPUT_BYTES:]
        except BlockingIOError:
            return


def group(num_nodes: int, token: str) -> NodeGroup:
    """Return what the process of a node on this worker knows of the nodes."""
    limits = settings.THRESHOLDS
    return NodeGroup(
        num_nodes, token, own_address(), limits.node_join_seconds, limits.node_silence_seconds
    )


class Gathering:
    """The leader's side: where the other nodes connect, and what keeps them from it."""

    def __init__(self, operation: Operation) -> None:
        self._rows = Node.objects.filter(operation_id=operation.pk, attempt=operation.attempt)
        self._is_possible = operation.nodes > 1
        self._is_over, self._looked_at = True, 0.0
        self._silence = ""
        self.reason = Reason.WORKER_LOST  # of the end of the attempt, where there is a problem

    def group(self) -> NodeGroup | None:
        """Return the nodes of the attempt; None: there is one only."""
        tokens = list(self._rows.values_list("token", flat=True)) if self._is_possible else []
        self._is_over = not tokens
        return group(len(tokens) + 1, tokens[0]) if tokens else None

    def receive(self, message: OfNodes) -> None:
        match message:
            case Listening(port=port):
                self._rows.update(leader=own_address(), port=port)
            case NodeSilent(message=text):  # the child may wait for that node in vain
                self._silence = text

    def all_connected(self) -> None:
        self._is_over = True

    def problem(self) -> str:
        """Return what has become of a node that is lost, or ended before it connected."""
        if self._silence:
            return self._silence
        if self._is_over or time.monotonic() - self._looked_at < LOOK_SECONDS:
            return ""
        self._looked_at = time.monotonic()
        ended = self._rows.exclude(ended_at=None).first()
        if ended is None:
            return ""
        if ended.problem == STOPPING:  # the restart is not counted
            self.reason = Reason.SHUTDOWN
        return f"the node {ended.host or ended.worker_id} did not begin: {ended.problem}"
