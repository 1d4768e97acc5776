"""When traces are made, and what is refused."""

import sys

import pytest

from trainops.tracing import HEADER, Tracing

OWN, STANDARD = "TRAINOPS_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def started(environment):
    tracing = Tracing()
    tracing.start(environment)
    return tracing


@pytest.mark.parametrize("environment", [{}, {OWN: " "}, {STANDARD: ""}])
def test_without_an_address_there_are_no_spans(environment):
    tracing = started(environment)
    with tracing.span("name", {}, begins_trace=True, parent=PARENT) as span:
        assert span is None and tracing.current() == "" and not tracing.is_on
    tracing.note({"key": "value"})


@pytest.mark.parametrize(
    "given", ["collector:4318", "grpc://collector", "http://", "http://[", "x"]
)
def test_what_is_no_address_is_refused(given):
    with pytest.raises(ValueError, match=r"TRAINOPS_OTLP_ENDPOINT is .*; allowed: http://"):
        started({OWN: given})


def test_without_the_extra_our_variable_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, EXPORTER, None)
    with pytest.raises(ValueError, match=r"pip install 'trainops\[opentelemetry\]'"):
        started({OWN: "http://collector:4318"})


def test_without_the_extra_the_variable_of_other_programs_is_ignored(monkeypatch):
    monkeypatch.setitem(sys.modules, EXPORTER, None)
    assert not started({STANDARD: "http://collector:4318"}).is_on


@pytest.fixture
def tracing():
    """Spans that are made and sent nowhere: each ends in an address that refuses connections."""
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry import trace as api

    tracing = Tracing()
    tracing._api, tracing._tracer = api, trace.TracerProvider().get_tracer("tests")
    return tracing


def test_only_what_a_request_began_has_spans(tracing):
    with tracing.span("sweep", {}) as span:
        assert span is None and tracing.current() == ""
    with tracing.span("request", {}, begins_trace=True):
        within = tracing.current()
        with tracing.span("send", {}):
            assert tracing.current().split("-")[1] == within.split("-")[1] and within
    with tracing.span("attempt", {}, parent=PARENT):
        assert tracing.current().split("-")[1] == PARENT.split("-")[1]
    assert len(PARENT) == 55 == len(within)


def test_an_error_is_marked_without_its_message(tracing):
    with pytest.raises(ValueError), tracing.span("x", {"http.y": 1, "z": 2}, parent=PARENT) as span:
        raise ValueError("of a patient")
    assert not span.status.is_ok and not span.status.description and not span.events
    assert dict(span.attributes) == {"http.y": 1, "trainops.z": 2}


@pytest.mark.parametrize("given", ["", "x", "00-0-0-00", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_what_is_no_trace_of_a_client_begins_a_new_one(given, tracing):
    with tracing.span("request", {}, parent=given, begins_trace=True):
        assert len(tracing.current()) == 55
    assert HEADER == "traceparent"
