"""The process of another node: it forks the ranks of the node, and passes on what is sent.

It decides nothing. Its ranks end with it, and it ends with the line to the leader, where that is
silent, or where its own supervisor is gone.
"""

import base64
import contextlib
import hmac
import os
import secrets
import select
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from trainops.process.node_protocol import (
    BEATS,
    LEADER_PATIENCE,
    MAX_LINE_BYTES,
    PIECE_BYTES,
    Beat,
    CheckpointPiece,
    CheckpointSent,
    LeaderProof,
    Leaving,
    NodeBeat,
    NodeChallenge,
    NodeProof,
    PartPiece,
    Printed,
    PrintStack,
    RankCaptured,
    RankDone,
    RankEnded,
    RankRaised,
    SendCheckpoint,
    ToNode,
    leader_mac,
    node_mac,
    versions,
)
from trainops.process.protocol import Grant, Join, Stop, ToChild, now
from trainops.process.rank_handle import END_SECONDS, LINE_BYTES, RankHandle
from trainops.process.rank_process import RankConnection
from trainops.process.rank_protocol import Captured, Restore, ToRank
from trainops.process.ranks import fork_ranks
from trainops.process.rendezvous import Rendezvous, check_addresses, interface_of
from trainops.process.wire import Hangup, Wire
from trainops.runtime.checkpoint.manifest import Candidate, read_manifest
from trainops.runtime.errors import CheckpointCorrupted
from trainops.runtime.ranks import Devices

CONNECT_SECONDS = 10.0


def run(join: Join, wire: Wire[ToChild], work: Callable[[RankConnection], None]) -> None:
    """Connect to the leader, fork the ranks, which do `work`, and pass on until the line ends.

    Raises OSError where the leader cannot be reached, Hangup where it refuses.
    """
    group = join.start.nodes
    if group is None:
        raise ValueError("the first message names no nodes")
    signal.setitimer(signal.ITIMER_REAL, max(0.001, join.start.grant_until - now()))
    check_addresses(join.leader, group.address)
    interface = interface_of(group.address)
    end = socket.create_connection((join.leader, join.port), CONNECT_SECONDS)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    leader = Wire[ToNode](end, ToNode, MAX_LINE_BYTES)
    port = _proved(leader, join, group.token)
    end.settimeout(group.silence_seconds * LEADER_PATIENCE)
    devices = Devices(0, join.start.num_ranks, group.num_nodes)
    first = join.node * devices.num_local
    ranks = fork_ranks(
        devices,
        range(first, first + devices.num_local),
        Rendezvous(host=join.leader, port=port, interface=interface),
        work,
        closing=[wire.fileno(), leader.fileno()],
    )
    node = NodeProcess(wire, leader, ranks, group.silence_seconds)
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, node.handle_signal)
    node.serve()


def _proved(leader: Wire[ToNode], join: Join, token: str) -> int:
    """Prove to the leader that this is its node; return the port of the store. Raises Hangup."""
    messages = _messages(leader)
    challenge = next(messages)
    if not isinstance(challenge, NodeChallenge):
        raise Hangup(f"the leader began with a {type(challenge).__name__}")
    nonce = secrets.token_hex(16)
    mac = node_mac(token, challenge.nonce, join.node, nonce)
    leader.send(NodeProof(join.node, join.host, nonce, mac, versions()))
    proof = next(messages)
    if not isinstance(proof, LeaderProof):
        raise Hangup(f"the leader sent a {type(proof).__name__} before its proof")
    expected = leader_mac(token, challenge.nonce, nonce, proof.store_port)
    if not hmac.compare_digest(expected, proof.mac):
        raise Hangup("what listens there does not know the token of this attempt")
    return proof.store_port


def _messages(leader: Wire[ToNode]) -> Iterator[ToNode]:
    while True:
        if not leader.has_input(CONNECT_SECONDS):
            raise Hangup("the leader does not respond")
        yield from leader.read()


class NodeProcess:
    """Passes messages on between the leader and the ranks of this node, in one thread."""

    def __init__(
        self,
        wire: Wire[ToChild],
        leader: Wire[ToNode],
        ranks: list[RankHandle],
        silence_seconds: float,
    ) -> None:
        self._wire, self._leader, self._ranks = wire, leader, ranks
        self._silence_seconds = silence_seconds
        self._rests = {rank.number: b"" for rank in ranks}  # of lines that are not whole
        self._outputs = {rank.output for rank in ranks}  # that are not at their end
        self._is_leaving = self._has_left = False
        self._candidate: Candidate | None = None  # to be loaded
        self._copy: Path | None = None  # of the checkpoint that is being received
        self._poll = select.poll()
        for descriptor in (wire.fileno(), leader.fileno()):
            self._poll.register(descriptor, select.POLLIN)
        for rank in ranks:
            self._poll.register(rank.wire, select.POLLIN)
            self._poll.register(rank.output, select.POLLIN)

    def handle_signal(self, *_: object) -> None:
        """Have the leader save and stop, as on `Stop`."""
        self._is_leaving = True

    def serve(self) -> None:
        """Pass on until the line to the leader ends; then the ranks have ended, too."""
        beat_seconds = self._silence_seconds / BEATS
        heard_at, beat_at = now(), 0.0
        with contextlib.suppress(Hangup):
            while True:
                ready = {each for each, _ in self._poll.poll(beat_seconds * 1000)}
                if self._leader.fileno() in ready:
                    for message in self._leader.read():
                        self._do(message)
                    heard_at = now()
                elif now() - heard_at > self._silence_seconds * LEADER_PATIENCE:
                    break
                self._look(ready)
                if now() >= beat_at:
                    beat_at = now() + beat_seconds
                    self._leader.send(NodeBeat(now()))
                if self._is_leaving and not self._has_left:
                    self._has_left = True
                    self._leader.send(Leaving())
        self._end()

    def _look(self, ready: set[int]) -> None:
        """Handle what the supervisor and the ranks sent. Raises Hangup."""
        if self._wire.fileno() in ready:
            self._hear_supervisor()
        for rank in self._ranks:
            if rank.status is None and rank.wire.fileno() in ready:
                self._heard(rank)
            if rank.output in ready & self._outputs:
                self._printed(rank)

    def _hear_supervisor(self) -> None:
        for message in self._wire.read():
            match message:
                case Grant(until=until):
                    signal.setitimer(signal.ITIMER_REAL, max(0.001, until - now()))
                case Stop():
                    self._is_leaving = True

    def _do(self, message: ToNode) -> None:
        match message:
            case Restore(candidate=candidate):
                self._restore(candidate)
            case CheckpointPiece(name=name, content=content):
                self._received(name, base64.b64decode(content))
            case CheckpointSent():
                self._restore_copy()
            case PrintStack(rank=number):
                for rank in self._ranks:
                    if rank.number == number and rank.status is None:
                        os.kill(rank.pid, signal.SIGUSR2)
            case Beat() | NodeChallenge() | LeaderProof():
                return
            case _:
                self._to_ranks(message)

    def _to_ranks(self, message: ToRank) -> None:
        for rank in self._ranks:
            with contextlib.suppress(Hangup):  # its end is noticed by its descriptor
                rank.send(message)

    def _restore(self, candidate: Candidate) -> None:
        """Have the ranks load a checkpoint; ask for its files if they are not here."""
        self._candidate = candidate
        try:
            read_manifest(candidate.path, candidate.digest)
        except (CheckpointCorrupted, OSError):
            self._copy = Path(tempfile.mkdtemp(prefix="checkpoint-")) / candidate.path.name
            self._copy.mkdir()
            self._leader.send(SendCheckpoint())
        else:
            self._to_ranks(Restore(candidate))

    def _received(self, name: str, content: bytes) -> None:
        if self._copy is None or Path(name).name != name:
            raise Hangup(f"the leader sent the file {name[:80]!r}, which was not asked for")
        with (self._copy / name).open("ab") as file:
            file.write(content)

    def _restore_copy(self) -> None:
        if self._copy is None or self._candidate is None:
            raise Hangup("the leader sent a checkpoint that was not asked for")
        self._to_ranks(Restore(replace(self._candidate, path=self._copy)))
        self._copy = None

    def _heard(self, rank: RankHandle) -> None:
        """Pass on what a rank sent, or that it has ended."""
        rank.read()
        while rank.answers:
            answer = rank.answers.pop(0)
            if isinstance(answer, Captured):
                self._send_part(rank)
                self._leader.send(RankCaptured(rank.number, answer.fingerprints))
            else:
                self._leader.send(RankDone(rank.number))
        if (error := rank.error) is not None:
            rank.error = None
            what = error.code, error.message, error.traceback
            self._leader.send(RankRaised(rank.number, error.at, now(), *what))
        if rank.status is not None:
            self._poll.unregister(rank.wire)
            self._leader.send(RankEnded(rank.number, rank.status))

    def _send_part(self, rank: RankHandle) -> None:
        """Send what it captured. That may take minutes, in which the supervisor's grants go on."""
        with rank.shared.open("rb") as file:
            is_first = True
            while piece := file.read(PIECE_BYTES):
                content = base64.b64encode(piece).decode()
                self._leader.send(PartPiece(rank.number, content, is_first))
                is_first = False
                if self._wire.has_input(0):
                    self._hear_supervisor()

    def _printed(self, rank: RankHandle) -> bool:
        """Pass on whole lines; return whether there may be more."""
        some = os.read(rank.output, LINE_BYTES)
        rest = self._rests[rank.number] + some
        whole, newline, rest = rest.rpartition(b"\n")
        if not some or len(rest) > LINE_BYTES:
            whole, newline, rest = whole + newline + rest, b"", b""
        self._rests[rank.number] = rest
        if not some:
            self._poll.unregister(rank.output)
            self._outputs.discard(rank.output)
        if whole:
            self._leader.send(Printed(rank.number, whole.decode("utf-8", "replace")))
        return bool(some)

    def _end(self) -> None:
        """End the ranks, and send the last lines that they print."""
        for rank in self._ranks:
            rank.wire.close()
        deadline = now() + END_SECONDS
        for rank in self._ranks:
            rank.end(deadline - now())
        with contextlib.suppress(Hangup):
            for rank in self._ranks:
                os.set_blocking(rank.output, False)
                with contextlib.suppress(BlockingIOError):  # processes of its own are left
                    while rank.output in self._outputs and self._printed(rank):
                        pass
        self._leader.close()
