"""A person with a mouse: submit, watch, cancel, resume. Real browser, worker and training."""

import re

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.journey, pytest.mark.browser, pytest.mark.slow]


def test_submit_watch_cancel_resume(page, stack):
    page.get_by_test_id("new-operation").click()
    page.get_by_text("Handwritten digits").first.click()
    page.get_by_label("Epochs", exact=True).fill("120")
    page.get_by_test_id("submit").click()

    page.wait_for_url(re.compile(r"/operations/op_training_"))
    operation_id = page.url.rstrip("/").rsplit("/", 1)[1]
    expect(page.get_by_test_id("state")).to_have_text(re.compile("Running"))
    expect(page.get_by_test_id("place")).to_contain_text(re.compile(r"([4-9]|\d\d) of 120 epochs"))

    page.get_by_test_id("cancel").click()
    page.get_by_test_id("confirm-cancel").click()
    expect(page.get_by_test_id("state")).to_have_text(re.compile("Cancelled"))

    page.get_by_test_id("resume").click()
    page.get_by_test_id("confirm-resume").click()
    stack.wait(operation_id, "COMPLETED")
    expect(page.get_by_test_id("state")).to_have_text(re.compile("Completed"))

    page.get_by_test_id("tab-receipt").click()
    expect(page.get_by_test_id("receipt")).to_contain_text(re.compile("exact", re.IGNORECASE))
    disturbed = stack.get(f"operations/{operation_id}")
    assert disturbed["attempt"] == 2
    undisturbed = stack.submit(**disturbed["config_given"])
    stack.wait(undisturbed, "COMPLETED")
    assert stack.artifacts(operation_id) == stack.artifacts(undisturbed)
    assert stack.curve(operation_id) == stack.curve(undisturbed)
