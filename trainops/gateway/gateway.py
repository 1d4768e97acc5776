"""An ASGI application that runs a WSGI one in threads which no client can hold.

A request gets a thread when its body is complete, and leaves it before its response is read: slow
clients cost memory of a few blocks, never a thread. One client address gets some of the threads,
so that the others stay for the rest; so does one person, from however many addresses. The
application says which person a token or a session is of, and from then on it counts. Uploads, which
are too large to be collected, are streamed into threads of their own. Event streams hold no thread:
see `trainops.gateway.live`; nor do requests that wait until fewer passwords are being checked.
"""

import asyncio
import io
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import (
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from trainops.gateway import bodies, live
from trainops.gateway.asgi import Receive, Scope, Send
from trainops.gateway.clients import (
    ClientLimits,
    ClientRequests,
    Clients,
    PasswordWaitOver,
    Proof,
    Proofs,
    TooManyRequests,
    network_of,
)
from trainops.gateway.environ import Environ, environ_of, with_body
from trainops.gateway.responses import Application, GatewayResponse

T = TypeVar("T")
logger = logging.getLogger(__name__)

REFUSED = (
    TooManyRequests,
    PasswordWaitOver,
    bodies.TooSlow,
    bodies.BodyTooLarge,
    bodies.NotSignedIn,
    bodies.LengthRequired,
    bodies.NoSpace,
)
SEND_SECONDS = 30.0  # the longest wait until a client has read a block
NUM_THREADS, NUM_STREAMS = 12, 16
PASSWORD_SECONDS = 10.0  # the longest wait until fewer passwords are being checked
PROVED = "trainops.proved"  # where the application leaves a Proof in the environment


class GatewayRules(Protocol):
    """What the application says about its addresses, its senders and its error responses."""

    @property
    def anonymous_bytes(self) -> int:
        """The largest body from a sender without a valid token or session."""

    @property
    def body_bytes(self) -> int:
        """The largest body that is collected."""

    @property
    def num_passwords(self) -> int:
        """How many passwords are checked at once."""

    def checks_password(self, environ: Environ) -> bool:
        """Whether a request like this may make the application check or set a password."""

    def address(self, environ: Environ) -> str:
        """Return the address of the client, which may be behind a proxy."""

    def credentials(self, environ: Environ) -> list[str]:
        """Return digests of the token and the session that the request shows, valid or not."""

    def prove(self, environ: Environ) -> Proof | None:
        """Return what a valid token or session of the request proves; called in a thread."""

    def upload_bytes(self, environ: Environ) -> int | None:
        """Return how large a body may be that is streamed; None where none is."""

    def has_space(self, environ: Environ, num_bytes: int) -> bool:
        """Whether the disk has room for an upload of N bytes."""

    def refusal(self, environ: Environ, error: Exception) -> Application:
        """Return an application that answers with this error."""


@dataclass(slots=True)
class Exchange:
    """One request, and the way to its client.

    `people` and `address` are what it counts for. A thread is waited for as the person first:
    a request that waits for its person's other requests then takes none of its address's share.
    """

    environ: Environ
    source: bodies.BodyChunks
    send: Send
    held: AsyncExitStack
    address: ClientRequests
    people: dict[str, ClientRequests]

    @property
    def clients(self) -> list[ClientRequests]:
        return [*(self.people[person] for person in sorted(self.people)), self.address]

    @contextmanager
    def counted(self, what: str) -> Iterator[None]:
        """Count one more in progress. Raises TooManyRequests."""
        with ExitStack() as counted:
            for client in self.clients:
                counted.enter_context(client.counted(what))
            yield


class Gateway:
    def __init__(
        self,
        application: Application,
        rules: GatewayRules,
        limits: ClientLimits | None = None,
        streams: live.LiveStreams | None = None,
    ) -> None:
        self._application, self._rules, self._live = application, rules, streams
        limits = limits or ClientLimits()
        self._addresses, self._people = Clients(limits), Clients(limits)
        self._proofs = Proofs()
        self._passwords = asyncio.Semaphore(rules.num_passwords)
        self._threads = ThreadPoolExecutor(NUM_THREADS, "request")
        self._streams = ThreadPoolExecutor(NUM_STREAMS, "upload")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        environ = environ_of(scope)
        if self._live is not None:
            environ = live.prepared(environ)
        try:
            async with AsyncExitStack() as held:
                network = network_of(self._rules.address(environ))
                address = await held.enter_async_context(self._addresses.visit(network))
                exchange = Exchange(environ, bodies.BodyChunks(receive), send, held, address, {})
                for person in self._proofs.people(self._rules.credentials(environ)):
                    await self._count(exchange, person)
                await self._serve(exchange, has_body=has_body(scope))
        except bodies.Disconnected:
            return
        except REFUSED as error:
            response = GatewayResponse(self._rules.refusal(environ, error), environ)
            await send(response.start())
            await send(response.message(response.block()))

    async def _count(self, exchange: Exchange, person: str) -> None:
        """Let the request count for this person from now to its end. Raises TooManyRequests."""
        if person not in exchange.people:
            visit = self._people.visit(person)
            exchange.people[person] = await exchange.held.enter_async_context(visit)

    async def _serve(self, exchange: Exchange, *, has_body: bool) -> None:
        if not has_body:
            await self._respond(exchange, io.BytesIO(), 0)
            return
        with exchange.counted("bodies"):
            length = exchange.environ.get("CONTENT_LENGTH")
            allowed = await self._allowed_bytes(exchange, length)
            if allowed > self._rules.body_bytes:
                await self._stream(exchange, length, allowed)
            else:
                await self._collect(exchange, allowed)

    async def _allowed_bytes(self, exchange: Exchange, length: str | None) -> int:
        """Raises TooLarge and NotSignedIn by the announced length, before any of it is read."""
        rules, environ = self._rules, exchange.environ
        if length is not None and int(length) <= rules.anonymous_bytes:
            return rules.anonymous_bytes
        upload_bytes = rules.upload_bytes(environ)
        allowed = upload_bytes or rules.body_bytes
        if length is not None and int(length) > allowed:
            raise bodies.BodyTooLarge(allowed)
        if proof := await self._in_thread(exchange, rules.prove, environ):
            self._proofs.remember(proof)
            await self._count(exchange, proof.person)
            return allowed
        if length is None and upload_bytes is None:
            return rules.anonymous_bytes
        raise bodies.NotSignedIn(rules.anonymous_bytes)

    async def _collect(self, exchange: Exchange, allowed: int) -> None:
        is_large = allowed > bodies.IN_MEMORY_BYTES
        counted = exchange.counted("large_bodies") if is_large else nullcontext()
        with counted, bodies.new_buffer() as body:
            await bodies.collect(exchange.source, allowed, body)
            body.seek(0)
            await self._respond(exchange, body, exchange.source.num_bytes)

    async def _stream(self, exchange: Exchange, length: str | None, allowed: int) -> None:
        if length is None:
            raise bodies.LengthRequired("An upload requires a Content-Length.")
        if not self._rules.has_space(exchange.environ, int(length)):
            raise bodies.NoSpace("There is not enough disk space on the server for this upload.")
        async with AsyncExitStack() as streams:
            for client in exchange.clients:
                await streams.enter_async_context(client.streams)
            stream = bodies.BodyStream(exchange.source, allowed)
            await self._respond(exchange, io.BufferedReader(stream), int(length), stream)

    async def _respond(
        self, exchange: Exchange, body: Any, num_bytes: int, stream: bodies.BodyStream | None = None
    ) -> None:
        environ = with_body(exchange.environ, body, num_bytes)
        make = partial(first_block, self._application, environ)
        if stream is None:
            async with self._password_slot(exchange):
                response, block = await self._in_thread(exchange, make)
        else:
            loop = asyncio.get_running_loop()
            response, block = await loop.run_in_executor(self._streams, make)
            if stream.error is not None:
                await self._in_thread(exchange, response.close)
                raise stream.error
        if proof := environ.get(PROVED):
            self._proofs.remember(proof)
        if self._live is not None and live.is_followed(environ, response.status):
            rest = await self._in_thread(exchange, live.rest_of, response)
            answer = live.StreamAnswer(response.status, block + rest, environ[live.FOLLOWED])
            await self._follow(exchange, self._live, answer, proof)
            return
        if self._live is not None and environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            self._live.check(self._rules.credentials(environ))  # it may have ended the session
        await exchange.send(response.start())
        await exchange.send(response.message(block))
        if not response.is_complete:
            await self._send_rest(exchange, response)

    @asynccontextmanager
    async def _password_slot(self, exchange: Exchange) -> AsyncIterator[None]:
        """Wait, for its address first, where a password may be checked. Raises PasswordWaitOver."""
        async with AsyncExitStack() as slots:
            if self._rules.checks_password(exchange.environ):
                try:
                    async with asyncio.timeout(PASSWORD_SECONDS):
                        await slots.enter_async_context(exchange.address.passwords)
                        await slots.enter_async_context(self._passwords)
                except TimeoutError:
                    raise PasswordWaitOver from None
            yield

    async def _follow(
        self,
        exchange: Exchange,
        streams: live.LiveStreams,
        answer: live.StreamAnswer,
        proof: Proof | None,
    ) -> None:
        """Go on as an event stream, which counts for itself and not as a request in progress."""
        credentials = self._rules.credentials(exchange.environ)
        address = network_of(self._rules.address(exchange.environ))
        with streams.counted(credentials, proof.person if proof else "", address):
            await exchange.held.aclose()
            await streams.follow(
                exchange.environ, exchange.source, exchange.send, credentials, answer
            )

    async def _send_rest(self, exchange: Exchange, response: GatewayResponse) -> None:
        """Send block by block, until the end or until the client has gone or does not read."""
        gone = asyncio.ensure_future(exchange.source.disconnected())
        try:
            while not (response.is_complete or gone.done()):
                block = await self._in_thread(exchange, response.block)
                await asyncio.wait_for(exchange.send(response.message(block)), SEND_SECONDS)
        except TimeoutError:
            logger.info("%s does not read its response", exchange.environ["REMOTE_ADDR"])
        finally:
            gone.cancel()
            if not response.is_complete:
                await self._in_thread(exchange, response.close)

    async def _in_thread(self, exchange: Exchange, call: Callable[..., T], *arguments: Any) -> T:
        async with AsyncExitStack() as shares:
            for client in exchange.clients:
                await shares.enter_async_context(client.threads)
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, call, *arguments)


def has_body(scope: Scope) -> bool:
    names = {name.lower() for name, _ in scope["headers"]}
    return b"content-length" in names or b"transfer-encoding" in names


def first_block(application: Application, environ: Environ) -> tuple[GatewayResponse, bytes]:
    response = GatewayResponse(application, environ)
    return response, response.block()
