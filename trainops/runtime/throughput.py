"""How much data a process has taken and how long it waited for it; no part of any state."""

from dataclasses import dataclass


@dataclass(slots=True)
class Throughput:
    """Counts of one process since it began; None where a number is not known."""

    num_samples: int | None = 0  # examples taken, for training and for validation
    wait_seconds: float | None = 0.0  # spent waiting for them

    def add(self, num_samples: int | None, wait_seconds: float) -> None:
        """Count a batch. One of unknown size makes the number of all examples unknown."""
        if num_samples is None or self.num_samples is None:
            self.num_samples = None
        else:
            self.num_samples += num_samples
        if self.wait_seconds is not None:
            self.wait_seconds += wait_seconds
