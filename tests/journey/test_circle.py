"""The circle by clicking: prices are uploaded, a model is trained on them, and traded."""

import re

import pyarrow.csv as pa_csv
import pytest
from playwright.sync_api import expect

from tests.backtest.test_model import waves

pytestmark = [pytest.mark.journey, pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def prices(tmp_path):
    path = tmp_path / "waves.csv"
    pa_csv.write_csv(waves(1500), path)
    return path


def test_train_on_prices_then_backtest_what_was_trained(page, stack, prices):
    page.get_by_test_id("new-operation").click()
    page.get_by_test_id("recipe-price_direction").check(force=True)
    page.get_by_test_id("upload").set_input_files(prices)
    expect(page.locator("[data-upload-state]")).to_have_text("")
    expect(page.get_by_test_id("dataset")).not_to_have_value("")
    page.get_by_label("Horizon").fill("5")
    page.get_by_label("Epochs", exact=True).fill("8")
    page.get_by_test_id("submit").click()
    page.wait_for_url(re.compile(r"/operations/op_training_"))
    expect(page.get_by_test_id("state")).to_have_text(re.compile("Completed"))

    page.get_by_test_id("use-model").click()
    expect(page.get_by_test_id("model")).to_have_value(re.compile("op_training_"))
    expect(page.get_by_test_id("dataset")).not_to_have_value("")
    page.get_by_test_id("submit").click()
    page.wait_for_url(re.compile(r"/operations/op_backtest_"))
    expect(page.get_by_test_id("state")).to_have_text(re.compile("Completed"))
    expect(page.locator("[data-report-chart] canvas")).to_have_count(3)
    operation_id = page.url.rstrip("/").rsplit("/", 1)[1]
    result = stack.get(f"operations/{operation_id}")["result"]
    assert result["recipe"] == "model" and result["trades"] > 5 and result["return"] > 0
