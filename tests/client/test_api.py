"""The API with servers and proxies that misbehave."""

import json
import re
import socket
import subprocess
import sys
import time

import pytest

from tests.cli.conftest import ROOT
from tests.client.conftest import answer
from trainops.client import http
from trainops.client.api import Api, difference_of
from trainops.client.problems import ExitCode, Problem, Refused, Unreachable
from trainops.client.server import ServerAddress
from trainops.version import VERSION

DATA = answer(b'{"success": true, "data": {"a": 1}}')
CUT = DATA[:-5]
BUSY = answer(b"busy", "503 Service Unavailable", "Retry-After: 2")
ERROR = {"code": "X", "message": "No.", "details": {}}
REFUSAL = json.dumps({"success": False, "error": ERROR}).encode()


@pytest.fixture
def api():
    """Return an API of an address, and the list of how long it waited."""

    opened = []

    def api(url):
        waits: list[float] = []
        opened.append(Api(ServerAddress(url), sleep=waits.append))
        return opened[-1], waits

    yield api
    for each in opened:
        each.close()


def test_a_client_that_was_not_closed_leaves_no_open_connection(scripted):
    transport = http.Transport(scripted(DATA).url, {})
    kept = transport._connection()
    transport._idle.append(kept)
    end = kept.sock
    del transport, kept
    assert end.fileno() == -1


def test_a_response_that_was_cut_off_is_asked_for_again(api, scripted):
    server = scripted(CUT, b"", DATA)
    client, waits = api(server.url)
    assert client.get("x") == {"a": 1}
    assert len(waits) == 2


def test_a_cut_off_response_to_a_post_says_that_it_may_have_been_done(api, scripted):
    server = scripted(CUT, DATA)
    client, _ = api(server.url)
    with pytest.raises(Unreachable, match=r"cut off.*may have done") as raised:
        client.post("x")
    assert raised.value.was_sent
    assert len(server.requests) == 1


def test_a_submission_is_sent_again_with_the_same_key(api, scripted):
    server = scripted(CUT, BUSY, DATA)
    client, waits = api(server.url)
    assert client.submit("operations", {"name": "é"}) == {"a": 1}
    keys = {re.search(rb"Idempotency-Key: (\S+)", each)[1] for each in server.requests}
    assert len(server.requests) == 3 and len(keys) == 1
    assert waits == [1.0, 2.0]
    assert all(each.endswith('{"name": "é"}'.encode()) for each in server.requests)


def test_a_server_that_is_busy_without_limit_ends_with_what_it_says(api, scripted):
    client, waits = api(scripted(*[BUSY] * 4).url)
    with pytest.raises(Problem, match="HTTP 503") as raised:
        client.get("x")
    assert waits == [2.0] * 3
    assert "It asks to wait for 2 s." in raised.value.hints


@pytest.mark.parametrize("status", ["502 Bad Gateway", "503 No", "504 Gateway Timeout"])
def test_a_proxy_whose_server_is_away_is_no_answer(api, scripted, status):
    client, _ = api(scripted(answer(b"<html>", status)).url)
    with pytest.raises(Unreachable, match=f"HTTP {status[:3]}") as raised:
        client.get("x")
    assert raised.value.was_sent


@pytest.mark.parametrize("wait", ["3600", "soon", "-1", "nan"])
def test_a_wait_that_is_too_long_or_none_is_not_waited_for(api, scripted, wait):
    client, waits = api(scripted(answer(b"", "503 No", f"Retry-After: {wait}")).url)
    with pytest.raises(Problem, match="HTTP 503"):
        client.get("x")
    assert not waits


@pytest.mark.parametrize(
    "body",
    [
        b"<html>Sign in</html>", b"", b"\xff\xfe", b"[" * 100_000, b'{"success": true}',
        b'{"success": false}', b'{"success": false, "error": "no"}', b'{"success": 1, "data": 2}',
    ],
)  # fmt: skip
def test_what_is_no_envelope_is_named(api, scripted, body):
    client, _ = api(scripted(answer(body)).url)
    with pytest.raises(Problem, match="is not a trainops server"):
        client.get("x")


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_a_number_that_json_does_not_have_is_named_and_not_sent(api, scripted, number):
    server = scripted(DATA)
    client, _ = api(server.url)
    with pytest.raises(Problem, match=rf"design\.values\.1: got {number}; allowed: a finite"):
        client.post("studies", {"name": "x", "design": {"values": [1.0, number]}})
    assert not server.requests


def test_a_response_that_does_not_come_is_waited_for_until_the_time_limit(api):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client, waits = api(f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(Unreachable, match="did not respond in time"):
            client.until(time.monotonic() + 0.1).get("x")
    assert not waits, "it is not asked again after the time limit"


def test_a_busy_server_is_not_waited_for_beyond_the_time_limit(api, scripted):
    client, waits = api(scripted(BUSY, DATA).url)
    with pytest.raises(Problem, match="HTTP 503"):
        client.until(time.monotonic() + 1).get("x")
    assert not waits


def test_a_list_that_is_none_is_named(api, scripted):
    client, _ = api(scripted(DATA).url)
    with pytest.raises(Problem, match="returned no list"):
        client.rows("x")


@pytest.mark.parametrize("head", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nA" + b"x" * 70_000])
def test_what_is_no_http_is_no_response(api, scripted, head):
    client, _ = api(scripted(*[head] * 4).url)
    with pytest.raises(Unreachable):
        client.get("x")


def test_a_download_that_was_cut_off_leaves_no_file(api, scripted, tmp_path):
    client, _ = api(scripted(answer(b"x" * 100)[:-1]).url)
    with pytest.raises(Unreachable, match="cut off"):
        client.download("x", tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_a_refusal_has_its_code_and_the_difference_of_versions(api, scripted):
    refusal = answer(REFUSAL, "409 Conflict", "trainops-version: 99.1.0")
    client, _ = api(scripted(refusal).url)
    with pytest.raises(Refused, match="No") as raised:
        client.get("x")
    assert raised.value.code == "X" and raised.value.exit_code == ExitCode.CONFLICT
    assert "older than the server (99.1.0)" in raised.value.hints[-1]


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (VERSION, ""), (None, ""), ("99.0.0", "is older than the server"),
        ("0.0.1", "is newer than the server"), ("what", "the server 'what'"),
    ],
)  # fmt: skip
def test_a_client_of_another_version_says_which_is_older(version, text):
    assert text in difference_of(version)
    assert bool(text) == bool(difference_of(version))


def test_a_connection_is_used_again_unless_the_server_closed_it(live_server):
    transport = http.Transport(live_server.url, {})
    for _ in range(2):
        transport.request("GET", "/api/v1/health", {})
    (kept,) = transport._idle
    kept.sock.shutdown(2)
    assert transport.request("GET", "/api/v1/health", {}).is_success
    transport.close()


def test_a_proxy_of_the_environment_relays_with_its_password(api, scripted, monkeypatch):
    proxy = scripted(DATA)
    monkeypatch.setenv("http_proxy", proxy.url.replace("//", "//ana:p%40ss@"))
    monkeypatch.delenv("no_proxy", raising=False)
    client, _ = api("http://box.invalid:8000")
    assert client.get("x") == {"a": 1}
    head = proxy.requests[0]
    assert head.startswith(b"GET http://box.invalid:8000/api/v1/x HTTP/1.1")
    assert b"Proxy-Authorization: Basic YW5hOnBAc3M=" in head


def test_to_list_operations_loads_no_library_of_http_and_tables():
    program = """
import sys
from trainops.cli.app import build
build("ls")
heavy = {"httpx", "rich", "yaml", "asyncio", "django", "pydantic"} & set(sys.modules)
sys.exit(f"loaded: {heavy}" if heavy else 0)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
