"""Event streams: a page sends one request, and gets the answer again whenever it changes.

A request that accepts `text/event-stream` is answered by the application as any other. Where the
application says that its response can be followed (`Followed`), the gateway keeps the connection,
without a thread: it asks for the versions of all followed topics in one call every TICK_SECONDS,
and repeats the request of those whose topic has changed. Streams whose answers are alike share one
request. Where no more than the progress of topics has changed, the application answers for all of
them in one call (`PageUpdates`). All of it happens in one thread, which rests for as long as it
used the CPU.

A stream that is still sending is left out, and later continues where it was: nothing queues up.
"""

import asyncio
import io
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol, TypeVar

from trainops.gateway.asgi import Send
from trainops.gateway.bodies import BodyChunks
from trainops.gateway.clients import TooManyRequests
from trainops.gateway.environ import Environ, with_body
from trainops.gateway.responses import Application, GatewayResponse

T = TypeVar("T")
logger = logging.getLogger(__name__)

FOLLOWED = "trainops.followed"  # where the application leaves a Followed in the environment
OFFERED = "trainops.streams"  # set in the environment where responses can be followed
MEDIA_TYPE = "text/event-stream"
NOT_OF_STREAMS = {"HTTP_ACCEPT_ENCODING", "HTTP_LAST_EVENT_ID"}
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # for nginx, which would collect the events
    (b"x-content-type-options", b"nosniff"),
]
BEAT = b"event: beat\ndata:\n\n"
TICK_SECONDS = 0.1
BEAT_SECONDS = 10.0
REFRESH_SECONDS = 5.0  # at the latest, whether the topic has changed or not
SETTLE_SECONDS = 2.5  # after a change: numbers that the application remembers are true again
PAUSE = 2.0  # times the seconds that an answer took, until it is asked for again
CHECK_SECONDS = 60.0  # after which a stream is asked for by itself: may it still see the answer?
CHECKS_PER_TICK = 2
REFRESHES_PER_TICK = 2  # of topics that have not changed, or whose progress is sent by updates
SEND_SECONDS = 30.0  # the longest wait until a client has read an event


class TooManyStreams(TooManyRequests):
    """The browser, the person, the address or the process has as many streams as it may have."""


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """How many streams may be open at a time."""

    session: int = 4  # of six connections that a browser makes to one host over HTTP/1.1
    person: int = 8
    address: int = 128
    process: int = 512


@dataclass(frozen=True, slots=True)
class Followed:
    """What the application says about a response that may be asked for again."""

    topic: str  # its version says whether the answer may have changed
    alike: str  # requests of equal address, query and `alike` get equal answers
    query: str  # the query that asks for what changes after this response
    page: object = None  # what `PageUpdates` need of a page that they can answer; None: they cannot


@dataclass(frozen=True, slots=True)
class Version:
    """What differs after a change of a topic."""

    whole: object  # after a change of it, requests are repeated
    progress: object = None  # after a change of nothing else, pages are updated


@dataclass(frozen=True, slots=True)
class PageUpdate:
    """An answer without a request: its body, and what asks for what changes after it."""

    body: bytes
    query: str
    page: object


class Topics(Protocol):
    """What the application says about topics."""

    def versions(self, topics: Collection[str]) -> Mapping[str, Version]:
        """Return the version of each topic; called in a thread."""

    def is_closing(self) -> bool:
        """Whether the server is about to end, and its streams with it."""


class PageUpdates(Protocol):
    """What the application answers without a request each."""

    def __call__(self, changed: Sequence[tuple[Any, Any]]) -> Sequence[PageUpdate | None]:
        """Return what is new to each page, given with its progress; None: ask by its request.

        Called in a thread.
        """


@dataclass(eq=False, slots=True)
class EventStream:
    """One open connection: what it follows, and what was sent."""

    environ: Environ
    source: BodyChunks
    send: Send
    owners: Collection[str]  # digests of the credentials that it was opened with
    followed: Followed
    checked_at: float  # when its own request was last answered
    refresh_at: float
    not_before: float = 0.0  # an answer that takes long is not asked for after each change
    version: Version | None = None
    last: bytes = b""
    is_ended: bool = False
    _event: bytes = b""
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_ready(self) -> bool:
        """Whether it could send an event at once."""
        return not (self.is_ended or self._event)

    @property
    def alike(self) -> tuple[str, str, str]:
        return self.environ["PATH_INFO"], self.followed.alike, self.followed.query

    def put(self, event: bytes) -> None:
        """Have it send an event; it must be ready."""
        self._event = event
        self._wake.set()

    def end(self) -> None:
        self.is_ended = True
        self._wake.set()

    async def run(self) -> None:
        """Send what is put until the end, or until the client has gone or does not read."""
        gone = asyncio.ensure_future(self.source.disconnected())
        gone.add_done_callback(lambda _: self.end())
        try:
            while not self.is_ended:
                if self._event:
                    await asyncio.wait_for(self._pass(self._event), SEND_SECONDS)
                    self._event = b""
                else:
                    await self._wake.wait()
                    self._wake.clear()
            await asyncio.wait_for(self._pass(b"", more_body=False), SEND_SECONDS)
        except TimeoutError:
            logger.info("%s does not read its events", self.environ["REMOTE_ADDR"])
        finally:
            self.is_ended = True
            gone.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await gone

    async def _pass(self, body: bytes, *, more_body: bool = True) -> None:
        await self.send({"type": "http.response.body", "body": body, "more_body": more_body})


@dataclass(frozen=True, slots=True)
class StreamAnswer:
    """The complete answer to a request that can be followed; one that was refused has no body."""

    status: int
    body: bytes
    followed: Followed | None  # None: it was refused


class LiveStreams:
    """All streams of this process; used by its event loop."""

    def __init__(
        self,
        application: Application,
        topics: Topics,
        updates: PageUpdates | None = None,
        *,
        limits: StreamLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._application, self._topics, self._clock = application, topics, clock
        self._limits, self._updates = limits or StreamLimits(), updates
        self._counts: dict[str, int] = {}
        self._streams: set[EventStream] = set()
        self._thread = ThreadPoolExecutor(1, "live")
        self._watch: asyncio.Task[None] | None = None
        self._rest_seconds = 0.0  # CPU seconds of the last look, and of the updates after it

    @contextmanager
    def counted(self, sessions: Iterable[str], person: str, address: str) -> Iterator[None]:
        """Count one more stream of these. Raises TooManyStreams."""
        limits = self._limits
        allowed = {"process": limits.process, f"address {address}": limits.address}
        allowed |= {f"person {person}": limits.person} if person else {}
        allowed |= {f"session {each}": limits.session for each in sessions}
        with ExitStack() as counted:
            for key, number in allowed.items():
                self._count(counted, key, number)
            yield

    def _count(self, counted: ExitStack, key: str, allowed: int) -> None:
        if self._counts.get(key, 0) >= allowed or self._topics.is_closing():
            raise TooManyStreams(key.partition(" ")[0])
        self._counts[key] = self._counts.get(key, 0) + 1
        counted.callback(self._uncount, key)

    def _uncount(self, key: str) -> None:
        self._counts[key] -= 1
        if not self._counts[key]:
            del self._counts[key]

    async def follow(
        self,
        environ: Environ,
        source: BodyChunks,
        send: Send,
        owners: Collection[str],
        answer: StreamAnswer,
    ) -> None:
        """Send the first answer, and then what changes, until the client leaves."""
        if answer.followed is None:
            raise ValueError("The application did not say how its response is followed.")
        now = self._clock()
        stream = EventStream(environ, source, send, owners, answer.followed, now, now)
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        stream.put(event_of(answer.body, answer.followed.query))
        self._streams.add(stream)
        if self._watch is None or self._watch.done():
            self._watch = asyncio.ensure_future(self._watched())
        try:
            await stream.run()
        finally:
            self._streams.discard(stream)

    def check(self, owners: Collection[str]) -> None:
        """Have the streams of these credentials ask again soon: their session may have ended."""
        for stream in self._streams:
            if not set(owners).isdisjoint(stream.owners):
                stream.checked_at = float("-inf")

    async def _watched(self) -> None:
        """Follow the topics for as long as there is a stream."""
        beat_at = self._clock()
        while self._streams:
            await asyncio.sleep(max(TICK_SECONDS, self._rest_seconds))
            try:
                if self._topics.is_closing():
                    self._end_all()
                elif self._streams:
                    await self._refresh_due()
            except Exception:
                # The database is away, for example. Pages learn it as they ask by themselves.
                logger.exception("The event streams are ended: their topics cannot be read")
                self._end_all()
            if self._clock() - beat_at >= BEAT_SECONDS:
                beat_at = self._clock()
                for stream in filter(lambda each: each.is_ready, self._streams):
                    stream.put(BEAT)

    def _end_all(self) -> None:
        for stream in self._streams:
            stream.end()

    async def _refresh_due(self) -> None:
        topics = {each.followed.topic for each in self._streams}
        versions, self._rest_seconds = await self._in_thread(
            partial(timed, self._topics.versions, topics)
        )
        now = self._clock()
        ready = {each for each in self._streams if each.is_ready and now >= each.not_before}
        changed = {each for each in ready if versions.get(each.followed.topic) != each.version}
        oldest_first = sorted(ready, key=lambda each: each.refresh_at)
        due = grouped(each for each in oldest_first if now >= each.refresh_at)
        asked = changed - self._progressed(changed, versions)
        asked.update(*due[:REFRESHES_PER_TICK])
        asked |= await self._update(grouped(changed - asked), versions)
        for group in sorted(grouped(asked), key=len, reverse=True):
            await self._refresh(group, versions)
        unchecked = [each for each in ready if now - each.checked_at >= CHECK_SECONDS]
        for stream in sorted(unchecked, key=lambda each: each.checked_at)[:CHECKS_PER_TICK]:
            if stream.is_ready:
                await self._refresh([stream], versions)

    def _progressed(
        self, streams: Iterable[EventStream], versions: Mapping[str, Version]
    ) -> set[EventStream]:
        """Return those of which no more than the progress has changed, and that may see it."""
        checked_after = self._clock() - CHECK_SECONDS
        return {
            each
            for each in streams
            if (version := versions.get(each.followed.topic)) is not None
            and each.version is not None
            and each.version.whole == version.whole
            and each.followed.page is not None
            and each.checked_at > checked_after
        }

    async def _update(
        self, groups: Sequence[list[EventStream]], versions: Mapping[str, Version]
    ) -> set[EventStream]:
        """Answer for all groups in one call; return the streams whose request is to be repeated."""
        if self._updates is None or not groups:
            return set().union(*groups)
        firsts = [group[0].followed for group in groups]
        changes = [(each.page, versions[each.topic].progress) for each in firsts]
        try:
            answers, cpu_seconds = await self._in_thread(partial(timed, self._updates, changes))
        except Exception:
            logger.exception("Updates failed: the requests are repeated")
            return set().union(*groups)
        self._rest_seconds += cpu_seconds
        left: set[EventStream] = set()
        for group, answer in zip(groups, answers, strict=True):
            if answer is None:
                left.update(group)
                continue
            for stream in group:
                stream.version = versions[stream.followed.topic]
                followed = replace(stream.followed, query=answer.query, page=answer.page)
                self._put(stream, answer.body, followed)
        return left

    async def _refresh(self, group: list[EventStream], versions: Mapping[str, Version]) -> None:
        """Ask once for streams whose answers are alike, as the first of them."""
        first, began_at = group[0], self._clock()
        alike = first.followed.alike
        ask = partial(timed, self._ask, first.environ, first.followed.query)
        answer, cpu_seconds = await self._in_thread(ask)
        seconds = self._clock() - began_at
        if answer.followed is None:
            first.end()
        else:
            first.checked_at = began_at
            is_alike = answer.followed.alike == alike
            for stream in group if is_alike else [first]:
                stream.not_before = self._clock() + PAUSE * seconds
                self._deliver(stream, answer.body, answer.followed, versions)
        await asyncio.sleep(cpu_seconds)

    def _deliver(
        self, stream: EventStream, body: bytes, followed: Followed, versions: Mapping[str, Version]
    ) -> None:
        before, version = stream.version, versions.get(followed.topic)
        is_changed = (before and before.whole) != (version and version.whole)
        pause = SETTLE_SECONDS if is_changed else REFRESH_SECONDS
        stream.version, stream.refresh_at = version, self._clock() + pause
        self._put(stream, body, followed)

    def _put(self, stream: EventStream, body: bytes, followed: Followed) -> None:
        stream.followed = followed
        if body != stream.last and stream.is_ready:
            stream.last = body
            stream.put(event_of(body, followed.query))

    def _ask(self, environ: Environ, query: str) -> StreamAnswer:
        return complete(self._application, environ | {"QUERY_STRING": query})

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, call, *arguments)


def grouped(streams: Iterable[EventStream]) -> list[list[EventStream]]:
    """Return the streams whose answers are alike together."""
    groups: dict[tuple[str, str, str], list[EventStream]] = {}
    for stream in streams:
        groups.setdefault(stream.alike, []).append(stream)
    return [*groups.values()]


def timed(call: Callable[..., T], *arguments: Any) -> tuple[T, float]:
    """Call a function; return what it returns, and the CPU seconds that this thread used."""
    began_at = time.thread_time()
    result = call(*arguments)
    return result, time.thread_time() - began_at


def is_asked_for(environ: Environ) -> bool:
    """Whether the request is one of an EventSource."""
    return environ["REQUEST_METHOD"] == "GET" and environ.get("HTTP_ACCEPT") == MEDIA_TYPE


def prepared(environ: Environ) -> Environ:
    """Return the request as the application gets it; that of a stream as it is repeated."""
    if not is_asked_for(environ):
        return environ | {OFFERED: True}
    query = environ.get("HTTP_LAST_EVENT_ID") or environ["QUERY_STRING"]  # a reconnect continues
    kept = {name: value for name, value in environ.items() if name not in NOT_OF_STREAMS}
    return kept | {OFFERED: True, "QUERY_STRING": query}


def is_followed(environ: Environ, status: int) -> bool:
    """Whether the answer to this request goes on as an event stream."""
    return is_asked_for(environ) and FOLLOWED in environ and status == HTTPStatus.OK


def complete(application: Application, environ: Environ) -> StreamAnswer:
    """Return the answer to a request without a body; only its status if it cannot be followed."""
    environ = with_body(environ, io.BytesIO(), 0)
    response = GatewayResponse(application, environ)
    block = response.block()
    if not is_followed(environ, response.status):
        response.close()
        return StreamAnswer(response.status, b"", None)
    return StreamAnswer(response.status, block + rest_of(response), environ[FOLLOWED])


def rest_of(response: GatewayResponse) -> bytes:
    """Return what is left of a response, whole."""
    blocks = []
    while not response.is_complete:
        blocks.append(response.block())
    return b"".join(blocks)


def event_of(body: bytes, query: str) -> bytes:
    """Return an event that carries this text, and where a reconnect continues."""
    lines = b"".join(b"data: %b\n" % line for line in body.splitlines() or [b""])
    return b"id: %b\n%b\n" % (query.encode("ascii", "ignore"), lines)
