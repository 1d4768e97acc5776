"""How often workers write and look around, by how many of them the installation has.

A small installation sees progress at once. In a large one each worker does so less often, so that
the database gets no more to do from all of them together.
"""

FLUSHES_PER_SECOND = 1000.0  # of all running operations together, at most
SWEEPS_PER_SECOND = 4.0  # of all workers together, at most
MIN_FLUSH_SECONDS, MAX_FLUSH_SECONDS = 0.5, 10.0  # between two flushes of an attempt
MAX_FLUSH_SHARE = 0.1  # of an attempt's time, so that a busy database gets less to do


class Pace:
    """The pace of this process; its heartbeat says how large the installation is."""

    def __init__(self) -> None:
        self.num_workers = self.num_running = 0

    def flush_seconds(self, last_seconds: float) -> float:
        """Return the seconds between two flushes of an attempt, by how long its last one took."""
        by_fleet, by_database = (
            self.num_running / FLUSHES_PER_SECOND,
            last_seconds / MAX_FLUSH_SHARE,
        )
        return min(max(MIN_FLUSH_SECONDS, by_fleet, by_database), MAX_FLUSH_SECONDS)

    def sweep_seconds(self, usual: float) -> float:
        """Return the seconds between two sweeps of this worker; web and beat sweep as usual."""
        return max(usual, self.num_workers / SWEEPS_PER_SECOND)


PACE = Pace()
