"""The spans of attempts, in the trace of the request that submitted or resumed the operation."""

from collections.abc import Iterator
from contextlib import contextmanager

from apps.operations.models import Operation
from trainops.tracing import TRACING, Phases


def attributes(operation: Operation) -> dict[str, str | int]:
    return {
        "operation": operation.pk,
        "operation_kind": operation.kind,
        "attempt": operation.attempt,
    }


@contextmanager
def attempt(operation: Operation, began_ns: int) -> Iterator[None]:
    """Make a span of an attempt until the end of the block, and one of its claim before it."""
    if not operation.traceparent:
        yield
        return
    named = attributes(operation)
    with TRACING.span("attempt", named, parent=operation.traceparent, began_ns=began_ns):
        TRACING.past("claim", named, began_ns=began_ns)
        yield


def claimed(operation: Operation, began_ns: int) -> None:
    """Make a span of the claim of a worker over HTTP, which runs the attempt elsewhere."""
    if operation.traceparent:
        TRACING.past(
            "claim", attributes(operation), began_ns=began_ns, parent=operation.traceparent
        )


def phases(operation: Operation) -> Phases:
    """Return the spans of what leads to the first step, from now on."""
    return Phases(attributes(operation))
