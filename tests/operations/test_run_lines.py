"""The lines about a run in the log of its attempt."""

import re

import pytest

from apps.operations.attempts.attempt_log import CHUNK_CHARS, AttemptLog
from apps.operations.attempts.outcomes import Cancelled, Completed, Interrupted
from apps.operations.attempts.report_writer import ReportWriter
from apps.operations.attempts.run_lines import BURST_LINES, PointLines, RunLines
from apps.operations.lifecycle import Reason
from apps.operations.models import LogChunk
from tests.operations.attempts import run, submit
from tests.operations.rows import claimed
from trainops.kind import KINDS
from trainops.process.protocol import ProgressUpdate
from trainops.runtime.checkpoint.manifest import CheckpointType, StagedCheckpoint

TRAINING = KINDS["training"]
BROKEN = "\N{REPLACEMENT CHARACTER}"
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO   |WARNING|ERROR  ) .+")


@pytest.fixture
def log():
    return AttemptLog(10**6, clock=lambda: 1_000_000_000.25)


def text(log):
    return "".join(log.chunks())


def written(operation):
    return "".join(LogChunk.objects.filter(operation=operation).values_list("text", flat=True))


def test_a_line_has_a_time_in_utc_and_a_level(log):
    log.line("INFO", "one\n  two")
    assert text(log) == "2001-09-09T01:46:40.250Z INFO    one two\n"
    assert LINE.fullmatch(text(log).rstrip("\n"))


def test_a_line_does_not_break_a_printed_line(log):
    log.add(b"first\nsecond begins")
    log.line("INFO", "x")
    log.add(b" and ends\n")
    first, inserted, second = text(log).splitlines()
    assert (first, second) == ("first", "second begins and ends") and inserted.endswith("x")


def test_a_line_after_a_written_part_of_a_line_starts_a_new_one(log):
    log.add(b"loss: ")
    log.clear()
    log.line("INFO", "x")
    assert text(log).startswith("\n2001")


def test_a_character_cut_by_a_read_is_kept_and_a_broken_one_is_replaced(log):
    whole = "é\N{PARTY POPPER}\n".encode()
    for byte in whole:
        log.add(bytes([byte]))
    log.add(b"\xff\0\n\xc3")
    log.add(b"", is_last=True)
    assert text(log).split("\n") == ["é\N{PARTY POPPER}", BROKEN * 2, BROKEN]


def test_of_more_text_than_the_limit_the_end_is_kept():
    log = AttemptLog(100)
    for number in range(1000):
        log.add(f"line {number}\n".encode())
        assert sum(map(len, log.chunks())) <= 2 * 100
    kept = text(log)
    assert kept.endswith("line 998\nline 999\n")
    assert len(kept) >= 100
    log.line("INFO", "x")
    assert text(log).startswith(kept)


def test_a_line_after_a_discarded_part_of_a_line_starts_a_new_one():
    log = AttemptLog(100)
    log.add(b"a line without an end " * 20)
    log.line("INFO", "x")
    assert text(log)[100] == "\n"


def test_the_text_is_written_in_bounded_pieces_that_end_with_lines(log):
    lines = "".join(f"line {number}\n" for number in range(20_000))
    log.add(lines.encode() + b"x" * 3 * CHUNK_CHARS)
    pieces = log.chunks()
    assert "".join(pieces) == lines + "x" * 3 * CHUNK_CHARS
    assert max(map(len, pieces)) <= CHUNK_CHARS
    assert all(piece.endswith("\n") for piece in pieces[: len(lines) // CHUNK_CHARS])


class TestPoints:
    def lines(self, monitor, *points):
        chosen = PointLines(monitor)
        return [step for step, names, at in points if chosen.has_line(frozenset(names), at)]

    def test_the_end_of_an_epoch_has_a_line_and_steps_within_have_none(self):
        within, end = {"train_loss"}, {"train_loss", "val_loss", "epoch"}
        points = [(n, end if n % 5 == 0 else within, 100 + 0.1 * n) for n in range(1, 21)]
        for monitor in ("val_loss", ""):
            assert {5, 10, 15, 20} <= set(self.lines(monitor, *points))
        assert self.lines("val_loss", *points) == [1, 5, 10, 15, 20]

    def test_a_long_epoch_has_a_line_every_ten_seconds(self):
        points = [(n, {"train_loss"}, 100.0 + n) for n in range(40)]
        assert self.lines("val_loss", *points) == [0, 10, 20, 30]

    def test_rounds_with_equal_names_all_have_lines(self):
        points = [(n, {"val_loss", "round"}, 100 + 0.1 * n) for n in range(50)]
        assert len(self.lines("val_loss", *points)) == 50

    def test_the_rate_is_limited(self):
        points = [(n, {"loss"}, 100 + 0.001 * n) for n in range(10_000)]
        assert len(self.lines("loss", *points)) <= BURST_LINES + 25


def test_metrics_of_the_system_are_left_out(log):
    lines = RunLines(log, TRAINING, "step", PointLines("loss"))
    points = (
        (3, 1.0, {"loss": 0.123456, "system/steps_per_second": 3.0}),
        (4, 2.0, {"system/x": 1}),
    )
    lines.progress(ProgressUpdate(4, 1000, "", points))
    assert [line[33:] for line in text(log).splitlines()] == ["step 3 of 1,000: loss 0.1235"]


def test_a_line_begins_with_the_place_of_its_point(log):
    lines = RunLines(log, TRAINING, "step", PointLines(""))
    points = ((3, 1.0, {"loss": 0.5, "epoch": 1.0}), (4, 99.0, {"round": 1200.0}))
    lines.progress(ProgressUpdate(4, 0, "", points))
    written = [line[33:] for line in text(log).splitlines()]
    assert written == ["epoch 1, step 3: loss 0.5", "round 1,200, step 4"]


@pytest.mark.parametrize(
    ("outcome", "end"),
    [
        (Completed({}), "INFO    completed"),
        (Cancelled(Reason.KILLED_BY_PERSON, "killed"), "INFO    cancelled: killed"),
        (Interrupted(Reason.SHUTDOWN, "drained"), "INFO    attempt ended: SHUTDOWN: drained"),
        (Interrupted(Reason.JOB_ERROR, "no"), "ERROR   attempt ended: JOB_ERROR: no"),
    ],
)
def test_the_end_has_a_line_with_its_level(log, outcome, end):
    RunLines(log, TRAINING, "step").ended(outcome)
    assert text(log).strip().endswith(end)


def test_a_receipt_that_is_not_exact_is_a_warning_with_its_reasons(log):
    items = [{"part": "threads", "restored": False, "exact": False, "note": "was 1, is 2"}]
    receipt = {"step": 30, "checkpoint": "a0001", "exact": False, "items": items}
    RunLines(log, TRAINING, "step").restored(receipt, TRAINING.place({"epoch": 3}, 30))
    said = "WARNING restored epoch 3 (step 30) from a0001: not exact; threads: was 1, is 2"
    assert said in text(log)


@pytest.mark.parametrize(
    ("kind", "state", "place"),
    [
        ("training", {"epoch": 3, "cursor": {"next_batch": 0}}, "epoch 3 (step 30)"),
        ("training", {"epoch": 3, "cursor": {"next_batch": 2}}, "epoch 3, step 30"),
        ("backtest", {"bar_index": 30}, "bar 30"),
    ],
)
def test_a_checkpoint_has_its_place_in_the_words_of_its_kind(log, kind, state, place):
    staged = StagedCheckpoint("a0001", CheckpointType.PERIODIC, 30, "", (), state)
    RunLines(log, KINDS[kind], KINDS[kind].unit).committed(staged)
    assert f"INFO    checkpoint at {place}: periodic, 0 B" in text(log)


@pytest.mark.django_db
def test_the_oldest_pieces_of_a_log_beyond_its_limit_are_deleted(settings, person):
    limit = 4 * CHUNK_CHARS
    settings.THRESHOLDS = settings.THRESHOLDS.model_copy(update={"log_bytes_per_attempt": limit})
    writer = ReportWriter(claimed(person))
    for number in range(5):
        writer.output.add(f"begin {number}\n".encode() + b"x" * CHUNK_CHARS + b"\n")
        writer.flush()
    kept = written(writer.operation)
    assert "begin 4" in kept and "begin 0" not in kept and limit / 2 < len(kept) <= limit


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_run_has_lines_for_its_start_epochs_checkpoints_and_end(runtime):
    operation = run(runtime, submit("print", at=1))
    lines = written(operation).splitlines()
    said = "\n".join(line[25:] for line in lines if LINE.fullmatch(line))
    assert said.index("started from the beginning") < said.index("step 4 of 8:")
    assert "val_loss" in said and "epoch 1" in said
    assert re.search(
        r"checkpoint at epoch 2 \(step 8\): final, [\d.]+ kB, written in [\d.]+ s", said
    )
    assert said.splitlines()[-1] == "INFO    completed"
    assert "a line from the job" in lines
