"""How often a supervisor writes what its attempt reports, by how long the database takes."""

import pytest
from django.db import DatabaseError

from apps.operations.attempts.pace import PACE, Pace
from apps.operations.attempts.report_writer import ReportWriter
from tests.operations import rows
from trainops.process.protocol import ProgressUpdate

pytestmark = pytest.mark.django_db


class SlowDatabase:
    """A clock, and the time that each flush takes by it."""

    def __init__(self, seconds, monkeypatch, *, fails=False):
        self.now, self.seconds, self.fails = 100.0, seconds, fails
        self.writer = ReportWriter(rows.claimed(), clock=lambda: self.now)
        write = ReportWriter._write
        monkeypatch.setattr(ReportWriter, "_write", lambda writer: self.write(writer, write))

    def write(self, writer, write):
        self.now += self.seconds
        if self.fails:
            raise DatabaseError("it did not answer")
        write(writer)

    def pause(self):
        """Return the seconds from the begin of a flush until the next one is due."""
        self.writer.progress(ProgressUpdate(1, 10, ""))
        began = self.now
        try:
            self.writer.flush()
        except DatabaseError:
            assert self.fails
        ended = self.now
        self.writer.progress(ProgressUpdate(2, 10, ""))
        while not self.writer.is_due:
            self.now += 0.01
        return round(self.now - (began if self.fails else ended), 1)


@pytest.mark.parametrize(
    ("seconds", "pause"), [(0.003, 0.5), (0.05, 0.5), (0.1, 1.0), (0.3, 3.0), (20.0, 10.0)]
)
def test_a_slow_database_is_written_to_less_often(seconds, pause, monkeypatch):
    assert SlowDatabase(seconds, monkeypatch).pause() == pause


def test_writing_that_fails_at_once_is_tried_again_at_once(monkeypatch):
    assert SlowDatabase(0.0, monkeypatch, fails=True).pause() == 0.5


def test_after_one_slow_flush_the_next_ones_are_as_often_as_before(monkeypatch):
    database = SlowDatabase(0.3, monkeypatch)
    database.pause()
    database.seconds = 0.003
    assert database.pause() == 0.5


@pytest.mark.parametrize(
    ("num_running", "pause"), [(1, 0.5), (500, 0.5), (3000, 3.0), (100_000, 10.0)]
)
def test_in_a_large_installation_each_operation_is_written_less_often(
    num_running, pause, monkeypatch
):
    monkeypatch.setattr(PACE, "num_running", num_running)
    assert SlowDatabase(0.003, monkeypatch).pause() == pause


@pytest.mark.parametrize(("num_workers", "seconds"), [(1, 15.0), (60, 15.0), (1000, 250.0)])
def test_many_workers_sweep_in_turns(num_workers, seconds):
    pace = Pace()
    pace.num_workers = num_workers
    assert pace.sweep_seconds(15.0) == seconds
