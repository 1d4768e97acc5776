"""Where the other nodes of an attempt connect to its leading process, once both have proved it."""

import contextlib
import hmac
import secrets
import select
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainops.process.node_link import NodeLink
from trainops.process.node_protocol import (
    BEATS,
    MAX_LINE_BYTES,
    LeaderProof,
    NodeChallenge,
    NodeProof,
    ToLeader,
    leader_mac,
    node_mac,
    versions,
)
from trainops.process.protocol import NodeGroup, now
from trainops.process.rendezvous import Rendezvous, interface_of, listening_at
from trainops.process.wire import Hangup, Wire
from trainops.runtime.errors import NodeLost, RankLost

PROOF_SECONDS = 10.0  # in which a connection must prove that it is a node's
MAX_UNPROVED = 64  # connections; further ones are closed
LOOK_SECONDS = 0.2


@dataclass(slots=True)
class _Unproved:
    """A connection that has not proved yet that it is of this attempt."""

    end: socket.socket
    wire: Wire[ToLeader]
    nonce: str
    until: float


class NodeListener:
    """Listens at the address of this node only. Raises OSError where there is no such address."""

    def __init__(self, group: NodeGroup, num_ranks: int) -> None:
        self._group, self._num_local = group, num_ranks // group.num_nodes
        interface = interface_of(group.address)
        self._socket = listening_at(group.address)
        self._socket.setblocking(False)
        self._store = listening_at(group.address)
        self.rendezvous = Rendezvous(
            host=group.address,
            port=self._store.getsockname()[1],
            interface=interface,
            listening=self._store.fileno(),
        )
        self._unproved: list[_Unproved] = []
        self._links: dict[int, NodeLink] = {}

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    @property
    def descriptors(self) -> list[int]:
        """What a process that is forked closes."""
        return [self._socket.fileno(), self._store.fileno()]

    def accept(self, is_wanted: Callable[[], bool]) -> list[NodeLink]:
        """Wait for all nodes, in the order of their numbers; fewer where it is no longer wanted.

        Raises RankLost where one does not connect in time, or has other versions.
        """
        deadline = now() + self._group.join_seconds
        beat_seconds, beat_at = self._group.silence_seconds / BEATS, 0.0
        while is_wanted() and (missing := self._missing()):
            if now() > deadline:
                seconds = self._group.join_seconds
                nodes = ", ".join(f"node {number}" for number in missing)
                first = missing[0] * self._num_local
                what = f"did not begin: {nodes} did not connect within {seconds:g} s"
                raise RankLost(first, "WORKER_LOST", what)
            self._look()
            if now() >= beat_at:
                beat_at = now() + beat_seconds
                for link in self._links.values():
                    link.beat()
        for each in self._unproved:
            each.wire.close()
        self._socket.close()
        self._store.detach()  # torch's store owns it now
        return [self._links[number] for number in sorted(self._links)]

    def _missing(self) -> list[int]:
        return [each for each in range(1, self._group.num_nodes) if each not in self._links]

    def _look(self) -> None:
        """Handle what has arrived, or wait a moment for it."""
        poll = select.poll()
        for end in (self._socket, *(each.end for each in self._unproved)):
            poll.register(end, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(LOOK_SECONDS * 1000)}
        for each in list(self._unproved):
            if each.end.fileno() in ready:
                self._hear(each)
            elif now() > each.until:
                self._refuse(each)
        if self._socket.fileno() in ready:
            with contextlib.suppress(OSError):  # it has gone again
                self._challenge(self._socket.accept()[0])

    def _challenge(self, end: socket.socket) -> None:
        if len(self._unproved) >= MAX_UNPROVED:
            end.close()
            return
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.settimeout(self._group.silence_seconds)
        wire = Wire[ToLeader](end, ToLeader, MAX_LINE_BYTES)
        each = _Unproved(end, wire, secrets.token_hex(16), now() + PROOF_SECONDS)
        self._unproved.append(each)
        try:
            wire.send(NodeChallenge(each.nonce))
        except Hangup:
            self._refuse(each)

    def _hear(self, each: _Unproved) -> None:
        try:
            for message in each.wire.read():
                self._admit(each, message)
        except (Hangup, ValueError):
            self._refuse(each)

    def _admit(self, each: _Unproved, message: ToLeader) -> None:
        """Make a link of a connection that has proved its node.

        Raises ValueError and Hangup; NodeLost where the node has other versions.
        """
        token = self._group.token
        if not isinstance(message, NodeProof) or message.node not in self._missing():
            raise ValueError("the first message is not the proof of a node that is missing")
        expected = node_mac(token, each.nonce, message.node, message.nonce)
        if not hmac.compare_digest(expected, message.mac):
            raise ValueError("the token is another one")
        first = message.node * self._num_local
        numbers = range(first, first + self._num_local)
        if message.versions != versions():
            what = f"has {_listed(message.versions)}; allowed: those of the leading node"
            raise NodeLost(message.host, numbers, f"{what} ({_listed(versions())})")
        port = self.rendezvous.port
        mac = leader_mac(token, each.nonce, message.nonce, port)
        each.wire.send(LeaderProof(mac, port))
        self._unproved.remove(each)
        self._links[message.node] = NodeLink(
            each.end,
            each.wire,
            host=message.host,
            numbers=numbers,
            silence_seconds=self._group.silence_seconds,
        )

    def _refuse(self, each: _Unproved) -> None:
        self._unproved.remove(each)
        each.wire.close()


def _listed(found: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(found.items()))
