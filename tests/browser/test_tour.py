"""The tour of the first sign-in, by clicking and by keyboard."""

import pytest
from playwright.sync_api import expect

from apps.dashboard.tour import STEPS
from tests.browser.axe import violations
from tests.browser.conftest import NARROW, WIDE, settled
from tests.pages import making


@pytest.fixture
def newcomer(open_page, db):
    """Return a function that signs a person in for the first time, in a browser of that size."""

    def sign_in(**how):
        person = making.person("noa", "operator")
        person.set_password("correct horse")
        person.save()
        making.operation(person, "COMPLETED")
        page = open_page("/", **how)
        page.context.clear_cookies()
        page.goto("/login/")
        page.fill("input[name=username]", "noa")
        page.fill("input[name=password]", "correct horse")
        page.get_by_test_id("sign-in").click()
        return page

    return sign_in


def covers_nothing(page):
    """Return whether the text is inside the window, and what it is about is not below it."""
    names = (".tour .dialog", ".tour-spot")
    card, spot = (page.locator(name).bounding_box() for name in names)
    size = page.viewport_size
    inside = card["x"] >= 0 and card["x"] + card["width"] <= size["width"]
    inside = inside and card["y"] >= 0 and card["y"] + card["height"] <= size["height"]
    apart = (
        card["x"] >= spot["x"] + spot["width"] or card["x"] + card["width"] <= spot["x"]
        or card["y"] >= spot["y"] + spot["height"] or card["y"] + card["height"] <= spot["y"]
    )  # fmt: skip
    return inside and (apart or spot["height"] > size["height"] / 3)  # a long list may be covered


@pytest.mark.parametrize(
    ("viewport", "scheme"),
    [(WIDE, "light"), (NARROW, "dark"), ({"width": 1440, "height": 900}, "dark")],
    ids=["wide", "narrow, dark", "widest, dark"],
)
def test_the_first_sign_in_shows_a_tour_once(newcomer, viewport, scheme):
    page = newcomer(viewport=viewport, scheme=scheme)
    tour = page.get_by_test_id("tour")
    for number, step in enumerate(STEPS, start=1):
        expect(tour.get_by_test_id("tour-count")).to_have_text(f"{number} of {len(STEPS)}")
        expect(tour.get_by_role("heading", name=step.title, exact=True)).to_be_visible()
        assert covers_nothing(page), step.title
        assert not violations(page), step.title
        page.get_by_test_id("tour-next").click()
    expect(tour).to_have_count(0)
    page.reload()
    settled(page)
    expect(tour).to_have_count(0)


def test_the_tour_by_keyboard(newcomer):
    page = newcomer()
    count = page.get_by_test_id("tour-count")
    expect(page.get_by_test_id("tour-next")).to_be_focused()
    page.keyboard.press("Enter")
    expect(count).to_have_text("2 of 5")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(count).to_have_text("1 of 5")
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("tour")).to_have_count(0)
    page.keyboard.press("?")
    page.get_by_test_id("take-tour").press("Enter")
    expect(count).to_have_text("1 of 5")
    page.get_by_test_id("tour-skip").press("Enter")
    expect(page.get_by_test_id("tour")).to_have_count(0)
