"""Parts of a job that a supervisor has done elsewhere, as the attempt's own process sees it."""

import queue
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainops.process.protocol import Message, now
from trainops.runtime.checkpoint.manifest import Candidate
from trainops.runtime.ledger import Entry
from trainops.runtime.subtasks import Part, Returned


class Errands:
    """Speaks over the wire: `say` sends a message, `hear` is called by the thread that listens."""

    def __init__(self, say: Callable[..., None]) -> None:
        self.saved_step: int | None = None
        self.problem = ""
        self._say = say
        self._directory = ""  # of the newest checkpoint
        self._heard: queue.SimpleQueue[Message | None] = queue.SimpleQueue()  # None: wake up
        self._began: dict[int, float] = {}  # when a round's parts went out, on the boot clock

    def send(self, parts: Sequence[Part]) -> None:
        told = [{name: each for name, each in asdict(part).items() if name != "given"}
                for part in parts]  # fmt: skip
        self._say("delegate", directory=self._directory, parts=told)

    def drop(self, number: int, clients: Sequence[int]) -> None:
        self._say("drop", round=number, clients=list(clients))

    def heard(self, seconds: float) -> Sequence[Returned]:
        try:
            first = self._heard.get(timeout=seconds)
        except queue.Empty:
            return []
        messages = [first]
        while not self._heard.empty():
            messages.append(self._heard.get())
        return [_returned(each) for each in messages if each is not None]

    def age_seconds(self, number: int) -> float:
        return now() - self._began[number] if number in self._began else 0.0

    def hear(self, message: Message) -> None:
        if message["kind"] == "out":
            self._began = {message["round"]: now() - message["age_seconds"]}
        self._heard.put(message if message["kind"] == "returned" else None)

    def wake(self) -> None:
        """Have whoever waits look around."""
        self._heard.put(None)

    def saved(self, step: int, directory: str) -> None:
        """Hear that a checkpoint is committed, or is what the run began from."""
        self.saved_step, self._directory, self.problem = step, directory, ""
        self.wake()


def _returned(message: Message) -> Returned:
    found = message["checkpoint"]
    return Returned(
        round=message["round"],
        client=message["client"],
        how=message["how"],
        checkpoint=Candidate(Path(found["path"]), found["digest"]) if found else None,
        spent=[Entry(**each) for each in message["spent"]],
        note=message["note"],
    )


def part_of(told: dict[str, Any]) -> Part:
    """Return the part that a start message is about."""
    given = told["given"]
    return Part(
        told["round"], told["client"], told["epochs"], told["begins_with"],
        given=Candidate(Path(given["path"]), given["digest"]),
    )  # fmt: skip
