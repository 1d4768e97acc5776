"""A backtest on the whole installation: uploaded prices, a cancel, a kill, the exact trades."""

import os
import signal

import pyarrow.parquet as pq
import pytest

from tests.backtest.market import walk
from tests.journey.stack import running
from tests.waiting import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.slow]
NUM_BARS = 80_000


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    with running(tmp_path_factory.mktemp("backtest") / "var") as stack:
        yield stack


@pytest.fixture(scope="module")
def dataset(stack, tmp_path_factory):
    path = tmp_path_factory.mktemp("prices") / "bars.parquet"
    pq.write_table(walk(NUM_BARS, volatility=0.002), path)
    with path.open("rb") as file:
        response = stack.client.post("datasets", files={"file": ("bars.parquet", file)})
    assert response.is_success, response.text
    return response.json()["data"]["id"]


def submit(stack, dataset):
    config = {
        "recipe": "busy",
        "dataset": dataset,
        "commission": {"relative": 0.001},
        "chunk_bars": 500,
        "checkpoint": {"every_bars": 5000},
    }
    return stack.post("operations", {"kind": "backtest", "config": config})["id"]


def test_cancelled_resumed_and_killed_it_ends_with_the_exact_trades(stack, dataset):
    whole = submit(stack, dataset)
    expected = stack.wait(whole, "COMPLETED")
    assert expected["step"] == NUM_BARS and expected["unit"] == "bar"
    assert expected["result"]["trades"] > 500
    stopped = submit(stack, dataset)
    stack.wait_step(stopped, 10_000)
    stack.post(f"operations/{stopped}/cancel")
    at = stack.wait(stopped, "CANCELLED")["step"]
    assert at < NUM_BARS
    stack.post(f"operations/{stopped}/resume")
    stack.wait_step(stopped, at + 10_000)
    os.kill(stack.child_pid(stopped), signal.SIGKILL)
    found = stack.wait(stopped, "COMPLETED")
    assert found["result"] == expected["result"]
    assert stack.artifacts(stopped) == stack.artifacts(whole)
    assert stack.curve(stopped) == stack.curve(whole)


@pytest.mark.exhaustive
def test_a_walk_forward_goes_through_to_its_end_by_itself(stack, dataset):
    study = stack.post(
        "studies",
        {
            "kind": "backtest",
            "config": {"recipe": "sma_crossover", "dataset": dataset},
            "design": {
                "values": {"parameters.fast": [10, 40], "parameters.slow": [20, 80]},
                "walk_forward": {"folds": 2},
            },
            "metric": "return",
        },
    )
    assert study["num_planned"] == 8 and len(study["left_out"]) == 1

    def whole():
        found = stack.look(f"studies/{study['id']}")
        return found if found and found["counts"] == {"COMPLETED": 8} else None

    found = wait_until(whole)
    assert found["percent"] == 100 and not found["is_active"]
    for fold in found["folds"]:
        before = [
            line for line in found["operations"]
            if line["fold"] == fold["number"] and not line["is_test"]
        ]  # fmt: skip
        best = max(before, key=lambda line: line["value"])
        assert (fold["values"], fold["in_sample"]) == (best["study_values"], best["value"])
        assert fold["out_of_sample"] is not None
