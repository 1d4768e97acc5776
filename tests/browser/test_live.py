"""Live pages in Chromium, from the web server itself: streams, polling in their place, restarts."""

import re

import pytest
from playwright.sync_api import expect

from tests.gateway.live_site import live_site

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with live_site(tmp_path_factory.mktemp("live")) as site:
        yield site


@pytest.fixture
def open_as(chromium, site):
    contexts = []

    def open_page(path, who="viewer"):
        context = chromium.new_context(base_url=site.url)
        contexts.append(context)
        session = {"name": "sessionid", "value": site.sessions[who], "url": site.url}
        context.add_cookies([session])
        page = context.new_page()
        page.polls, page.streams = [], []
        page.on("request", lambda request: remember(page, request))
        page.goto(path)
        return page

    def remember(page, request):
        if "/live?" in request.url:
            is_stream = request.resource_type == "eventsource"
            (page.streams if is_stream else page.polls).append(request.url)

    yield open_page
    for context in contexts:
        context.close()


def streams(page):
    expect(page.locator("body")).to_have_attribute("data-live", "stream")


def percent(number):
    return re.compile(rf"^{number} % · watched")


def hide(page, *, is_hidden):
    """Have the page believe that its tab is hidden, or shown again."""
    page.evaluate(
        """(isHidden) => {
          Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        is_hidden,
    )


def test_a_page_follows_a_stream_shows_state_and_percent_in_its_tab_and_does_not_poll(
    open_as, site
):
    site.advance(100)
    page = open_as(f"/operations/{site.operation}/")
    streams(page)
    for step in (250, 500, 750):
        site.advance(step)
        expect(page).to_have_title(percent(step // 10))
    expect(page.locator("link[rel=icon]")).to_have_attribute("href", re.compile("stroke-dasharray"))
    assert (len(page.streams), page.polls) == (1, [])


def test_the_first_output_takes_the_place_of_the_hint(open_as, site):
    page = open_as(f"/operations/{site.operation}/")
    streams(page)
    panel = page.get_by_role("tabpanel", name="Log")
    expect(panel).to_contain_text("No output yet.")
    site.log("the first words\n")
    expect(panel.get_by_role("log")).to_contain_text("the first words")
    expect(panel.get_by_text("No output yet.")).to_be_hidden()


def test_the_list_follows_a_stream_also_after_another_filter(open_as, site):
    site.advance(100)
    page = open_as("/")
    streams(page)
    row = page.locator(f'tr[data-id="{site.operation}"]')
    site.advance(310)
    expect(row).to_contain_text("31")
    page.get_by_role("link", name=re.compile("^Active")).first.click()
    expect(page).to_have_url(re.compile("tab=active"))
    streams(page)
    site.advance(620)
    expect(row).to_contain_text("62")


def test_a_hidden_tab_closes_its_stream_and_catches_up_when_it_is_shown(open_as, site):
    site.advance(100)
    page = open_as(f"/operations/{site.operation}/")
    streams(page)
    hide(page, is_hidden=True)
    expect(page.locator("body")).not_to_have_attribute("data-live", "stream")
    site.advance(440)
    hide(page, is_hidden=False)
    expect(page).to_have_title(percent(44))
    streams(page)


def test_where_streams_are_refused_the_page_polls(open_as, site):
    page = open_as("/")
    page.context.route(
        re.compile("/live"),
        lambda route: (
            route.fulfill(status=503)
            if route.request.resource_type == "eventsource"
            else route.continue_()
        ),
    )
    page.goto(f"/operations/{site.operation}/")
    for step in (330, 660):
        site.advance(step)
        expect(page).to_have_title(percent(step // 10))
    assert page.polls


def test_after_a_restart_of_the_server_the_page_recovers(open_as, site):
    site.advance(100)
    page = open_as(f"/operations/{site.operation}/")
    streams(page)
    site.kill()
    expect(page.locator("body")).not_to_have_attribute("data-live", "stream")
    site.advance(880)
    site.start()
    expect(page).to_have_title(percent(88), timeout=60_000)
    expect(page.locator("body")).to_have_attribute("data-live", "stream", timeout=60_000)
    site.advance(900)
    expect(page).to_have_title(percent(90))
