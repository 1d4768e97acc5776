"""A federated operation in Chromium, while its run goes on until the budget stops it."""

import pytest
from playwright.sync_api import expect

from apps.operations import services
from tests.browser.conftest import NARROW
from tests.operations.attempts import Running
from tests.operations.conftest import house, nursery  # noqa: F401 - fixtures

CONFIG = {
    "recipe": "federated_digits", "rounds": 30, "clients": 5, "local_epochs": 2, "threads": 1,
    "batch_size": 64, "partition": {"by": "dirichlet", "alpha": 0.5},
    "privacy": {"mode": "sample", "noise_multiplier": 1.0, "target_epsilon": 14.0},
}  # fmt: skip


@pytest.fixture
def operation(ana):
    return services.submit(kind="federated", config=CONFIG, owner=ana, name="together")


def test_the_page_shows_the_budget_stopping_the_run(open_page, operation, house):  # noqa: F811
    page = open_page(f"/operations/{operation.pk}/")
    running = Running(house, operation)
    expect(page.get_by_test_id("clients")).to_be_visible(timeout=30_000)
    expect(page.get_by_test_id("epsilon")).to_contain_text("ε")
    assert running.ended().state == "COMPLETED"
    expect(page.get_by_test_id("forecast")).to_contain_text("The budget is spent")
    expect(page.locator("[data-part=standing]")).to_contain_text("privacy budget of epsilon 14")
    assert page.locator(".epsilon-bar rect").get_attribute("width") > "90"
    expect(page.get_by_test_id("rounds").locator(".cell-best").first).to_be_visible()
    done = services.get(operation.pk)
    assert done.reason == "PRIVACY_BUDGET" and 0 < done.result["rounds"] < 30
    page.set_viewport_size(NARROW)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
