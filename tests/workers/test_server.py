"""The registry behind the real web server: going away, and while its database is away."""

import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import httpx
import psutil
import psycopg
import pytest
from drf_spectacular.generators import SchemaGenerator
from psycopg import sql

from tests.journey.stack import DATABASE, ROOT, migrated, running
from tests.waiting import wait_until
from trainops.launch.servers import postgres_server

pytestmark = [pytest.mark.journey, pytest.mark.slow]
REGISTRATION = {"worker_id": "gpu-box", "worker_type": "custom"}


def register(client):
    """Try to register; return the answer, or None where nobody listens any more."""
    try:
        return client.post("workers/register", json=REGISTRATION)
    except httpx.TransportError:
        return None


def require_sent_away(response):
    assert (response.status_code, response.headers["Retry-After"]) == (503, "10")
    body = response.json()
    assert (body["success"], body["error"]["code"]) == (False, "SHUTTING_DOWN")


def test_workers_are_sent_away_while_others_stop_first(tmp_path):
    """`up` stops the workers before the web server, and a step of this operation takes a while."""
    with running(tmp_path / "var") as stack:
        slow = {"recipe": "scripted", "parameters": {"step_seconds": 4.0}, "epochs": 50}
        stack.wait_step(stack.submit(**slow), 1)
        assert register(stack.client).status_code == 200
        stack.process.send_signal(signal.SIGTERM)
        wait_until(lambda: register(stack.client).status_code == 503)
        assert stack.client.get("health").is_success  # people are still answered meanwhile
        while (response := register(stack.client)) is not None:
            require_sent_away(response)
        up = psutil.Process(stack.process.pid)
        wait_until(lambda: up.status() == psutil.STATUS_ZOMBIE)
    assert stack.process.returncode == 0


@contextmanager
def web_server(tmp_path, *arguments):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "trainops.web", "--port", str(port), *arguments]
    shutil.copy(migrated(), tmp_path / DATABASE)
    env = os.environ | {"TRAINOPS_DATA_DIR": str(tmp_path)}
    process = subprocess.Popen(command, cwd=ROOT, env=env)
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1/")
    try:
        wait_until(lambda: answers(client))
        yield process, client, port
    finally:
        client.close()
        family = psutil.Process(process.pid).children() if process.poll() is None else []
        for each in (*family, process):  # killed alone, it would leave those that answer
            each.kill()
        process.wait()


def answers(client):
    try:
        return client.get("health").is_success
    except httpx.TransportError:
        return False


def test_alone_it_says_goodbye_before_its_port_is_closed(tmp_path):
    with web_server(tmp_path) as (process, client, _):
        kept = httpx.Client(base_url=client.base_url)  # a connection from before
        kept.get("health")
        process.terminate()
        began = time.monotonic()
        wait_until(lambda: register(client).status_code == 503)
        require_sent_away(register(kept))
        kept.close()
        assert process.wait(10) == 0
        assert 1.5 < time.monotonic() - began < 6


def test_a_second_stop_request_closes_it_at_once_and_finishes_what_it_answers(tmp_path):
    with web_server(tmp_path) as (process, client, port):
        asking = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        asking.putrequest("POST", "/api/v1/tokens")
        asking.putheader("Content-Length", "2")
        asking.putheader("Content-Type", "application/json")
        asking.endheaders(b"{")  # half of it
        process.send_signal(signal.SIGUSR1)
        wait_until(lambda: register(client).status_code == 503)
        process.terminate()
        wait_until(lambda: register(client) is None)
        asking.send(b"}")
        assert asking.getresponse().status < 500
        asking.close()
        assert process.wait(10) == 0


def num_clients(process):
    kept = (each.status == psutil.CONN_ESTABLISHED for each in process.net_connections("tcp"))
    return sum(kept)


def test_a_stop_request_reaches_every_process_of_the_server(tmp_path):
    with web_server(tmp_path, "--processes", "3") as (process, client, _):
        answering = wait_until(lambda: (f := psutil.Process(process.pid).children())[2:] and f)
        clients = [httpx.Client(base_url=client.base_url) for _ in range(60)]
        assert all(each.get("health").is_success for each in clients)
        assert all(num_clients(each) for each in answering), list(map(num_clients, answering))
        process.send_signal(signal.SIGUSR1)
        wait_until(lambda: all(register(each).status_code == 503 for each in clients))
        for each in clients:
            each.close()
        process.terminate()
        assert process.wait(10) == 0
        assert not any(each.is_running() for each in answering)


@pytest.mark.parametrize("number", ["0", "-1", "two", "65"])
def test_a_wrong_number_of_processes_is_refused(number):
    env = os.environ | {"TRAINOPS_WEB_PROCESSES": number}
    ended = subprocess.run(
        [sys.executable, "-m", "trainops.web"], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert ended.returncode == 2
    assert f"got '{number}'; allowed: a number of processes, 1 to 64" in ended.stderr


def test_a_body_in_chunks_is_read_and_never_taken_for_an_empty_one(tmp_path):
    with web_server(tmp_path) as (_, client, _):
        refused = client.post("tokens", content=iter([b" " * 60_000] * 2))
        assert (refused.status_code, refused.json()["error"]["code"]) == (413, "BODY_TOO_LARGE")
        json = {"Content-Type": "application/json"}
        assert client.post("tokens", content=iter([b"{", b"}"]), headers=json).status_code == 401


@contextmanager
def nobody_let_in(url):
    """While this lasts, the database refuses everybody and has thrown out who was there."""
    server, _, name = url.rpartition("/")

    def allow(yes):
        with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
            let_in = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
            connection.execute(let_in.format(sql.Identifier(name), sql.Literal(yes)))
            threw_out = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
            connection.execute(threw_out, [name])

    allow(False)
    try:
        yield
    finally:
        allow(True)


def requests_of_every_kind():
    """Yield the method and address of everything that the API describes."""
    for path, methods in SchemaGenerator().get_schema(public=True)["paths"].items():
        for method in methods.keys() & {"get", "post", "put", "delete"}:
            address = path.removeprefix("/api/v1/")
            address = address.replace("{worker_id}", "gpu-box")
            for each in methods[method].get("parameters", []):
                value = "1" if each["schema"].get("type") == "integer" else "x"
                address = address.replace(f"{{{each['name']}}}", value)
            yield method.upper(), address


def test_while_the_database_is_away_every_address_says_so_and_afterwards_all_is_well(tmp_path):
    with postgres_server() as url, running(tmp_path / "var", TRAINOPS_DATABASE_URL=url) as stack:
        assert register(stack.client).status_code == 200
        needs_none = {"health", "ready"}
        with nobody_let_in(url):
            for method, address in requests_of_every_kind():
                response = stack.client.request(method, address)
                body = response.json()
                if address in needs_none:
                    continue
                assert response.status_code == 503, (method, address, body)
                assert response.headers["Retry-After"] == "5"
                assert body["error"]["code"] == "SERVICE_UNAVAILABLE", body
            page = httpx.get(f"{stack.url}/", cookies={"sessionid": "x" * 32})
            assert (page.status_code, page.headers["Retry-After"]) == (503, "5")
            assert "The database does not answer" in page.text
            ready = stack.client.get("ready")
            assert ready.json()["error"]["details"]["parts"]["database"].startswith("Operational")
        assert register(stack.client).status_code == 200
        wait_until(lambda: stack.get("workers")[0]["status"] != "GONE")
        log = (stack.data_dir / "log" / "web.log").read_text()
        assert "The database did not respond to /api/v1/operations" in log
        assert "Traceback" not in log

        def is_reported():
            rows = [each for each in stack.get("workers") if each["worker_type"] == "celery"]
            return rows and "OperationalError" in rows[0]["last_error"]

        wait_until(is_reported)
        done = stack.submit(recipe="scripted", epochs=1)
        stack.wait(done, "COMPLETED")
