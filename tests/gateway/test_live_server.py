"""Event streams of the web server itself, over sockets."""

import re
import signal
import time

import httpx
import pytest

from tests.gateway.live_site import Events, live_site
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
LOGOUT = "/logout/"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with live_site(tmp_path_factory.mktemp("live")) as site:
        yield site


@pytest.fixture
def follow(site):
    opened = []

    def open_stream(who, address=None):
        opened.append(Events(site.connect(address or site.address, who)))
        return opened[-1]

    yield open_stream
    for each in opened:
        each.close()


def ask(site, path="/", who="viewer", **more):
    return httpx.get(f"{site.url}{path}", cookies={"sessionid": site.sessions[who]}, **more)


def without_ages(answer):
    """Leave out "10 s ago": between two answers a second can pass."""
    for part in answer["parts"].values():
        part["html"] = re.sub(r'(<time [^>]*data-clock="ago"[^>]*>)[^<]*', r"\1", part["html"])
    return answer


def test_an_update_arrives_at_each_person(site, follow):
    streams = {who: follow(who) for who in ("owner", "viewer", "other")}
    headers = streams["viewer"].headers
    assert headers["content-type"].startswith("text/event-stream")
    assert (headers["x-accel-buffering"], headers["cache-control"]) == ("no", "no-store")
    site.advance(500)
    answers = {who: stream.until_percent(50.0) for who, stream in streams.items()}
    assert set(answers["viewer"]["parts"]) >= {"progress"}


def test_an_event_is_the_answer_to_the_same_request(site, follow):
    site.advance(300)
    query = "have=header:,progress:,stats:&points=0"
    address = f"/operations/{site.operation}/live?{query}"
    for who in ("owner", "viewer"):
        first = follow(who, address).next()
        assert without_ages(first) == without_ages(ask(site, address, who).json())
    assert "Cancel" in follow("owner", address).next()["parts"]["header"]["html"]
    assert "Cancel" not in follow("viewer", address).next()["parts"]["header"]["html"]


@pytest.mark.parametrize(
    ("who", "operation", "status"),
    [("nobody", "", 401), ("stranger", "", 403), ("viewer", "op_training_no_such", 404)],
)
def test_people_who_may_not_see_the_page_get_no_stream(site, follow, who, operation, status):
    address = site.address.replace(site.operation, operation or site.operation)
    stream = follow(who, address)
    assert (stream.status, "event-stream" in stream.headers["content-type"]) == (status, False)


def test_a_signed_out_browser_loses_its_streams(site, follow):
    with httpx.Client(base_url=site.url, follow_redirects=True) as browser:
        token = browser.get("/login/").text.partition('name="csrfmiddlewaretoken" value="')[2][:64]
        form = {"username": "viewer", "password": "long-enough-1", "csrfmiddlewaretoken": token}
        assert browser.post("/login/", data=form, headers={"Referer": site.url}).is_success
        site.sessions["signed in"] = browser.cookies["sessionid"]
        stream, other = follow("signed in"), follow("viewer")
        token = browser.get("/").text.partition('name="csrfmiddlewaretoken" value="')[2][:64]
        browser.post(LOGOUT, data={"csrfmiddlewaretoken": token})
        while stream.next() is not None:
            pass
    site.advance(700)
    other.until_percent(70.0)


def test_hundreds_of_idle_streams_and_silent_readers_delay_no_other_request(site):
    """They are of one address, which may have 128; a client that does not read is one of them."""
    opened = []
    site.execute("DELETE FROM django_session WHERE session_key LIKE 'many%'")
    columns = "session_data, expire_date FROM django_session WHERE session_key = ?"
    for number in range(25):
        copied = f"INSERT INTO django_session SELECT 'many{number:028}', {columns}"
        site.execute(copied, site.sessions["viewer" if number % 2 else "owner"])
        site.sessions[f"many {number}"] = f"many{number:028}"
        opened += [site.connect(site.address, f"many {number}") for _ in range(6)]
    site.advance(0)
    for number in range(10):
        site.advance(10 * number)
        assert ask(site, timeout=30).is_success
    statuses = [Events(each).status for each in opened]
    for each in opened:
        each.close()
    assert statuses.count(503) > statuses.count(200) == 16  # two people, eight each


def test_a_server_that_stops_ends_its_streams(site, follow):
    stream = follow("viewer")
    site.process.send_signal(signal.SIGTERM)
    while stream.next() is not None:
        pass
    began_at = time.monotonic()
    assert site.process.wait(10) == 0
    assert time.monotonic() - began_at < 5
    site.start()
    wait_until(lambda: ask(site).is_success)
