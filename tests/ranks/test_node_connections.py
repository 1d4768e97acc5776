"""What a node and its leader send each other: by hand, without the processes of an attempt."""

import socket
import subprocess
import threading
import time

import pytest
import torch

from tests.waiting import wait_until
from trainops.process import node_process
from trainops.process.node_listener import NodeListener
from trainops.process.node_process import NodeProcess
from trainops.process.node_protocol import (
    MAX_LINE_BYTES,
    PIECE_BYTES,
    Beat,
    LeaderProof,
    Leaving,
    NodeBeat,
    NodeProof,
    PartPiece,
    RankCaptured,
    RankRaised,
    ToLeader,
    ToNode,
    node_mac,
    versions,
)
from trainops.process.protocol import Grant, NodeGroup, Stop, ToChild, now
from trainops.process.rank_handle import RankHandle
from trainops.process.rank_protocol import Captured, ToRank, ToRankZero
from trainops.process.rendezvous import check_addresses
from trainops.process.wire import Wire
from trainops.runtime.errors import NodeLost
from trainops.version import VERSION

TOKEN = "ab" * 32
GROUP = NodeGroup(3, TOKEN, "127.0.0.1", join_seconds=60.0, silence_seconds=1.0)
LONG = 60.0


def wires(received, received_here):
    """Return both ends of a line: that of the code under test, and that of the test."""
    theirs, ours = socket.socketpair()
    ours.settimeout(LONG)
    return Wire(theirs, received, MAX_LINE_BYTES), Wire(ours, received_here, MAX_LINE_BYTES)


def messages(wire):
    while wire.has_input(LONG):
        yield from wire.read()
    raise AssertionError("nothing was sent")


@pytest.fixture
def clock(monkeypatch):
    """Return the time of the node, as the test sets it."""
    seconds = [0.0]
    monkeypatch.setattr(node_process, "now", lambda: seconds[0])
    return seconds


def test_a_part_that_takes_long_neither_ends_a_node_nor_its_grant(clock, monkeypatch, tmp_path):
    """While a node sends a part, beats of the leader lie unread, and grants are read."""
    granted = []
    monkeypatch.setattr(
        node_process.signal, "setitimer", lambda _, seconds: granted.append(seconds)
    )
    wire, supervisor = wires(ToChild, object)
    leader, ours = wires(ToNode, ToLeader)
    of_rank, rank = wires(ToRankZero, ToRank)
    shared = tmp_path / "part"
    shared.write_bytes(bytes(8 * PIECE_BYTES))
    with subprocess.Popen(["true"], stdout=subprocess.PIPE) as process:
        output = process.stdout.fileno()
        handle = RankHandle(1, process.pid, of_rank, shared, output)
        node = NodeProcess(wire, leader, [handle], silence_seconds=1.0)
        thread = threading.Thread(target=node.serve)
        thread.start()
        rank.send(Captured({}))
        sent = messages(ours)
        pieces = (each for each in sent if isinstance(each, PartPiece))
        next(pieces)
        ours.send(Beat())
        supervisor.send(Grant(1045.0))
        clock[0] = 1000.0
        next(pieces)
        next(pieces)
        wait_until(lambda: granted, 20)  # the line is full: the other pieces are not sent yet
        assert granted == [45.0]
        while not isinstance(next(sent), RankCaptured):
            pass
        supervisor.send(Stop("PREEMPT"))
        assert [type(next(sent)), next(sent)] == [NodeBeat, Leaving()]  # it goes on
        ours.close()
        thread.join()
    for each in (wire, supervisor, rank):
        each.close()


def joining(listener, number, of=None):
    """Return the node's end of a connection that has proved itself."""
    end = socket.create_connection(("127.0.0.1", listener.port), LONG)
    wire = Wire[ToNode](end, ToNode, MAX_LINE_BYTES)
    challenge = next(messages(wire))
    mac = node_mac(TOKEN, challenge.nonce, number, "aa")
    wire.send(NodeProof(number, f"host-{number}", "aa", mac, of or versions()))
    return wire


def test_a_node_that_has_joined_hears_of_its_leader_while_others_have_not():
    listener = NodeListener(GROUP, 3)
    accepted = []
    thread = threading.Thread(target=lambda: accepted.extend(listener.accept(lambda: True)))
    thread.start()
    first = joining(listener, 1)
    received = messages(first)
    assert isinstance(next(received), LeaderProof)
    assert [next(received) for _ in range(3)] == [Beat()] * 3
    second = joining(listener, 2)
    thread.join()
    assert [each.host for each in accepted] == ["host-1", "host-2"]
    for each in (first, second, *accepted):
        each.close()


def test_a_node_with_other_versions_ends_the_attempt():
    listener = NodeListener(GROUP, 6)
    raised = []

    def accept():
        with pytest.raises(NodeLost) as caught:
            listener.accept(lambda: True)
        raised.append(caught.value)

    thread = threading.Thread(target=accept)
    thread.start()
    node = joining(listener, 2, {"torch": "1.0", "trainops": VERSION})
    thread.join(LONG)
    assert str(raised[0]) == (
        f"the node host-2 (ranks 4 to 5) has torch 1.0, trainops {VERSION}; allowed: those of the "
        f"leading node (torch {torch.__version__}, trainops {VERSION})"
    )
    assert raised[0].code == "WORKER_LOST"
    unproved = [each.end for each in listener._unproved]
    for each in (node, listener._socket, listener._store, *unproved):
        each.close()


@pytest.mark.parametrize(
    ("leader", "own", "is_allowed"),
    [
        ("127.0.0.1", "127.0.0.2", True),
        ("10.0.0.1", "10.0.0.2", True),
        ("127.0.0.1", "10.0.0.2", False),
        ("10.0.0.1", "::1", False),
    ],
)
def test_addresses_of_one_machine_and_of_a_network_are_not_mixed(leader, own, is_allowed):
    if is_allowed:
        check_addresses(leader, own)
        return
    with pytest.raises(OSError, match=f"TRAINOPS_NODE_ADDRESS: got {leader} for .* {own} for"):
        check_addresses(leader, own)


def test_an_error_has_the_time_at_which_it_was_raised_however_late_it_arrives():
    node_clock = -1000.0  # beside that of the leader
    group = NodeGroup(2, TOKEN, "127.0.0.1", join_seconds=LONG, silence_seconds=LONG)
    listener = NodeListener(group, 2)
    accepted = []
    thread = threading.Thread(target=lambda: accepted.extend(listener.accept(lambda: True)))
    thread.start()
    node = joining(listener, 1)
    thread.join()
    (link,) = accepted
    link.begin(silent=lambda _: None, stop=lambda: None)
    node.send(NodeBeat(now() + node_clock))
    raised_at = now()
    time.sleep(2)
    at = raised_at + node_clock
    node.send(RankRaised(1, at, at, "JOB_ERROR", "ValueError: boom", ""))
    error = wait_until(lambda: link.ranks[0].error, 20)
    assert abs(error.at - raised_at) < 1
    node.close()
    link.close()
