"""The demo and the commands of the tutorial do what the pages say."""

import os
import re
import subprocess
import sys
import time

import pytest

from tests.journey.stack import ROOT, running
from tests.waiting import wait_until
from trainops.kind import KINDS

pytestmark = [pytest.mark.journey, pytest.mark.slow]
START_SECONDS = 120


def test_the_demo_runs_an_operation_of_each_kind(tmp_path):
    began = time.monotonic()
    with running(tmp_path / "var", "--demo") as stack:
        made = stack.get("operations", tag="demo")
        assert {each["kind"] for each in made} == {n for n, kind in KINDS.items() if kind.demo}
        wait_until(lambda: any(each["step"] for each in stack.get("operations", tag="demo")))
        assert time.monotonic() - began < START_SECONDS
        assert f"/operations/{made[-1]['id']}/" in (tmp_path / "up.log").read_text()


@pytest.mark.parametrize("path", ["docs/tutorial.md"])
def test_the_commands_of_a_page_run_as_written(tmp_path, path):
    """In one shell, as a reader has it; only the data directory and the Python differ."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", (ROOT / path).read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    (bin_directory / "python3").symlink_to(sys.executable)
    with running(tmp_path / "var") as stack:
        env = os.environ | {
            "PATH": f"{bin_directory}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(each for each in sys.path if "site-packages" in each),
            "TRAINOPS_DATA_DIR": str(stack.data_dir),
        }
        done = subprocess.run(
            ["bash", "-eux", "-c", "".join(blocks)],
            cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=840,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        states = {each["name"]: each["state"] for each in stack.get("operations")}
        assert set(states.values()) == {"COMPLETED"} and len(states) == 3, states
