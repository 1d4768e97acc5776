"""Odd arguments end in one clear line, at once, and never in a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.thinning import quick_some

ROOT = Path(__file__).resolve().parents[2]
LARGE_HEX = "kind: training\nconfig: {seed: 0x" + "f" * 100_000 + "}\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    quick_some(
        [
            (["run", "FILE"], "400000 bits"),
            (["run", "/dev/zero"], "is larger than"),
            (["studies", "run", "/dev/zero", "--try", "epochs=1,2"], "is larger than"),
            (["upload", "/dev/zero"], "not a regular file"),
            (["upload", "/"], "Is a directory"),
            (["token", "--days", "1e300"], "--days"),
            (["ls", "--url", "http://[::1"], "is not a server address"),
            (["ls", "--url", "http://a:99999"], "is not a server address"),
            (["ls", "--limit", "9" * 5000], "--limit"),
        ],
        every=4,
    ),
)
def test_one_line_says_what_is_wrong(tmp_path, arguments, words):
    file = tmp_path / "large.yaml"
    file.write_text(LARGE_HEX)
    named = [str(file) if each == "FILE" else each for each in arguments]
    env = os.environ | {"TRAINOPS_DATA_DIR": str(tmp_path), "TERM": "dumb", "COLUMNS": "200"}
    command = [sys.executable, "-m", "trainops", *named]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    said = done.stdout + done.stderr
    assert done.returncode == 2 and words in said, said[-2000:]
    assert "Traceback" not in said and len(said) < 8000
