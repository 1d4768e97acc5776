"""Traces of operations by OpenTelemetry, by the extra `opentelemetry`; off without an address.

One trace leads from the request that submits or resumes an operation, over the message of the
broker and the claims, to the first step of each attempt. Requests that change nothing about
operations have no spans, and so has what no such request began. The child has no spans of its
own: its supervisor knows the times. Spans have ids, kinds and durations, but nothing of a config,
of a body of a request or of people.
"""

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from trainops import log_format, version

logger = logging.getLogger(__name__)
VARIABLE = "TRAINOPS_OTLP_ENDPOINT"
STANDARD = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
INSTALL = "pip install 'trainops[opentelemetry]'"
HEADER = "traceparent"  # of W3C Trace Context
PATH = "/v1/traces"
Attributes: TypeAlias = Mapping[str, str | int]


class Tracing:
    """Makes spans, once it was started; until then every call does nothing."""

    def __init__(self) -> None:
        self._tracer: Any = None
        self._api: Any = None

    @property
    def is_on(self) -> bool:
        return self._tracer is not None

    def start(self, environment: Mapping[str, str] = os.environ) -> None:
        """Begin to send spans, if an address is set. Raises ValueError."""
        own = environment.get(VARIABLE, "").strip()
        if not own and not any(environment.get(name, "").strip() for name in STANDARD):
            return
        if own and not _is_address(own):
            raise ValueError(f"{VARIABLE} is {own!r}; allowed: http:// or https:// with a host")
        try:
            from opentelemetry import trace  # noqa: PLC0415 - an extra
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
                OTLPSpanExporter,
            )
            from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
            from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
            from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        except ImportError:
            if own:
                raise ValueError(
                    f"{VARIABLE} is set, which needs the extra opentelemetry: {INSTALL}"
                ) from None
            return  # the standard variables may be meant for other programs
        service = {"service.name": "trainops", "host.name": log_format.HOST}
        named = {} if environment.get("OTEL_SERVICE_NAME") else service
        provider = TracerProvider(
            resource=Resource.create({**named, "service.version": version.VERSION})
        )
        exporter = OTLPSpanExporter(endpoint=own.rstrip("/") + PATH if own else None)
        provider.add_span_processor(BatchSpanProcessor(exporter))
        self._api, self._tracer = trace, provider.get_tracer("trainops", version.VERSION)

    @contextmanager
    def span(
        self,
        name: str,
        attributes: Attributes,
        *,
        kind: str = "internal",
        parent: str = "",
        begins_trace: bool = False,
        began_ns: int | None = None,
    ) -> Iterator[Any]:
        """Yield a span around the block, or None where there is none.

        `parent` is a traceparent; without it, the span belongs to that around this call. Where
        neither is there, only a span that `begins_trace` is made. `began_ns`: Unix time, if it
        began before this call.
        """
        if not self._is_wanted(parent, begins_trace=begins_trace):
            yield None
            return
        with self._tracer.start_as_current_span(
            name,
            context=self._context(parent),
            kind=self._api.SpanKind[kind.upper()],
            attributes=_named(attributes),
            start_time=began_ns,
            record_exception=False,  # messages of errors may be about people
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException:
                self.failed(span)
                raise

    def past(self, name: str, attributes: Attributes, *, began_ns: int, parent: str = "") -> None:
        """Make a span of what ends now."""
        with self.span(name, attributes, parent=parent, began_ns=began_ns):
            pass

    def failed(self, span: Any) -> None:
        span.set_status(self._api.StatusCode.ERROR)

    def note(self, attributes: Attributes) -> None:
        """Add attributes to the span around this call, if there is one."""
        if self.is_on:
            self._api.get_current_span().set_attributes(_named(attributes))

    def current(self) -> str:
        """Return the traceparent of the span around this call; empty if there is none."""
        if not self.is_on:
            return ""
        carrier: dict[str, str] = {}
        _propagator().inject(carrier)
        return carrier.get(HEADER, "")

    def _is_wanted(self, parent: str, *, begins_trace: bool) -> bool:
        return self.is_on and (begins_trace or bool(parent) or bool(self.current()))

    def _context(self, parent: str) -> Any:
        return _propagator().extract({HEADER: parent}) if parent else None


class Phases:
    """Spans of what follows one another, each from the end of the one before."""

    def __init__(self, attributes: Attributes) -> None:
        self._attributes = attributes
        self._began_ns = time.time_ns()

    def ended(self, name: str) -> None:
        TRACING.past(name, self._attributes, began_ns=self._began_ns)
        self._began_ns = time.time_ns()


def _propagator() -> Any:
    from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 - an extra
        TraceContextTextMapPropagator,
    )

    return TraceContextTextMapPropagator()


def _named(attributes: Attributes) -> dict[str, str | int]:
    """Return attributes under their names: ours begin with `trainops.`, others are given so."""
    return {
        name if "." in name else f"trainops.{name}": value for name, value in attributes.items()
    }


def _is_address(given: str) -> bool:
    try:
        address = urlsplit(given)
    except ValueError:
        return False
    return address.scheme in ("http", "https") and bool(address.hostname)


TRACING = Tracing()
