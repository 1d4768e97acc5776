from typing import Any

import pytest

from trainops.cli import looks


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0 s"),
        (0.4, "0 s"),
        (59.6, "1 min"),
        (200, "3 min 20 s"),
        (3600, "1 h"),
        (7505, "2 h 5 min"),
        (86400 * 4 + 3600 * 3 + 59, "4 d 3 h"),
        (-5, "0 s"),
    ],
)
def test_a_duration_is_reported_in_its_two_largest_units(seconds, text):
    assert looks.duration(seconds) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (999, "999 B"),
        (1500, "1.5 kB"),
        (1.6e9, "1.6 GB"),
        (5e12, "5.0 TB"),
    ],
)
def test_a_size_is_reported_in_decimal_units(num_bytes, text):
    assert looks.size(num_bytes) == text


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        ("1970-01-01T00:00:00Z", "1 h ago"),
        ("1970-01-01T00:59:18+00:00", "42 s ago"),
        ("1970-01-01T01:00:00Z", "now"),
        ("1970-01-01T02:00:00Z", "now"),
        (None, "-"),
        ("yesterday", "-"),
    ],
)
def test_a_moment_is_reported_by_its_age(moment, text):
    assert looks.ago(moment, clock=lambda: 3600.0) == text


def test_a_moment_is_written_to_the_second_in_utc():
    assert looks.at("2026-11-23T11:46:39.823000+01:00") == "2026-11-23 10:46:39 UTC"
    assert looks.at(None) == "-"


@pytest.mark.parametrize(
    ("monitor", "objective", "others"),
    [
        ("val_accuracy", "val_accuracy 0.5", "train_loss 2 · other 3"),
        ("lost", "train_loss 2", "other 3 · val_accuracy 0.5"),
        (None, "train_loss 2", "other 3 · val_accuracy 0.5"),
    ],
)
def test_the_objective_is_the_monitored_metric(monitor, objective, others):
    metrics = {"epoch": 1, "other": 3, "train_loss": 2.0, "val_accuracy": 0.5}
    operation: Any = {"metrics": metrics, "monitor": monitor}
    assert looks.objective(operation) == objective
    shown = looks.other_metrics(operation, at_most=4)
    assert sorted(shown.split(" · ")) == sorted(others.split(" · "))
    assert looks.objective({"metrics": None, "monitor": monitor}) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        (2.0, "2"),
        (0.123456, "0.1235"),
        (1e-9, "1e-09"),
        ("nan", "nan"),
        (True, "True"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (float("-inf"), "-inf"),
    ],
)
def test_a_number_is_reported_with_four_digits(value, text):
    assert looks.number(value) == text


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("a\x1b[2Jb", "ab"),
        ("a\x1b]0;title\x07b", "ab"),
        ("a\x1b[31mred\x1b[0m", "ared"),
        ("a\x07b", "a\N{REPLACEMENT CHARACTER}b"),
        ("50%\r60%\r\n", "50%\n60%\n"),
        ("tab\tline\n", "tab\tline\n"),
        ("\x9b2J", "\N{REPLACEMENT CHARACTER}2J"),
        ("grüße 数", "grüße 数"),
    ],
)
def test_nothing_that_people_wrote_moves_a_terminals_cursor(text, harmless):
    assert looks.plain(text) == harmless


def test_a_cell_is_one_line_and_reads_no_markup():
    assert looks.cell("[bold]a\nb").plain == "[bold]a b"
    assert looks.cell("").plain == "-"
    assert looks.cell(0).plain == "0"


def test_losses_come_first_among_the_metrics():
    values = {"train_loss": 0.5, "epoch": 3.0, "val_loss": 0.25, "lr": 1e-3, "f1": "NaN"}
    assert looks.metrics(values) == "val_loss 0.25 · train_loss 0.5 · f1 NaN · lr 0.001"
    assert looks.metrics(values, at_most=1) == "val_loss 0.25"
    assert looks.metrics(None) == ""
