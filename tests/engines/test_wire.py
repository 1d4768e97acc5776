"""Messages over a socket pair: intact, in order, in whatever pieces they arrive."""

import fcntl
import math
import socket
import threading
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from trainops.checking import messages as checks
from trainops.messages import encoded
from trainops.process import protocol
from trainops.process.protocol import (
    Append,
    Committed,
    Grant,
    NotStored,
    ProgressUpdate,
    Restored,
    Staged,
    Start,
    SubtaskEnded,
    ToChild,
    ToSupervisor,
)
from trainops.process.rank_protocol import ToRank, ToRankZero
from trainops.process.wire import Hangup, Wire
from trainops.recipe_checks import RecipeCheck, RecipeCheckAnswer
from trainops.runtime.checkpoint.manifest import (
    Artifact,
    Candidate,
    CheckpointType,
    StagedCheckpoint,
)
from trainops.runtime.ledger import Entry
from trainops.runtime.receipt import Receipt, ReceiptItem
from trainops.runtime.subtasks import Subtask, SubtaskResult
from trainops.sinks.wandb_messages import WandbRow, WandbRun

ENTRY = Entry(
    identity="n", step=3,
    values={"text": "user", "none": None, "whole": 4, "float": 1.0, "large": 1e16, "yes": True},
)  # fmt: skip
FILES = (Artifact("model.pt", 10, "ab", home="a0001-s0000000001-periodic"),)
MESSAGES = [
    ProgressUpdate(7, 30, "epoch 1", ((6, 1.5, {"loss": 0.25}), (7, 2.5, {"loss": -math.inf}))),
    Restored(Receipt(7, "a0001-s0000000007-final", (ReceiptItem("model"),), is_evaluating=True)),
    Append((ENTRY, ENTRY)),
    Staged(StagedCheckpoint("d", CheckpointType.FINAL, 7, "ef", FILES, {"round": 1}, 0.5)),
]
START = Start(
    kind="training",
    config={"seed": 1, "optimizer": {"lr": 0.1}},
    inputs={"ds_1": Path("/data/1.parquet")},
    directory=Path("/checkpoints/op_1"),
    storage_id="s",
    operation_id="op_1",
    attempt=3,
    config_hash="c0",
    input_digests={"ds_1": "ab"},
    has_self_check=False,
    candidates=(Candidate(Path("/checkpoints/op_1/a0002-s0000000001-final"), "cd"),),
    reserve_bytes=10,
    grant_until=5.0,
    ledger=protocol.LedgerState("00ff", (ENTRY,)),
    subtask=Subtask(1, 2, {"epochs": 2}, 2, name="client 3", given=Candidate(Path("/x"), "ab")),
)


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def received(wire, count):
    messages = []
    while len(messages) < count:
        messages += wire.read()
    return messages


@pytest.mark.parametrize("size", [0, 10, 70_000, 3_000_000])
def test_messages_are_intact_and_in_order_whatever_their_length(ends, size):
    ours, theirs = (Wire(end, ToChild) for end in ends)
    sent = [NotStored("a" * size), Committed(), NotStored("b")]
    sender = threading.Thread(target=lambda: [ours.send(each) for each in sent])
    sender.start()
    assert received(theirs, 3) == sent
    sender.join()


@pytest.mark.parametrize("message", MESSAGES, ids=lambda each: type(each).__name__)
def test_a_message_arrives_as_an_equal_object(ends, message):
    ours, theirs = (Wire(end, ToSupervisor) for end in ends)
    ours.send(message)
    assert received(theirs, 1) == [message]


def test_paths_and_nested_objects_arrive_as_what_they_were(ends):
    ours, theirs = (Wire(end, ToChild) for end in ends)
    sent = SubtaskEnded(SubtaskResult(1, 2, "done", Candidate(Path("/x/y"), "ab"), (ENTRY,)))
    ours.send(sent)
    assert received(theirs, 1) == [sent]


def test_the_first_message_arrives_as_an_equal_object(ends):
    ours, theirs = (Wire(end, ToChild) for end in ends)
    ours.send(START)
    assert received(theirs, 1) == [START]


def test_the_identity_in_manifests_is_made_of_the_fields_of_the_first_message():
    identity = {
        "operation_id": "op_1",
        "attempt": 3,
        "kind": "training",
        "config_hash": "c0",
        "config": {"seed": 1, "optimizer": {"lr": 0.1}},
        "inputs": {"ds_1": "ab"},
    }
    assert [*replace(START, subtask=None).identity.items()] == [*identity.items()]
    assert [*START.identity.items()] == [*identity.items(), ("subtask", "client 3")]


def test_no_field_of_a_message_is_of_type_any():
    seen = set()

    def look(annotation, place):
        assert annotation is not Any, place
        if is_dataclass(annotation) and annotation not in seen:
            seen.add(annotation)
            hints = get_type_hints(annotation)
            for each in fields(annotation):
                look(hints[each.name], f"{annotation.__name__}.{each.name}")
        for part in get_args(annotation):
            look(part, place)

    for received in (
        protocol.ToChild, protocol.ToSupervisor, protocol.ToSecond, protocol.Checked,
        ToRank, ToRankZero, checks.Request, checks.Answer, RecipeCheck, RecipeCheckAnswer,
        WandbRun, WandbRow,
    ):  # fmt: skip
        look(received, "messages")
    assert {Start, Subtask, Candidate, Receipt, Entry, checks.CheckedJob, WandbRun} <= seen


def test_a_metric_that_is_not_a_number_arrives(ends):
    ours, theirs = (Wire(end, ToSupervisor) for end in ends)
    ours.send(ProgressUpdate(1, 2, "", ((1, 0.0, {"loss": math.nan}),)))
    (message,) = received(theirs, 1)
    assert math.isnan(message.points[0][2]["loss"])


@pytest.mark.parametrize("text", ["a\0b", "file-\udcff.pt"])
def test_text_that_no_database_stores_is_replaced(ends, text):
    ours, theirs = (Wire(end, ToChild) for end in ends)
    ours.send(NotStored(text))
    (message,) = received(theirs, 1)
    assert "\0" not in message.error and message.error.encode()


@pytest.mark.parametrize("cut", [1, 7, 20])
def test_a_line_may_come_in_pieces(ends, cut):
    line = encoded(Committed()) + encoded(Grant(3.0))
    wire = Wire(ends[1], ToChild)
    messages = []
    for start in range(0, len(line), cut):
        ends[0].sendall(line[start : start + cut])
        messages += wire.read()
    assert messages == [Committed(), Grant(3.0)]


def test_a_message_that_is_too_long_ends_the_line(ends):
    wire = Wire(ends[1], ToChild, max_bytes=100)
    ends[0].sendall(encoded(Committed()) + b"a" * 80)
    assert list(wire.read()) == [Committed()]
    ends[0].sendall(b"a" * 80)
    with pytest.raises(Hangup, match="a message of more than 100 bytes"):
        list(wire.read())


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"Grant {}\n", "Grant: until: got a dict; Field required"),
        (b'Grant {"until":"soon"}\n', "Grant: until: got a str; Input should be a valid number"),
        (b"Grant 1}\n", "Grant: got b'1}'; allowed: JSON"),
        (b"Start {}\n", "Start: kind: "),
        (b"Staged {}\n", "got a message b'Staged'; allowed: Start, Join, Grant"),
        (b"__import__ {}\n", "got a message b'__import__'"),
    ],
)
def test_a_line_that_is_no_message_of_the_other_side_is_refused(ends, line, problem):
    ends[0].sendall(line)
    with pytest.raises(ValueError, match=problem):
        list(Wire(ends[1], ToChild).read())


def test_a_closed_end_is_noticed(ends):
    wire = Wire(ends[1], ToChild)
    ends[0].close()
    with pytest.raises(Hangup):
        list(wire.read())


def test_a_descriptor_above_1023_is_waited_for():
    """As a server or worker with many connections and files has."""
    ours, theirs = socket.socketpair()
    high = socket.socket(fileno=fcntl.fcntl(ours, fcntl.F_DUPFD, 1024))
    ours.close()
    with theirs, high:
        wire = Wire(high, ToChild)
        assert high.fileno() > 1023 and not wire.has_input(0.01)
        theirs.sendall(b"x")
        assert wire.has_input(60)
        theirs.close()
        assert wire.has_input(60)
