"""Federated operations in Chromium: one that its budget stops, and one of clients elsewhere."""

import pytest
from playwright.sync_api import expect

from apps.operations.requests import services
from tests.browser.conftest import NARROW
from tests.operations import distributed
from tests.operations.attempts import Running
from tests.operations.conftest import forkserver, runtime  # noqa: F401 - fixtures
from tests.waiting import wait_until

CONFIG = {
    "recipe": "federated_digits", "rounds": 30, "clients": 5, "local_epochs": 2, "threads": 1,
    "batch_size": 64, "partition": {"by": "dirichlet", "alpha": 0.5},
    "privacy": {"mode": "sample", "noise_multiplier": 1.0, "target_epsilon": 14.0},
}  # fmt: skip


@pytest.fixture
def operation(ana):
    return services.submit(kind="federated", config=CONFIG, owner=ana, name="together")


@pytest.mark.exhaustive
def test_the_page_shows_the_budget_stopping_the_run(open_page, operation, runtime):  # noqa: F811
    page = open_page(f"/operations/{operation.pk}/")
    running = Running(runtime, operation)
    expect(page.get_by_test_id("clients")).to_be_visible()
    expect(page.get_by_test_id("epsilon")).to_contain_text("ε")
    assert running.ended().state == "COMPLETED"
    expect(page.get_by_test_id("forecast")).to_contain_text("The budget is spent")
    expect(page.locator("[data-part=explanation]")).to_contain_text("privacy budget of epsilon 14")
    assert page.locator(".epsilon-bar rect").get_attribute("width") > "90"
    expect(page.get_by_test_id("rounds").locator(".cell-best").first).to_be_visible()
    done = services.get(operation.pk)
    assert done.reason == "PRIVACY_BUDGET" and 0 < done.result["rounds"] < 30
    page.set_viewport_size(NARROW)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_clients_elsewhere_are_watched_each_by_its_own_state(open_page, ana, runtime):  # noqa: F811
    slow = {"parameters": {"batch_seconds": 0.1}, "rounds": 1, "local_epochs": 20}
    operation = distributed.submit(ana, **slow)
    page = open_page(f"/operations/{operation.pk}/")
    going = distributed.Round(runtime, operation)
    parts = going.sent(3)
    clients = page.get_by_test_id("client")
    expect(clients).to_contain_text(["Waiting", "Waiting", "Waiting"])
    expect(clients.first).to_contain_text("No worker is running")  # that the page knows of

    parts[1].row.update(priority=distributed.FIRST)
    running = Running(runtime, parts[1])
    expect(clients.nth(1)).to_contain_text("Running")
    expect(clients.nth(1).locator(".cell-running")).to_have_count(1)
    expect(clients.nth(1).locator(".cell-done")).not_to_have_count(0)
    expect(clients.nth(1).locator(".cell")).to_have_count(20)
    running.ended()
    expect(clients).to_contain_text(["Waiting", "Done", "Waiting"])

    clients.nth(1).get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("client 1")
    page.go_back()
    wait_until(lambda: not going.last_first() and going.has_ended())
    expect(page.locator("[data-part=header]")).to_contain_text("Completed")
    expect(page.get_by_test_id("rounds")).to_contain_text("1 of 1 completed")
    expect(clients).to_contain_text(["Done", "Done", "Done"])
    expect(page.get_by_test_id("clients")).to_contain_text("update_norm")
    expect(clients.locator("a[href^='/operations/']")).to_have_count(0)  # operations that are gone

    charts = page.get_by_test_id("client-charts").get_by_test_id("chart")
    expect(charts.first).to_be_hidden()
    clients.nth(1).get_by_role("link", name="Curves of client 1").click()
    shown = charts.locator("visible=true")
    expect(shown.first).to_be_visible()
    names = shown.evaluate_all("all => all.map((chart) => chart.dataset.chart)")
    assert "clients/1/train_loss" in names
    assert all(name.startswith("clients/1/") for name in names)
