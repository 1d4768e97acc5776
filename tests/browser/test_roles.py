"""What people of each role do from sign-in to sign-out, by mouse and by keyboard, at any width."""

import re

import pytest
from playwright.sync_api import expect

from apps.operations.models import Operation
from tests.api.saved import saved
from tests.browser.conftest import WIDE
from tests.browser.hands import Hands
from tests.pages import making

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PASSWORD = "correct horse"
CHANGES = ("cancel", "kill", "delete", "resume", "edit-operation", "submit-again", "fork")

anyhow = pytest.mark.parametrize(
    ("width", "scheme", "means"),
    [
        (width, scheme, means)
        for means in ("mouse", "keyboard")
        for scheme in ("light", "dark")
        for width in (390, 768, 1024, 1440)
    ],
)


@pytest.fixture
def sign_in(open_page):
    def sign_in(user, width, scheme, means):
        user.refresh_from_db()
        user.set_password(PASSWORD)
        user.save()
        page = open_page("/login/", WIDE | {"width": width}, scheme)
        page.context.clear_cookies()
        page.goto("/")
        hands = Hands(page, means)
        hands.write(page.get_by_label("Username"), user.username)
        hands.write(page.get_by_label("Password"), PASSWORD)
        hands.press(page.get_by_test_id("sign-in"))
        expect(page.get_by_role("heading", level=1)).to_have_text("Operations")
        if user.last_login is None:  # before this one
            hands.press(page.get_by_test_id("tour-skip"))
            expect(page.get_by_test_id("tour-skip")).to_be_hidden()
        return page, hands

    return sign_in


def rows(page):
    return page.get_by_test_id("row")


@anyhow
def test_a_viewer_reads_and_is_offered_nothing_else(sign_in, ana, width, scheme, means):
    running = making.operation(ana, "RUNNING", name="hers")
    making.attempt(running)
    making.curve(running)
    making.log(running, "first line\n")
    page, hands = sign_in(making.person("vera", "viewer"), width, scheme, means)
    expect(page.get_by_test_id("new-operation")).to_have_count(0)
    hands.check(rows(page).locator("input[type=checkbox]"))
    expect(page.get_by_test_id("bulk-compare")).to_be_visible()
    for each in CHANGES:
        expect(page.get_by_test_id(f"bulk-{each}")).to_have_count(0)
    hands.press(rows(page).get_by_role("link", name="hers"))
    expect(page.get_by_test_id("operation-name")).to_have_text("hers")
    for each in CHANGES:
        expect(page.get_by_test_id(each)).to_have_count(0)
    expect(page.get_by_test_id("log")).to_contain_text("first line")
    hands.open_tab("config")
    expect(page.get_by_test_id("config-fields")).to_be_visible()
    hands.open_tab("events")
    expect(page.locator("#pane-events")).to_be_visible()
    hands.go("Datasets", "/datasets/")
    expect(page.get_by_role("link", name=re.compile("Upload"))).to_have_count(0)
    hands.go("Workers", "/workers/")
    hands.sign_out()
    page.go_back()
    expect(page).to_have_url(re.compile("/login/"))


@anyhow
def test_an_operator_submits_cancels_and_deletes(sign_in, ana, width, scheme, means):
    other = making.operation(making.person("omar", "operator"), "RUNNING", name="his")
    page, hands = sign_in(ana, width, scheme, means)
    hands.press(page.get_by_test_id("new-operation"))
    hands.write(page.get_by_test_id("recipe-search"), "digits")
    hands.press(page.get_by_test_id("recipe-digits"))
    hands.write(page.get_by_label("Epochs", exact=True), "3")
    hands.write(page.locator("#f-name"), "by hand")
    hands.press(page.get_by_test_id("submit"))
    expect(page.get_by_test_id("state")).to_have_text("Queued")
    mine = Operation.objects.exclude(pk=other.pk).get()
    assert (mine.name, mine.config["epochs"], mine.owner) == ("by hand", 3, ana)

    hands.press(page.get_by_test_id("cancel"))
    hands.press(page.get_by_test_id("confirm-cancel"))
    expect(page.get_by_test_id("state")).to_have_text("Cancelled")
    hands.press(page.get_by_test_id("delete"))
    hands.press(page.get_by_test_id("confirm-delete"))
    expect(page.get_by_test_id("toasts")).to_contain_text("Deleted “by hand”")
    assert not Operation.objects.filter(pk=mine.pk).exists()

    hands.press(rows(page).get_by_role("link", name="his"))
    for each in ("cancel", "kill", "delete", "edit-operation"):
        expect(page.get_by_test_id(each)).to_have_count(0)
    hands.sign_out()


@anyhow
def test_an_admin_resumes_and_deletes_what_others_submitted(sign_in, ana, width, scheme, means):
    failed = making.operation(ana, "FAILED", name="broke")
    saved(failed)
    done = making.operation(ana, "COMPLETED", name="done")
    page, hands = sign_in(making.person("root", "admin"), width, scheme, means)
    hands.press(rows(page).get_by_role("link", name="broke"))
    hands.press(page.get_by_test_id("resume"))
    hands.press(page.get_by_test_id("confirm-resume"))
    expect(page.get_by_test_id("state")).not_to_have_text("Failed")
    hands.go("Operations", "/")
    hands.press(rows(page).get_by_role("link", name="done"))
    hands.press(page.get_by_test_id("delete"))
    hands.press(page.get_by_test_id("confirm-delete"))
    expect(page.get_by_test_id("toasts")).to_contain_text("Deleted “done”")
    assert not Operation.objects.filter(pk=done.pk).exists()
    hands.go("Settings", "/settings/")
    hands.sign_out()


@anyhow
def test_an_operator_uploads_compares_and_makes_a_token(
    sign_in, ana, tmp_path, width, scheme, means
):
    for number in (1, 2):
        made = making.operation(ana, "COMPLETED", name=f"run {number}")
        making.attempt(made)
        making.curve(made)
    page, hands = sign_in(ana, width, scheme, means)
    for number in range(2):
        hands.check(rows(page).locator("input[type=checkbox]").nth(number))
    hands.press(page.get_by_test_id("bulk-compare"))
    expect(page).to_have_url(re.compile(r"/compare/\?ids=op_"))
    expect(page.get_by_test_id("compared")).to_have_count(2)

    hands.go("Datasets", "/datasets/")
    table = tmp_path / "flats.csv"
    table.write_text("size,price\n" + "".join(f"{n},{n * 1000}\n" for n in range(1, 40)))
    page.locator("input[type=file]").set_input_files(table)
    hands.press(page.get_by_test_id("upload"))
    expect(page.get_by_role("heading", level=1)).to_have_text("flats")

    hands.go(ana.username, "/account/")
    hands.write(page.get_by_label("Name"), "laptop")
    hands.press(page.get_by_test_id("create-token"))
    assert len(page.get_by_test_id("token-secret").input_value()) > 30
    hands.press(page.get_by_test_id("revoke"))
    hands.press(page.get_by_test_id("confirm-yes"))
    expect(page.get_by_test_id("token")).to_have_count(0)
    hands.sign_out()
