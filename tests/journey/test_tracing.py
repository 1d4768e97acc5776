"""One trace from a request to the first step, as a receiver of OTLP gets it over HTTP."""

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.journey.stack import running
from tests.waiting import wait_until

pytestmark = [pytest.mark.journey, pytest.mark.slow]
TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SECRET = "of a patient"


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        assert self.path == "/v1/traces"
        self.server.received.append(content)
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.end_headers()
        self.wfile.write(ExportTraceServiceResponse().SerializeToString())

    def log_message(self, *arguments):
        pass


@pytest.fixture
def receiver():
    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        server.received = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def spans(receiver):
    return [
        span
        for content in list(receiver.received)
        for resource in ExportTraceServiceRequest.FromString(content).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def attributes(span):
    named = {each.key: each.value for each in span.attributes}
    return {key: value.string_value or value.int_value for key, value in named.items()}


@pytest.mark.exhaustive
def test_one_trace_leads_from_the_request_to_the_first_step(receiver, tmp_path):
    own = {
        "TRAINOPS_OTLP_ENDPOINT": f"http://127.0.0.1:{receiver.server_port}/",
        "OTEL_BSP_SCHEDULE_DELAY": "200",
    }
    with running(tmp_path / "data", **own) as stack:
        answer = stack.client.post(
            "operations",
            json={"kind": "training", "config": {"recipe": "scripted"}, "name": SECRET},
            headers={"traceparent": f"00-{TRACE}-{CALLER}-01"},
        )
        operation = answer.json()["data"]["id"]
        stack.wait(operation, "COMPLETED")
        wait_until(lambda: "attempt" in {each.name for each in spans(receiver)})
        stack.get("operations")
        stack.client.post("workers/register", json={})
    found = {each.name: each for each in spans(receiver)}
    assert len(found) == len(spans(receiver)), "a span was sent twice"
    request = found.pop("POST /api/v1/operations")
    assert request.parent_span_id.hex() == CALLER
    assert attributes(request)["http.response.status_code"] == 202
    of_trace = {name: each for name, each in found.items() if each.trace_id.hex() == TRACE}
    assert of_trace.keys() == {
        "send trainops.wake", "process trainops.wake", "attempt", "claim", "prepare", "restore",
        "first step",
    }  # fmt: skip
    assert found.keys() == of_trace.keys()  # nothing of reads and of workers over HTTP
    sent, attempt = found["send trainops.wake"], found["attempt"]
    parents = {name: each.parent_span_id for name, each in found.items()}
    assert parents == {
        "send trainops.wake": request.span_id,
        "process trainops.wake": sent.span_id,
        "attempt": request.span_id,
        **dict.fromkeys(["claim", "prepare", "restore", "first step"], attempt.span_id),
    }
    for name, each in found.items():
        assert attributes(each)["trainops.operation"] == operation, name
        assert each.start_time_unix_nano <= each.end_time_unix_nano
    for name in ("attempt", "claim", "prepare", "restore", "first step"):
        named = attributes(found[name])
        assert (named["trainops.operation_kind"], named["trainops.attempt"]) == ("training", 1)
    assert attributes(attempt)["trainops.outcome"] == "Completed"
    in_order = [found[name] for name in ("claim", "prepare", "restore", "first step")]
    ends = [each.end_time_unix_nano for each in in_order]
    assert ends == sorted(ends) and ends[-1] <= attempt.end_time_unix_nano
    assert not any(SECRET.encode() in content for content in receiver.received)
