"""Streamed responses of Django's test client, without a generator that closes itself.

The client wraps their content into a generator that closes the response at its end, and the
response closes its content: that generator, which is executing. CPython 3.11 should refuse that,
but looks for what the generator waits for in memory that is something else, and may crash.
"""

from collections.abc import Callable, Iterable
from contextlib import ExitStack

from django.core.signals import request_finished
from django.db import close_old_connections
from django.test import client


class ClosingIterator:
    """As `closing_iterator_wrapper`; who leaves a response before its end closes it."""

    def __init__(self, iterable: Iterable[bytes], close: Callable[[], None]) -> None:
        self._iterator = iter(iterable)
        self._end = ExitStack()  # in reverse, and once
        self._end.callback(request_finished.connect, close_old_connections)
        self._end.callback(close)  # sends request_finished
        self._end.callback(request_finished.disconnect, close_old_connections)

    def __iter__(self) -> "ClosingIterator":
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._iterator)
        except BaseException:
            self._end.close()
            raise


def install() -> None:
    client.closing_iterator_wrapper = ClosingIterator  # type: ignore[misc, assignment]
