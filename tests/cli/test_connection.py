import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from typer.testing import CliRunner

from tests.cli.conftest import ROOT
from trainops.cli.app import build
from trainops.client.problems import ExitCode

pytestmark = pytest.mark.slow


@pytest.fixture
def cli(monkeypatch, tmp_path):
    monkeypatch.setenv("TRAINOPS_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("TRAINOPS_URL", raising=False)
    return lambda *arguments: CliRunner().invoke(build(), list(arguments))


@pytest.fixture
def answering():
    """A server that gives one answer to everything, and remembers what it was asked."""
    servers = []

    def answering(status=200, body=b"<html>", **headers):
        asked = []

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(dict(self.headers))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = HTTPServer(("127.0.0.1", 0), Answer)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}", asked

    yield answering
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_without_a_server_it_says_how_to_start_one(cli, free_port):
    ran = cli("ls", "--url", f"http://127.0.0.1:{free_port}")
    assert ran.exit_code == ExitCode.FAILED
    assert ran.stdout == ""
    first, *more = ran.stderr.splitlines()
    assert first.startswith(f"error: No server at http://127.0.0.1:{free_port}")
    assert "  Start it with: python3 -m trainops up" in more


def test_a_machine_elsewhere_is_not_started_from_here(cli):
    ran = cli("ls", "--url", "http://nowhere.invalid:1")
    assert ran.exit_code == ExitCode.FAILED
    assert "trainops up" not in ran.stderr
    assert "--url" in ran.stderr


def test_a_bad_address_is_a_usage_error(cli):
    assert cli("ls", "--url", "nowhere").exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("status", "headers", "message"),
    [
        (200, {"Content-Type": "text/html"}, "is not a trainops server (HTTP 200, text/html)"),
        (502, {}, "returned an error (HTTP 502"),
        (301, {"Location": "https://box/"}, "redirects to https://box/"),
    ],
)
def test_whatever_else_answers_there_is_named(cli, answering, status, headers, message):
    url, _ = answering(status, **headers)
    ran = cli("ls", "--url", url)
    assert ran.exit_code == ExitCode.FAILED
    assert message in ran.stderr


def test_json_that_is_not_ours_is_no_answer_either(cli, answering):
    for body in (b"[]", b"{}", b"null"):
        url, _ = answering(body=body)
        assert "is not a trainops server" in cli("ls", "--url", url).stderr


def test_the_token_is_shown_as_a_bearers(cli, answering):
    url, asked = answering(body=b'{"success": true, "data": []}')
    assert cli("ls", "--url", url, "--token", "abc").exit_code == ExitCode.OK
    assert asked[0]["Authorization"] == "Bearer abc"


def test_a_proxy_of_the_shell_is_not_asked_for_this_machine(cli, answering, monkeypatch):
    url, asked = answering(body=b'{"success": true, "data": []}')
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:1")
    assert cli("ls", "--url", url).exit_code == ExitCode.OK
    assert len(asked) == 1


def test_bugs_of_the_server_are_failures_with_their_reference(cli, answering):
    error = b'{"code": "INTERNAL_ERROR", "message": "See log 12", "details": {}}'
    body = b'{"success": false, "error": %s}' % error
    url, _ = answering(500, body)
    ran = cli("ls", "--url", url)
    assert ran.exit_code == ExitCode.FAILED
    assert "See log 12" in ran.stderr


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["ls", "--limit", "0"], ["ls", "--nonsense"], ["run"]]
)
def test_a_wrong_command_line_is_a_usage_error(cli, arguments):
    assert cli(*arguments).exit_code == ExitCode.USAGE


def test_the_entry_point_hands_over_to_the_command_line(free_port, tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "trainops", "ls", "--url", f"http://127.0.0.1:{free_port}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == ExitCode.FAILED
    assert ran.stderr.startswith("error: No server")


def test_the_command_line_is_light():
    """It knows nothing of the server's inside, and starts fast."""
    program = """
import sys
from trainops.cli import main
try:
    main(["--help"])
except SystemExit:
    pass
heavy = {"django", "apps", "celery", "torch", "numpy", "pandas", "pyarrow"} & set(sys.modules)
sys.exit(f"loaded: {heavy}" if heavy else 0)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
