"""The API in Swagger UI: requests of the page work with the session and with a token."""

from playwright.sync_api import expect

from apps.operations.models import Operation
from tests.pages import making
from trainops.http import tokens
from trainops.http.models import TokenScope


def opened(page, operation_id, parameters):
    """Open one endpoint, enter its parameters and send the request; return its block."""
    block = page.locator(f"[id$='-{operation_id}']")
    block.locator(".opblock-summary-control").click()
    block.get_by_role("button", name="Try it out").click()
    for name, value in parameters.items():
        block.locator(f"tr[data-param-name='{name}'] input").fill(value)
    block.get_by_role("button", name="Execute").click()
    return block


def status(block):
    return block.locator(".live-responses-table tbody .response-col_status").first


def open_tag(page, name):
    page.locator(f"#operations-tag-{name}").click()


def test_the_page_sends_requests_with_the_session(open_page, ana):
    operation = making.operation(ana)
    page = open_page("/api/docs/")
    open_tag(page, "operations")
    block = opened(page, "operations_cancel", {"operation_id": operation.pk})
    expect(status(block)).to_contain_text("200")
    assert Operation.objects.get(pk=operation.pk).state == "CANCELLED"


def test_the_page_sends_requests_with_a_token(open_page, ana):
    _, secret = tokens.create(ana, name="docs", scope=TokenScope.USER, lifetime=None)
    page = open_page("/api/docs/")
    page.get_by_role("button", name="Authorize").first.click()
    dialog = page.locator(".modal-ux")
    token = dialog.locator(".auth-container").filter(has_text="token")
    token.get_by_role("textbox").fill(secret)
    token.get_by_role("button", name="Apply credentials").click()
    page.locator(".close-modal").click()
    open_tag(page, "me")
    block = opened(page, "me", {})
    expect(
        block.locator(".live-responses-table tbody .response-col_description").first
    ).to_contain_text("token_id")
    expect(block.locator(".curl-command")).to_contain_text("Authorization: Bearer")


def test_the_page_follows_the_theme(open_page):
    page = open_page("/api/docs/", scheme="dark")
    expect(page.locator("html")).to_have_class("dark-mode")
    page.emulate_media(color_scheme="light")
    expect(page.locator("html")).not_to_have_class("dark-mode")
