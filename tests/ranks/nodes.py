"""Attempts of several nodes in real processes of this machine, with the test as all supervisors."""

import os
import secrets
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tests.ranks.running import Attempts
from trainops.process.protocol import Join, Listening, NodeGroup, NodeSilent, now

SILENCE_SECONDS = 3.0


@dataclass
class NodeAttempts(Attempts):
    """Runs attempts of an operation; each node is led by a child of the forkserver."""

    addresses: tuple[str, ...] = ("127.0.0.1", "127.0.0.1")
    join_seconds: float = 20.0
    token: str = field(default_factory=lambda: secrets.token_hex(32))
    tokens: dict = field(default_factory=dict)  # of nodes that have another one
    silent: list = field(default_factory=list)  # what was said of silent nodes
    of_nodes: object = None  # the forkserver of the other nodes; None: the same
    before_joining: object = None  # called with the port of the leader
    when_silent: object = None
    nodes: list = field(default_factory=list)  # children of the last attempt
    node_output: str = ""

    def _start(self, environment, changes):
        start = super()._start(environment, changes)
        num_nodes = len(self.addresses)
        self.start = replace(
            start,
            num_ranks=start.num_ranks * num_nodes,
            nodes=NodeGroup(
                num_nodes, self.token, self.addresses[0], self.join_seconds, SILENCE_SECONDS
            ),
        )
        self.nodes = []
        return self.start

    def _receive(self, child, message):
        match message:
            case Listening(port=port):
                if self.before_joining is not None:
                    self.before_joining(port)
                for number in range(1, len(self.addresses)):
                    self._join(number, port)
            case NodeSilent(message=text):
                self.silent.append(text)
                child.kill()
                if self.when_silent is not None:
                    self.when_silent()
            case _:
                super()._receive(child, message)

    def _join(self, number, port):
        node = (self.of_nodes or self.forkserver).start(f"{self.root}-{self.num_attempts}-{number}")
        token = self.tokens.get(number, self.token)
        group = replace(self.start.nodes, address=self.addresses[number], token=token)
        start = replace(self.start, nodes=group, candidates=(), grant_until=now() + 100)
        join = Join(start, number, f"host-{number}", self.addresses[0], port)
        node.wire.send(join)
        self.nodes.append(node)

    def attempt(self, fault="", **changes):
        ended = super().attempt(fault, **changes)
        self.end_nodes()
        return ended

    def end_nodes(self):
        """Wait for the end of the other nodes, and read what their processes printed."""
        for node in self.nodes:
            self.ended_by_themselves = node.wait(10)
            node.end()
            os.set_blocking(node.output, False)
            with suppress(BlockingIOError):
                while some := os.read(node.output, 1 << 16):
                    self.node_output += some.decode()
            node.close()
