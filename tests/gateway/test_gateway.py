"""The gateway as an ASGI application: what gets a thread, when, and what is refused."""

import asyncio
import threading

import pytest

from trainops.gateway import bodies
from trainops.gateway.clients import ClientLimits, Proof, Proofs, network_of
from trainops.gateway.environ import environ_of
from trainops.gateway.gateway import PROVED, Gateway
from trainops.gateway.responses import BLOCK_BYTES

KIB = 1024


class Rules:
    anonymous_bytes, body_bytes = 64 * KIB, 256 * KIB
    num_passwords = 3

    def address(self, environ):
        return environ["REMOTE_ADDR"]

    def credentials(self, environ):
        return [environ["HTTP_AUTHORIZATION"]] if "HTTP_AUTHORIZATION" in environ else []

    def prove(self, environ):
        """Every token is valid, and of the person that it names."""
        token = environ.get("HTTP_AUTHORIZATION")
        return token and Proof(token, token.rpartition(" ")[2])

    def checks_password(self, environ):
        return environ["PATH_INFO"] == "/login"

    def upload_bytes(self, environ):
        return 1024 * KIB if environ["PATH_INFO"] == "/upload" else None

    def has_space(self, environ, num_bytes):
        return num_bytes < 950_000

    def refusal(self, environ, error):
        def application(environ, start_response):
            start_response("400 refused", [])
            return [type(error).__name__.encode()]

        return application


def scope(path="/", *headers, client="1.2.3.4"):
    return {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
        "query_string": b"", "http_version": "1.1", "client": (client, 5),
        "headers": [(name.encode(), value.encode()) for name, value in headers],
    }  # fmt: skip


class Connection:
    """One request over a connection: what is sent, and what comes back."""

    def __init__(self, *chunks, keeps_sending=False):
        self.chunks, self.keeps_sending = [*chunks], keeps_sending
        self.messages, self.reads = [], asyncio.Event()
        self.reads.set()

    async def receive(self):
        if self.chunks:
            chunk = self.chunks.pop(0)
            more = bool(self.chunks) or self.keeps_sending
            return {"type": "http.request", "body": chunk, "more_body": more}
        return await asyncio.get_running_loop().create_future()

    async def send(self, message):
        await self.reads.wait()
        self.messages.append(message)

    @property
    def status(self):
        return self.messages[0]["status"]

    @property
    def body(self):
        return b"".join(message["body"] for message in self.messages[1:])


def echo(environ, start_response):
    start_response("200 OK", [("X-Length", environ.get("CONTENT_LENGTH", ""))])
    return [environ["wsgi.input"].read()]


def answer(application, *chunks, path="/", headers=(), **more):
    async def ask():
        connection = Connection(*chunks, **more)
        gateway = Gateway(application, Rules())
        await gateway(scope(path, *headers), connection.receive, connection.send)
        return connection

    return asyncio.run(ask())


LENGTH = ("content-length", "10")
KNOWN = ("authorization", "Bearer x")


def length(num_bytes):
    return ("content-length", str(num_bytes))


def test_a_body_in_pieces_reaches_the_application_whole():
    connection = answer(echo, b"12345", b"67890", headers=[LENGTH])
    assert (connection.status, connection.body) == (200, b"1234567890")


def test_a_body_without_a_length_is_measured():
    connection = answer(echo, b"123", b"456", headers=[("transfer-encoding", "chunked"), KNOWN])
    assert connection.body == b"123456"
    assert (b"x-length", b"6") in connection.messages[0]["headers"]


def test_a_thread_is_asked_for_only_when_the_body_is_complete():
    async def ask():
        begun = threading.Event()

        def application(environ, start_response):
            begun.set()
            return echo(environ, start_response)

        connection = Connection(b"12345", keeps_sending=True)
        gateway = Gateway(application, Rules())
        asking = asyncio.ensure_future(
            gateway(scope("/", LENGTH), connection.receive, connection.send)
        )
        await asyncio.sleep(0.1)
        assert not begun.is_set()
        asking.cancel()

    asyncio.run(ask())


@pytest.mark.parametrize(("path", "chunks"), [("/", [b"1"]), ("/upload", [b"1" * 100_000])])
def test_a_body_that_stops_arriving_ends_the_request(monkeypatch, path, chunks):
    monkeypatch.setattr(bodies, "PAUSE_SECONDS", 0.1)
    headers = [length(len(chunks[0]) + 9), KNOWN]
    connection = answer(echo, *chunks, path=path, headers=headers, keeps_sending=True)
    assert connection.body == b"TooSlow"


def test_a_body_that_trickles_ends_the_request(monkeypatch):
    """Each byte comes in time, all of them together do not."""
    monkeypatch.setattr(bodies, "START_SECONDS", 0.2)

    async def ask():
        connection = Connection()

        async def trickle():
            await asyncio.sleep(0.02)
            return {"type": "http.request", "body": b"x", "more_body": True}

        await Gateway(echo, Rules())(scope("/", LENGTH), trickle, connection.send)
        return connection

    assert asyncio.run(asyncio.wait_for(ask(), 10)).body == b"TooSlow"


@pytest.mark.parametrize(
    ("headers", "path", "what"),
    [
        ([length(65 * KIB)], "/", b"NotSignedIn"),
        ([length(65 * KIB)], "/upload", b"NotSignedIn"),
        ([("transfer-encoding", "chunked")], "/upload", b"NotSignedIn"),
        ([length(257 * KIB), KNOWN], "/", b"BodyTooLarge"),
        ([length(1025 * KIB), KNOWN], "/upload", b"BodyTooLarge"),
        ([("transfer-encoding", "chunked"), KNOWN], "/upload", b"LengthRequired"),
        ([length(950_000), KNOWN], "/upload", b"NoSpace"),
    ],
)
def test_what_is_announced_too_large_is_refused_unread(headers, path, what):
    assert answer(echo, headers=headers, path=path).body == what


@pytest.mark.parametrize(("more", "num_read"), [([], 1), ([KNOWN], 4)])
def test_more_than_may_be_sent_is_refused_while_it_arrives(more, num_read):
    chunks = [b"x" * 65_000] * 9
    connection = answer(echo, *chunks, headers=[("transfer-encoding", "chunked"), *more])
    assert connection.body == b"BodyTooLarge"
    assert len(chunks) - len(connection.chunks) == num_read + 1


def test_an_upload_is_streamed():
    connection = answer(
        echo, *[b"x" * 100_000] * 9, path="/upload", headers=[length(900_000), KNOWN]
    )
    assert connection.body == b"x" * 900_000


def test_a_large_response_comes_in_blocks():
    content = bytes(range(256)) * 2000

    def application(environ, start_response):
        start_response("200 OK", [])
        return [content[:1000], b"", content[1000:]]

    connection = answer(application)
    assert connection.body == content
    assert max(len(message["body"]) for message in connection.messages[1:]) == BLOCK_BYTES
    assert [message["more_body"] for message in connection.messages[1:]][-1] is False


def test_a_client_that_does_not_read_holds_no_thread_and_is_left(monkeypatch):
    monkeypatch.setattr("trainops.gateway.gateway.SEND_SECONDS", 0.2)
    closed = []

    class Blocks:
        def __iter__(self):
            return iter([bytes(BLOCK_BYTES)] * 50)

        def close(self):
            closed.append(True)

    def application(environ, start_response):
        start_response("200 OK", [])
        return Blocks()

    async def ask():
        gateway = Gateway(application, Rules(), ClientLimits(threads=1))
        stuck = Connection(b"")
        sent = stuck.send

        async def send(message):
            if len(stuck.messages) == 2:
                stuck.reads.clear()
            await sent(message)

        asking = asyncio.ensure_future(gateway(scope(), stuck.receive, send))
        await asyncio.sleep(0.05)
        other = Connection(b"")
        await asyncio.wait_for(gateway(scope(), other.receive, other.send), 5)
        await asking
        return other

    assert len(asyncio.run(ask()).body) == 50 * BLOCK_BYTES
    assert closed == [True, True]


def test_one_address_leaves_threads_and_requests_to_the_others():
    release = threading.Event()

    def application(environ, start_response):
        if environ["PATH_INFO"] == "/slow":
            release.wait(10)
        return echo(environ, start_response)

    async def ask():
        gateway = Gateway(application, Rules(), ClientLimits(threads=2, requests=3))

        def request(path, client):
            connection = Connection()
            asking = gateway(scope(path, client=client), connection.receive, connection.send)
            return connection, asyncio.ensure_future(asking)

        hostile = [request("/slow", "6.6.6.6") for _ in range(5)]
        other, asking = request("/", "1.1.1.1")
        await asyncio.wait_for(asking, 5)
        release.set()
        await asyncio.gather(*(asking for _, asking in hostile))
        return other.status, sorted(connection.body for connection, _ in hostile)

    status, answers = asyncio.run(ask())
    assert status == 200
    assert answers == [b"", b"", b"", b"TooManyRequests", b"TooManyRequests"]


class Slow:
    """An application that says who the sender is, and is slow at two addresses."""

    def __init__(self):
        self.release, self.num_running, self.most = threading.Event(), 0, 0
        self._lock = threading.Lock()

    def __call__(self, environ, start_response):
        if "HTTP_AUTHORIZATION" in environ:
            environ[PROVED] = Rules().prove(environ)
        if environ["PATH_INFO"] in ("/slow", "/login"):
            with self._lock:
                self.num_running += 1
                self.most = max(self.most, self.num_running)
            self.release.wait(10)
            with self._lock:
                self.num_running -= 1
        return echo(environ, start_response)


async def asked(gateway, path, client, token="", body=()):
    headers = [("authorization", f"Bearer {token}")] if token else []
    headers += [length(sum(map(len, body)))] if body else []
    connection = Connection(*body)
    await gateway(scope(path, *headers, client=client), connection.receive, connection.send)
    return connection


def test_one_person_at_many_addresses_leaves_threads_to_the_others():
    application = Slow()

    async def ask():
        gateway = Gateway(application, Rules(), ClientLimits(threads=2))
        await asked(gateway, "/", "6.6.6.0", "mallory")  # from now on it is known whose it is
        hostile = [
            asyncio.ensure_future(asked(gateway, "/slow", f"6.6.6.{number}", "mallory"))
            for number in range(20)
        ]
        await asyncio.sleep(0.1)
        other = await asyncio.wait_for(asked(gateway, "/", "6.6.6.1", "ana"), 5)
        application.release.set()
        await asyncio.gather(*hostile)
        return other.status

    assert asyncio.run(ask()) == 200
    assert application.most == 2


def test_what_waits_for_a_password_slot_holds_no_thread(monkeypatch):
    """Two of an address are checked or next; the rest waits, and is refused after some time."""
    monkeypatch.setattr("trainops.gateway.gateway.PASSWORD_SECONDS", 0.5)
    application = Slow()

    async def ask():
        gateway = Gateway(application, Rules(), ClientLimits(threads=3, passwords=2))
        mallory = [
            asyncio.ensure_future(asked(gateway, "/login", "6.6.6.6", body=[b"x"]))
            for _ in range(20)
        ]
        await asyncio.sleep(0.1)
        assert application.num_running == 2
        ana = asyncio.ensure_future(asked(gateway, "/login", "1.1.1.1", body=[b"x"]))
        page = await asyncio.wait_for(asked(gateway, "/", "6.6.6.6"), 5)
        while sum(each.done() for each in mallory) < 18:
            await asyncio.sleep(0.01)
        refused = [each.result().body for each in mallory if each.done()]
        application.release.set()
        await asyncio.gather(ana, *mallory)
        return page.status, ana.result().status, refused

    page, signed_in, refused = asyncio.run(ask())
    assert (page, signed_in, application.most) == (200, 200, 3)
    assert refused == [b"PasswordWaitOver"] * 18


def test_what_waits_for_a_thread_of_a_person_takes_none_of_the_address():
    application = Slow()

    async def ask():
        gateway = Gateway(application, Rules(), ClientLimits(threads=2))
        await asked(gateway, "/", "6.6.6.6", "mallory")
        first = [
            asyncio.ensure_future(asked(gateway, "/slow", "7.7.7.7", "mallory")) for _ in range(2)
        ]
        await asyncio.sleep(0.1)
        waiting = [
            asyncio.ensure_future(asked(gateway, "/", "6.6.6.6", "mallory")) for _ in range(5)
        ]
        other = await asyncio.wait_for(asked(gateway, "/", "6.6.6.6", "ana"), 5)
        application.release.set()
        await asyncio.gather(*first, *waiting)
        return other.status

    assert asyncio.run(ask()) == 200


def test_one_person_has_n_requests_in_progress_from_all_addresses():
    application = Slow()

    async def ask():
        gateway = Gateway(application, Rules(), ClientLimits(threads=9, requests=3))
        await asked(gateway, "/", "6.6.6.0", "mallory")
        hostile = [
            asyncio.ensure_future(asked(gateway, "/slow", f"6.6.6.{number}", "mallory"))
            for number in range(5)
        ]
        await asyncio.sleep(0.1)
        application.release.set()
        return sorted([(await each).body for each in hostile])

    assert asyncio.run(ask()) == [b"", b"", b"", b"TooManyRequests", b"TooManyRequests"]


def test_large_bodies_and_uploads_count_for_the_person_from_the_first_on():
    application = Slow()
    body = [b"x" * 70_000]

    async def ask(path, share):
        gateway = Gateway(application, Rules(), share)
        hostile = [
            asyncio.ensure_future(asked(gateway, path, f"6.6.6.{number}", "mallory", body))
            for number in range(3)
        ]
        return sorted([(await each).body for each in hostile], key=len)

    assert asyncio.run(ask("/", ClientLimits(large_bodies=1)))[:2] == [
        b"TooManyRequests",
        b"TooManyRequests",
    ]
    assert asyncio.run(ask("/upload", ClientLimits(requests=1)))[:2] == [
        b"TooManyRequests",
        b"TooManyRequests",
    ]


def test_only_what_was_proved_lately_is_remembered():
    proofs = Proofs(max_known=2)
    for number in (1, 2, 1, 3):
        proofs.remember(Proof(f"token {number}", f"user {number % 2}"))
    assert proofs.people(["token 1", "token 2", "token 3", "token 4", ""]) == ["user 1"]
    assert proofs.people(["token 2"]) == []


def test_addresses_of_one_customer_count_as_one():
    assert network_of("2001:db8:1:2:3::1") == network_of("2001:db8:1:2::9")
    assert network_of("2001:db8:1:2::1") != network_of("2001:db8:1:3::1")
    assert network_of("10.0.0.1") != network_of("10.0.0.2")
    assert network_of("") == ""


def test_a_header_with_an_underscore_cannot_pass_for_another():
    environ = environ_of(scope("/a%20b/%ff", ("x_forwarded_for", "9.9.9.9"), ("cookie", "a=1"),
                               ("cookie", "b=2"), ("x-one", "1"), ("x-one", "2")))  # fmt: skip
    assert "HTTP_X_FORWARDED_FOR" not in environ
    assert (environ["HTTP_COOKIE"], environ["HTTP_X_ONE"]) == ("a=1; b=2", "1,2")
    assert environ["PATH_INFO"] == "/a b/\xff"
