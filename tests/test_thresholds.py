"""A number that cannot be is refused at the start, by its name, with the reason."""

import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from apps.operations.requests.submission import with_platform_defaults
from trainops import thresholds
from trainops.kind import KINDS, KindError, Threshold
from trainops.learning.thresholds import EPOCH_INTERVAL

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ORPHAN_TIMEOUT_SECONDS", "-1", "TRAINOPS_ORPHAN_TIMEOUT_SECONDS is '-1'; it must be"),
        ("ORPHAN_TIMEOUT_SECONDS", "soon", "TRAINOPS_ORPHAN_TIMEOUT_SECONDS is 'soon'"),
        ("ORPHAN_TIMEOUT_SECONDS", "20", "at least 3 x TRAINOPS_HEALTH_CHECK_INTERVAL_SECONDS"),
        ("SHUTDOWN_TIMEOUT_SECONDS", "31", "below the grace period of containers"),
        ("CHILD_DEADLINE_SECONDS", "30", "the supervisor must act before the attempt process"),
    ],
)
def test_it_says_which_variable_and_why(monkeypatch, name, value, message):
    monkeypatch.setenv(f"TRAINOPS_{name}", value)
    with pytest.raises(ValueError, match=message):
        thresholds.read()


def test_up_says_so_before_anything_runs(monkeypatch, tmp_path):
    monkeypatch.setenv("TRAINOPS_ORPHAN_TIMEOUT_SECONDS", "-1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "trainops", "up", "--no-install", "--port", port]
    command += ["--data-dir", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "TRAINOPS_ORPHAN_TIMEOUT_SECONDS is '-1'" in done.stdout + done.stderr
    assert not (tmp_path / "redis.sock").exists()


def test_a_threshold_of_a_kind_is_read_from_its_variable_and_fills_its_field(monkeypatch, settings):
    assert thresholds.read().training_epoch_interval == EPOCH_INTERVAL.default
    monkeypatch.setenv("TRAINOPS_TRAINING_EPOCH_INTERVAL", "7")
    settings.THRESHOLDS = thresholds.read()
    for kind in ("training", "loop"):
        assert with_platform_defaults(kind, {})["checkpoint"]["every_epochs"] == 7
    monkeypatch.setenv("TRAINOPS_TRAINING_EPOCH_INTERVAL", "0")
    with pytest.raises(ValueError, match="TRAINOPS_TRAINING_EPOCH_INTERVAL is '0'"):
        thresholds.read()


@pytest.mark.parametrize("name", ["training_epoch_interval", "trash_days"])
def test_a_threshold_that_is_already_another_is_refused(monkeypatch, name):
    other = replace(KINDS["rl"], thresholds=(Threshold(name, "checkpoint.every_episodes", 5, ""),))
    monkeypatch.setattr(thresholds, "KINDS", {**KINDS, "rl": other})
    with pytest.raises(KindError, match=f"the threshold '{name}' of 'rl' is already another"):
        thresholds.read()
