"""A number that cannot be is refused at the start, by its name, with the reason."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from trainops import thresholds

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("ORPHAN_TIMEOUT_SECONDS", "-1", "TRAINOPS_ORPHAN_TIMEOUT_SECONDS is '-1'; it must be"),
        ("ORPHAN_TIMEOUT_SECONDS", "soon", "TRAINOPS_ORPHAN_TIMEOUT_SECONDS is 'soon'"),
        ("ORPHAN_TIMEOUT_SECONDS", "20", "at least 3 x TRAINOPS_HEALTH_CHECK_INTERVAL_SECONDS"),
        ("SHUTDOWN_TIMEOUT_SECONDS", "31", "below the grace period of containers"),
        ("CHILD_DEADLINE_SECONDS", "30", "the supervisor acts before the child has to"),
    ],
)
def test_it_says_which_variable_and_why(monkeypatch, name, value, told):
    monkeypatch.setenv(f"TRAINOPS_{name}", value)
    with pytest.raises(ValueError, match=told):
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
