"""Another node of an attempt, as the leading process sees it: its ranks, and the line to it.

A thread receives what the node sends, and notices where it sends nothing any more.
"""

import base64
import contextlib
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from trainops.process.node_protocol import (
    BEATS,
    PIECE_BYTES,
    Beat,
    CheckpointPiece,
    CheckpointSent,
    Leaving,
    NodeBeat,
    PartPiece,
    Printed,
    PrintStack,
    RankCaptured,
    RankDone,
    RankEnded,
    RankRaised,
    SendCheckpoint,
    ToLeader,
    ToNode,
)
from trainops.process.protocol import now
from trainops.process.rank_handle import END_SECONDS, STACK_SECONDS, lost
from trainops.process.rank_protocol import Captured, Done, RankError, Restore, ToRank
from trainops.process.wire import Hangup, Wire
from trainops.runtime.errors import NodeLost, RankFailed, RankLost

if TYPE_CHECKING:
    from trainops.runtime.checkpoint.manifest import Candidate

NUM_CLOCKS = 16  # of the latest messages with a time
CLOSE_SECONDS = END_SECONDS + 1.0  # in which a node ends its ranks and sends their last lines


@dataclass(slots=True)
class RemoteRank:
    """One rank of another node."""

    number: int
    link: "NodeLink"
    shared: Path  # memory with the part of the state that it captured last
    answers: list[Done | Captured] = field(default_factory=list)  # not taken yet
    error: RankError | None = None
    status: int | None = None  # of its end, as `os.waitstatus_to_exitcode` gives it
    loss: NodeLost | None = None  # of its node

    def problem(self) -> RankFailed | RankLost | None:
        """Return why it will not answer any more, if that is so."""
        if self.error is not None:
            error = self.error
            return RankFailed(self.number, error.code, error.message, error.traceback)
        if self.status is not None:
            return lost(self.number, self.status, f"on {self.link.host} ")
        return self.loss

    def hanging(self, seconds: float) -> RankLost:
        """Return the error of a process that does not respond; it prints its stack to the log."""
        with contextlib.suppress(Hangup):
            self.link.send(PrintStack(self.number))
        time.sleep(STACK_SECONDS)
        what = f"on {self.link.host} did not respond within {seconds:g} s"
        return RankLost(self.number, "STALLED", what)


class NodeLink:
    """The line to another node, on which a thread listens."""

    def __init__(
        self,
        end: socket.socket,
        wire: Wire[ToLeader],
        *,
        host: str,
        numbers: range,
        silence_seconds: float,
    ) -> None:
        self._socket, self._wire, self.host = end, wire, host
        self.ranks = [
            RemoteRank(number, self, Path(f"/proc/self/fd/{os.memfd_create(f'rank{number}')}"))
            for number in numbers
        ]
        self._by_number = {rank.number: rank for rank in self.ranks}
        self._silence_seconds = silence_seconds
        self._sending = threading.Lock()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK)
        self._candidate: Candidate | None = None  # of the last `Restore`
        self._clocks: deque[float] = deque(maxlen=NUM_CLOCKS)
        self._silent: Callable[[NodeLost], None] = lambda _: None
        self._stop: Callable[[], None] = lambda: None
        self._is_closing = False
        self._thread = threading.Thread(target=self._listen, name="node", daemon=True)

    def begin(self, *, silent: Callable[[NodeLost], None], stop: Callable[[], None]) -> None:
        """Listen. In that thread `silent` gets the error of a node that does not respond.

        stop: called there, where the worker of the node is stopping.
        """
        self._silent, self._stop = silent, stop
        self._thread.start()

    def fileno(self) -> int:
        """A descriptor that can be read as soon as something has arrived."""
        return self._bell

    def clear(self) -> None:
        """Note that what has arrived was seen."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)

    def send(self, message: ToRank | PrintStack) -> None:
        """Send a message to all ranks of the node, or about one. Raises Hangup."""
        if isinstance(message, Restore):
            self._candidate = message.candidate
        with self._sending:
            self._wire.send(message)

    def beat(self) -> None:
        """Tell the node that the leader is there, before `begin`.

        Where it has ended, the thread notices.
        """
        with contextlib.suppress(Hangup, OSError):
            self._send(Beat())

    def close(self) -> None:
        """Have the node end, and print the last lines of its logs."""
        self._is_closing = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)
        self._wire.close()

    def _listen(self) -> None:
        try:
            self._receive()
        except TimeoutError:
            self._silent(self._lose(f"did not respond within {self._silence_seconds:g} s"))
        except (Hangup, ConnectionError):
            self._lose("has ended")
        except (ValueError, KeyError, OSError) as error:
            self._lose(f"failed: {type(error).__name__}: {error}")

    def _receive(self) -> None:
        """Handle what the node sends, and send beats. Raises TimeoutError and Hangup."""
        beat_seconds = self._silence_seconds / BEATS
        heard_at, beat_at = now(), 0.0
        while True:
            if self._wire.has_input(beat_seconds):
                for message in self._wire.read():
                    self._handle(message)
                heard_at = now()
            elif now() - heard_at > self._silence_seconds:
                raise TimeoutError
            if now() >= beat_at and not self._is_closing:
                beat_at = now() + beat_seconds
                self._send(Beat())

    def _lose(self, what: str) -> NodeLost:
        loss = NodeLost(self.host, [rank.number for rank in self.ranks], what)
        for rank in self.ranks:
            rank.loss = loss
        os.eventfd_write(self._bell, 1)
        return loss

    def _send(self, message: ToNode) -> None:
        with self._sending:
            try:
                self._wire.send(message)
            except Hangup as error:  # its buffer was full for as long as a silent node may be
                raise (error.__cause__ or error) from None

    def _handle(self, message: ToLeader) -> None:
        match message:
            case Printed(rank=number, text=text):
                lines = text.splitlines()
                os.write(1, "".join(f"[rank {number}] {line}\n" for line in lines).encode())
            case PartPiece(rank=number, content=content, is_first=is_first):
                with self._by_number[number].shared.open("wb" if is_first else "ab") as file:
                    file.write(base64.b64decode(content))
            case NodeBeat(sent_at=sent_at):
                self._compare_clocks(sent_at)
            case Leaving():
                self._stop()
            case SendCheckpoint():
                self._send_checkpoint()
            case RankDone() | RankCaptured() | RankRaised() | RankEnded():
                self._heard_of(self._by_number[message.rank], message)
                os.eventfd_write(self._bell, 1)

    def _compare_clocks(self, sent_at: float) -> None:
        """Note how far this clock is ahead of that of the node, and how long the message took.

        The least of several is closest to the first. Clocks drift apart: older ones do not count.
        """
        self._clocks.append(now() - sent_at)

    def _heard_of(
        self, rank: RemoteRank, message: RankDone | RankCaptured | RankRaised | RankEnded
    ) -> None:
        match message:
            case RankDone():
                rank.answers.append(Done())
            case RankCaptured(fingerprints=fingerprints):
                rank.answers.append(Captured(fingerprints))
            case RankRaised(code=code, message=text, traceback=trace):
                self._compare_clocks(message.sent_at)
                rank.error = RankError(message.at + min(self._clocks), code, text, trace)
            case RankEnded(status=status):
                rank.status = status

    def _send_checkpoint(self) -> None:
        if self._candidate is None:
            raise ValueError("a node asked for a checkpoint before it was given one")
        for message in _pieces(self._candidate.path):
            self._send(message)
        self._send(CheckpointSent())


def _pieces(directory: Path) -> Iterator[CheckpointPiece]:
    for path in sorted(each for each in directory.iterdir() if each.is_file()):
        with path.open("rb") as file:
            piece = file.read(PIECE_BYTES)
            while True:
                yield CheckpointPiece(path.name, base64.b64encode(piece).decode())
                if not (piece := file.read(PIECE_BYTES)):
                    break
