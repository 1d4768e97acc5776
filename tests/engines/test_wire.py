"""Messages over a socket pair: whole, in order, whatever pieces they come in."""

import socket
import threading

import pytest

from trainops.process.protocol import Hangup, Wire


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def heard(wire, count):
    messages = []
    while len(messages) < count:
        messages += wire.read()
    return messages


@pytest.mark.parametrize("size", [0, 10, 70_000, 3_000_000])
def test_messages_are_whole_and_in_order_whatever_their_length(ends, size):
    ours, theirs = map(Wire, ends)
    sent = [{"kind": "one", "text": "a" * size}, {"kind": "two"}, {"kind": "three", "text": "b"}]

    def speak():
        for message in sent:
            ours.send(**message)

    speaker = threading.Thread(target=speak)
    speaker.start()
    assert heard(theirs, 3) == sent
    speaker.join()


@pytest.mark.parametrize("cut", [1, 7, 20])
def test_a_line_may_come_in_pieces(ends, cut):
    line = b'{"kind":"one"}\n{"kind":"two"}\n'
    wire = Wire(ends[1])
    messages = []
    for start in range(0, len(line), cut):
        ends[0].sendall(line[start : start + cut])
        messages += wire.read()
    assert messages == [{"kind": "one"}, {"kind": "two"}]


def test_who_says_more_than_it_may_is_not_listened_to(ends):
    wire = Wire(ends[1], max_bytes=100)
    ends[0].sendall(b'{"kind":"one"}\n' + b"a" * 80)
    assert list(wire.read()) == [{"kind": "one"}]
    ends[0].sendall(b"a" * 80)
    with pytest.raises(Hangup, match="a message of more than 100 bytes"):
        list(wire.read())


def test_the_end_of_the_line_is_told(ends):
    wire = Wire(ends[1])
    ends[0].close()
    with pytest.raises(Hangup):
        list(wire.read())
