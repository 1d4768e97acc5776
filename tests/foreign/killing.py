"""Attempts that are killed by SIGKILL at drawn steps of a run, or while they begin."""

import contextlib
import os
import random
import signal
import threading
import time
from dataclasses import dataclass, field

from tests.ranks.running import Attempts
from trainops.process.protocol import ProgressUpdate, Restored, Staged, Succeeded

EARLY = 0.2  # probability of a kill before the state is restored
LATEST = 0.75  # of all steps: a kill comes somewhat later than its step
DELAY_SECONDS = 0.15


@dataclass
class KilledAttempts(Attempts):
    """`start_seconds`: from the fork to the state restored, of the first attempt."""

    start_seconds: float = 0.0
    kills: list[str] = field(default_factory=list)
    _kill_step: int | None = None
    _delay: float = 0.0
    _timer: threading.Timer | None = None
    _began: float = 0.0

    def undisturbed(self):
        """Run to the end."""
        ended = self.attempt()
        assert isinstance(ended, Succeeded), (ended, self.output)
        return self

    def killed(self, drawn: random.Random, num_kills: int, expected: "KilledAttempts"):
        """Kill num_kills attempts, at ascending steps of the whole run; then run to the end."""
        most = int(LATEST * expected.committed[-1].step)
        for step in sorted(drawn.randint(0, most) for _ in range(num_kills)):
            if drawn.random() < EARLY:
                self._kill_step, self._delay = None, drawn.uniform(0, expected.start_seconds)
            else:
                self._kill_step, self._delay = step, drawn.uniform(0, DELAY_SECONDS)
            ended = self.attempt()
            assert ended == -signal.SIGKILL, (ended, self.output)
            saved = self.committed[-1].step if self.committed else 0
            when = "at the start" if self._kill_step is None else f"after step {step}"
            self.kills.append(f"{when} + {self._delay:.3f} s; saved: {saved}")
        self._kill_step, self._delay = None, 0.0
        return self.undisturbed()

    def attempt(self, fault="", **changes):
        try:
            return super().attempt(fault, **changes)
        finally:
            if self._timer is not None:
                self._timer.cancel()
                self._timer.join()
                self._timer = None

    def _start(self, environment, changes):
        self._began = time.monotonic()
        if self._kill_step is None and self._delay:
            self._kill_later()
        return super()._start(environment, changes)

    def _receive(self, child, message):
        super()._receive(child, message)
        step = -1
        match message:
            case Restored(receipt=receipt):
                self.start_seconds = self.start_seconds or time.monotonic() - self._began
                step = receipt.step
                if self._timer is not None:  # the start was faster than that of the first attempt
                    self._timer.cancel()
                    self._kill()
            case ProgressUpdate(step=step):
                pass
            case Staged(checkpoint=checkpoint):
                step = checkpoint.step
        if self._timer is None and self._kill_step is not None and step >= self._kill_step:
            self._kill_later()

    def _kill_later(self):
        self._timer = threading.Timer(self._delay, self._kill)
        self._timer.start()

    def _kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
