"""Reports of errors, as a Sentry server receives them from a process of its own."""

import gzip
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from trainops import error_reports

pytestmark = pytest.mark.slow

PROCESS = """
import io, logging, os
from wsgiref.util import setup_testing_defaults
os.environ["DJANGO_SETTINGS_MODULE"] = "trainops.settings"
import django
django.setup()
import sentry_sdk
from django.core.wsgi import get_wsgi_application
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from trainops import log_format, urls

@csrf_exempt
def broken(request):
    patient = request.POST["diagnosis"] + "Miller"
    raise RuntimeError("it broke")

urls.urlpatterns.insert(0, path("broken", broken))
with log_format.about(operation="op_1", attempt=2):
    try:
        secret = "Smith"
        raise ValueError("a report could not be written")
    except ValueError:
        logging.getLogger("apps.operations").exception("not written")
body = b"diagnosis=Brown"
request = {
    "REQUEST_METHOD": "POST", "PATH_INFO": "/broken", "QUERY_STRING": "name=Jones",
    "HTTP_COOKIE": "sessionid=Green", "REMOTE_ADDR": "10.9.8.7", "wsgi.input": io.BytesIO(body),
    "CONTENT_TYPE": "application/x-www-form-urlencoded", "CONTENT_LENGTH": str(len(body)),
}
setup_testing_defaults(request)
answers = []
b"".join(get_wsgi_application()(request, lambda status, headers: answers.append(status)))
assert answers == ["500 Internal Server Error"], answers
sentry_sdk.flush(30)
"""


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        self.server.received.append(content.decode())
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        server.received = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def events(received):
    """The events of envelopes: lines of JSON, a header and then the content of each item."""
    lines = [json.loads(line) for envelope in received for line in envelope.splitlines() if line]
    return [line for line in lines if "exception" in line]


def test_errors_are_reported_without_what_is_about_people(server, tmp_path):
    address = f"http://key@127.0.0.1:{server.server_port}/1"
    environment = os.environ | {"TRAINOPS_DATA_DIR": str(tmp_path), "TRAINOPS_SENTRY_DSN": address}
    subprocess.run([sys.executable, "-c", PROCESS], env=environment, check=True)
    logged, requested = events(server.received)
    assert logged["exception"]["values"][0]["value"] == "a report could not be written"
    assert (logged["tags"]["operation"], logged["tags"]["attempt"]) == ("op_1", 2)
    assert requested["exception"]["values"][-1]["type"] == "RuntimeError"
    assert requested["request"] == {"url": "http://127.0.0.1/broken", "method": "POST"}
    assert requested["tags"]["request_id"]
    frames = requested["exception"]["values"][-1]["stacktrace"]["frames"]
    assert frames[-1]["function"] == "broken" and not any("vars" in each for each in frames)
    for value in ("Miller", "Smith", "Jones", "Brown", "Green", "10.9.8.7"):
        assert not any(value in each for each in server.received), value


def test_nothing_is_reported_without_an_address():
    error_reports.start({})


@pytest.mark.parametrize("given", ["sentry.example", "https://sentry.example/1", "x"])
def test_what_is_no_address_is_refused(given):
    with pytest.raises(ValueError, match=r"TRAINOPS_SENTRY_DSN: .*; allowed: an address such as"):
        error_reports.start({"TRAINOPS_SENTRY_DSN": given})


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentry_sdk", None)
    with pytest.raises(ValueError, match=r"pip install 'trainops\[sentry\]'"):
        error_reports.start({"TRAINOPS_SENTRY_DSN": "https://key@sentry.example/1"})
