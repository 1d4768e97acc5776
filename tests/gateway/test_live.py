"""Event streams of the gateway: who gets an answer again, when, and when a stream ends."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from tests.gateway.test_gateway import Connection, Rules, scope
from trainops.gateway import live
from trainops.gateway.clients import Proof
from trainops.gateway.gateway import PROVED, Gateway
from trainops.gateway.live import FOLLOWED, Followed, LiveStreams, PageUpdate, StreamLimits, Version

ACCEPT = ("accept", "text/event-stream")


class Site:
    """An application whose answers count its changes, and their versions.

    An answer names the query that it was asked with. `updates` answer where `progress` alone has
    changed.
    """

    def __init__(self):
        self.changes, self.requests, self.refused = 0, [], set()
        self.progress, self.updated, self.page, self.knows_updates = 0, [], "a page", True
        self.is_going, self.is_broken = False, False
        self.num_looks, self.now, self.roles = 0, 0.0, {}

    def __call__(self, environ, start_response):
        user = environ.get("HTTP_AUTHORIZATION", "")
        self.requests.append((user, environ["PATH_INFO"], environ["QUERY_STRING"]))
        if user in self.refused:
            start_response("403 Forbidden", [])
            return [b"no"]
        if user:
            environ[PROVED] = Proof(user, user)
        if environ["PATH_INFO"] == "/live":
            role = self.roles.get(user, user.partition(" ")[0])
            environ[FOLLOWED] = Followed("it", role, f"after={self.changes}", self.page)
        start_response("200 OK", [("Content-Type", "text/plain")])
        self.now += 1  # a clock that only answers move
        return [b"%d\n" % self.changes, b"since %b" % environ["QUERY_STRING"].encode()]

    def versions(self, topics):
        self.num_looks += 1
        if self.is_broken:
            raise OSError("the database is away")
        return dict.fromkeys(topics, Version(self.changes, self.progress))

    def updates(self, changed):
        self.updated.append(list(changed))
        if self.knows_updates is None:
            raise ValueError("a page that cannot be drawn")
        if not self.knows_updates:
            return [None for _ in changed]
        return [
            PageUpdate(b"%s at %d" % (page.encode(), progress), f"at={progress}", f"{page}+")
            for page, progress in changed
        ]

    def is_closing(self):
        return self.is_going


class Page(Connection):
    """A client that follows /live; `events` are the bodies that arrived."""

    def __init__(self, user, path="/live", method="GET", client="1.2.3.4", query=""):
        super().__init__()
        headers = [ACCEPT, *([("authorization", user)] if user else [])]
        self.scope = scope(path, *headers, client=client) | {
            "method": method, "query_string": query.encode(),
        }  # fmt: skip
        self.leaves = asyncio.Event()
        self.task = None

    async def receive(self):
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    @property
    def events(self):
        return [event for event in self.body.decode().split("\n\n") if event.startswith("id:")]


@asynccontextmanager
async def pages(site, *users, limits=None):
    """Open a page for each user; leave them at the end."""
    streams = LiveStreams(site, site, site.updates, limits=limits)
    gateway = Gateway(site, Rules(), streams=streams)
    opened = [Page(user) for user in users]
    for page in opened:
        page.gateway = gateway
        page.task = asyncio.ensure_future(gateway(page.scope, page.receive, page.send))
    await until(lambda: all(len(page.messages) > 1 or page.task.done() for page in opened))
    yield gateway, opened
    for page in opened:
        page.leaves.set()
        page.reads.set()
    await asyncio.wait_for(asyncio.gather(*(page.task for page in opened)), 5)


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def several_looks(site):
    num_looks = site.num_looks + 5
    await until(lambda: site.num_looks >= num_looks)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Look often, and ask again for changes only."""
    monkeypatch.setattr(live, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(live, "SETTLE_SECONDS", 1000.0)
    monkeypatch.setattr(live, "REFRESH_SECONDS", 1000.0)


@pytest.fixture
def site():
    return Site()


def run(test):
    asyncio.run(asyncio.wait_for(test(), 30))


def test_the_answer_and_its_changes_arrive_as_events(site):
    async def test():
        async with pages(site, "viewer 1") as (_, [page]):
            headers = dict(page.messages[0]["headers"])
            assert headers[b"content-type"].startswith(b"text/event-stream")
            assert headers[b"x-accel-buffering"] == b"no"
            site.changes = 7
            await until(lambda: len(page.events) >= 2)
        assert page.events[0] == "id: after=0\ndata: 0\ndata: since "
        assert page.events[-1] == "id: after=7\ndata: 7\ndata: since after=0"

    run(test)


def test_alike_streams_share_one_request(site):
    async def test():
        users = [f"viewer {number}" for number in range(100)] + ["admin"]
        async with pages(site, *users) as (_, opened):
            await until(lambda: all(len(page.events) == 2 for page in opened))
            before = len(site.requests)
            site.changes = 1
            await until(lambda: all("data: 1" in page.events[-1] for page in opened))
        assert len(site.requests) - before == 2

    run(test)


def test_a_reconnect_continues_after_the_last_event(site):
    async def test():
        gateway = Gateway(site, Rules(), streams=LiveStreams(site, site))
        page = Page("viewer", query="after=3")
        page.scope["headers"].append((b"last-event-id", b"after=5"))
        task = asyncio.ensure_future(gateway(page.scope, page.receive, page.send))
        await until(lambda: page.messages)
        assert site.requests[0][2] == "after=5"
        page.leaves.set()
        await task

    run(test)


def test_a_client_that_does_not_read_delays_no_other_and_continues_where_it_was(site):
    async def test():
        async with pages(site, "viewer 1", "viewer 2") as (_, [stuck, page]):
            stuck.reads.clear()
            for number in range(1, 6):
                site.changes = number
                await until(lambda: f"data: {number}\n" in page.events[-1])  # noqa: B023
            num_read = len(stuck.events)
            stuck.reads.set()
            await until(lambda: "data: 5\n" in stuck.events[-1])
            assert len(stuck.events) <= num_read + 2  # the one it was stuck in, and the latest
            for events in (stuck.events, page.events):
                ids = [event.partition("\n")[0].removeprefix("id: ") for event in events]
                since = [event.rpartition("since ")[2] for event in events]
                assert since == ["", *ids[:-1]]  # nothing is left out

    run(test)


def test_a_client_that_never_reads_is_left(site, monkeypatch):
    monkeypatch.setattr(live, "SEND_SECONDS", 0.1)

    async def test():
        async with pages(site, "viewer 1") as (_, [stuck]):
            stuck.reads.clear()
            site.changes = 1
            await asyncio.wait_for(asyncio.shield(stuck.task), 5)

    run(test)


def test_hundreds_of_streams_hold_no_thread_and_are_no_requests_in_progress(site):
    async def test():
        limits = StreamLimits(address=400)
        async with pages(site, *(f"v {n}" for n in range(400)), limits=limits) as (gateway, _):
            other = Page("", path="/other")
            await asyncio.wait_for(gateway(other.scope, other.receive, other.send), 5)
            assert other.status == 200

    run(test)


@pytest.mark.parametrize("limit", ["session", "person", "address", "process"])
def test_streams_above_a_limit_are_refused_until_others_end(site, limit):
    async def test():
        limits = StreamLimits(**{limit: 2})
        users = ["viewer 1"] * 3
        async with pages(site, *users, limits=limits) as (gateway, opened):
            refused = [page for page in opened if page.status == 400]
            assert [page.body for page in refused] == [b"TooManyStreams"]
            held = next(page for page in opened if page.status == 200)
            held.leaves.set()
            await held.task
            again = Page("viewer 1")
            task = asyncio.ensure_future(gateway(again.scope, again.receive, again.send))
            await until(lambda: again.messages)
            assert again.status == 200
            again.leaves.set()
            await task

    run(test)


def test_what_is_refused_at_first_is_no_stream(site):
    site.refused.add("viewer 1")

    async def test():
        async with pages(site, "viewer 1") as (_, [page]):
            assert (page.status, page.body) == (403, b"no")

    run(test)


def test_a_shared_answer_is_not_sent_to_a_person_who_may_no_longer_see_it(site, monkeypatch):
    """Each is asked for by itself from time to time, also while others of its kind may see it."""
    monkeypatch.setattr(live, "CHECK_SECONDS", 0.2)

    async def test():
        async with pages(site, "viewer 1", "viewer 2") as (_, [first, second]):
            site.refused.add("viewer 2")
            await asyncio.wait_for(asyncio.shield(second.task), 5)
            site.changes = 9
            await until(lambda: "data: 9\n" in first.events[-1])
            assert "data: 9" not in second.body.decode()

    run(test)


def test_an_answer_for_another_role_is_not_shared(site):
    """Of streams that were alike, all but one are now of admins."""

    async def test():
        async with pages(site, *(f"viewer {number}" for number in range(20))) as (_, opened):
            await until(lambda: all(len(page.events) == 2 for page in opened))
            site.roles = {f"viewer {number}": "admin" for number in range(19)}
            del site.requests[:]
            site.changes = 1
            await until(lambda: "data: 1" in opened[-1].events[-1])
            assert "viewer 19" in [user for user, *_ in site.requests]  # none was asked for it

    run(test)


def test_a_session_that_ends_ends_its_streams_at_once(site):
    async def test():
        async with pages(site, "viewer 1", "viewer 2") as (gateway, [first, second]):
            await until(lambda: len(first.events) == len(second.events) == 2)
            site.refused.add("viewer 2")
            sign_out = Page("viewer 2", path="/logout", method="POST")
            await gateway(sign_out.scope, sign_out.receive, sign_out.send)
            await asyncio.wait_for(asyncio.shield(second.task), 5)
            assert not first.task.done()

    run(test)


@pytest.mark.parametrize("trouble", ["is_going", "is_broken"])
def test_streams_end_with_the_server_and_with_the_database(site, trouble, caplog):
    async def test():
        async with pages(site, "viewer 1", "viewer 2") as (gateway, opened):
            setattr(site, trouble, True)
            await asyncio.wait_for(asyncio.gather(*(page.task for page in opened)), 5)
            assert opened[0].messages[-1] == {
                "type": "http.response.body", "body": b"", "more_body": False,
            }  # fmt: skip
            late = Page("viewer 1")
            task = asyncio.ensure_future(gateway(late.scope, late.receive, late.send))
            await until(lambda: late.messages)
            assert (late.status == 400) is site.is_going
            late.leaves.set()
            await task

    run(test)


def test_silent_streams_receive_a_beat(site, monkeypatch):
    monkeypatch.setattr(live, "BEAT_SECONDS", 0.05)

    async def test():
        async with pages(site, "viewer 1") as (_, [page]):
            await until(lambda: b"event: beat" in page.body)

    run(test)


def test_what_has_not_changed_is_not_asked_for_and_what_is_equal_is_not_sent(site, monkeypatch):
    async def test():
        async with pages(site, "viewer 1") as (_, [page]):
            await until(lambda: len(page.events) == 2)
            before = len(site.requests)
            await several_looks(site)
            assert len(site.requests) == before
            monkeypatch.setattr(live, "SETTLE_SECONDS", 0.0)
            monkeypatch.setattr(live, "REFRESH_SECONDS", 0.0)
            site.changes = 1
            await until(lambda: len(site.requests) > before + 5)
            assert len(page.events) <= 4  # the change, and once the answer since then

    run(test)


def test_an_answer_that_takes_long_is_not_asked_for_after_each_change(site):
    async def test():
        gateway = Gateway(site, Rules(), streams=LiveStreams(site, site, clock=lambda: site.now))
        page = Page("viewer")
        task = asyncio.ensure_future(gateway(page.scope, page.receive, page.send))
        await until(lambda: len(page.events) == 2)
        before = len(site.requests)
        site.changes = 1
        await several_looks(site)
        assert len(site.requests) == before
        site.now += live.PAUSE
        await until(lambda: len(page.events) == 3)
        page.leaves.set()
        await task

    run(test)


async def opened_and_settled(site, opened):
    await until(lambda: all(len(page.events) == 2 for page in opened))
    await several_looks(site)
    del site.requests[:], site.updated[:]


def test_progress_is_answered_for_all_pages_in_one_call_without_requests(site):
    async def test():
        async with pages(site, "viewer 1", "viewer 2", "admin") as (_, opened):
            await opened_and_settled(site, opened)
            site.progress = 3
            await until(lambda: all(len(page.events) == 3 for page in opened))
            assert [page.events[2] for page in opened] == ["id: at=3\ndata: a page at 3"] * 3
            site.progress = 4
            await until(lambda: all(len(page.events) == 4 for page in opened))
            assert [page.events[3] for page in opened] == ["id: at=4\ndata: a page+ at 4"] * 3
        assert [len(each) for each in site.updated] == [2, 2]  # the viewers' page is one
        assert not site.requests

    run(test)


def test_a_change_of_more_than_the_progress_repeats_the_request(site):
    async def test():
        async with pages(site, "viewer 1") as (_, [page]):
            await opened_and_settled(site, [page])
            site.changes, site.progress = 1, 1
            await until(lambda: len(page.events) == 3)
            assert (page.events[2], site.updated) == (
                "id: after=1\ndata: 1\ndata: since after=0",
                [],
            )

    run(test)


@pytest.mark.parametrize("knows_updates", [False, None])
def test_a_page_that_updates_cannot_answer_is_asked_for(site, knows_updates, caplog):
    async def test():
        async with pages(site, "viewer 1") as (_, [page]):
            await opened_and_settled(site, [page])
            site.knows_updates, site.progress = knows_updates, 1
            await until(lambda: site.requests)
            await several_looks(site)
            assert (len(site.updated), len(site.requests), page.task.done()) == (1, 1, False)

    run(test)


def test_a_response_without_a_page_is_asked_for(site):
    site.page = None

    async def test():
        async with pages(site, "viewer 1") as (_, [page]):
            await opened_and_settled(site, [page])
            site.progress = 1
            await until(lambda: site.requests)
            assert not site.updated

    run(test)


def test_pages_that_only_progress_are_still_asked_for_from_time_to_time(site, monkeypatch):
    async def test():
        async with pages(site, "viewer 1") as (_, [page]):
            await opened_and_settled(site, [page])
            monkeypatch.setattr(live, "REFRESH_SECONDS", 0.1)
            site.changes += 1  # from here on it is due every 0.1 s
            monkeypatch.setattr(live, "SETTLE_SECONDS", 0.1)

            def progresses():
                site.progress += 1
                return len(site.requests) >= 5 and len(site.updated) >= 5

            await until(progresses)

    run(test)


def test_progress_is_not_sent_to_a_page_that_is_to_be_checked(site, monkeypatch):
    async def test():
        async with pages(site, "viewer 1", "viewer 2") as (_, opened):
            await opened_and_settled(site, opened)
            monkeypatch.setattr(live, "CHECK_SECONDS", 0.0)
            site.refused.add("viewer 2")
            site.progress = 1
            await asyncio.wait_for(asyncio.shield(opened[1].task), 5)
            assert "a page at" not in opened[1].body.decode()
            assert not site.updated

    run(test)
