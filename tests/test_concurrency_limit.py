"""A few at once, one for each person; only uploads wait."""

import threading
import time

import pytest

from trainops.concurrency_limit import ConcurrencyLimit, ServerBusy


def test_a_person_has_one_and_the_last_one_has_none():
    limit = ConcurrencyLimit(2)
    with limit.taken("ana"):
        with pytest.raises(ServerBusy), limit.taken("ana"):
            pass
        with (
            limit.taken("ben"),
            pytest.raises(ServerBusy) as refused,
            limit.taken("eva"),
        ):
            pass
        with limit.taken("eva"):
            pass
    with limit.taken("ana"):
        pass
    assert (refused.value.status, refused.value.retry_after_seconds) == (503, 10)


def test_the_server_itself_may_have_all():
    limit = ConcurrencyLimit(2)
    with (
        limit.taken(""),
        limit.taken(""),
        pytest.raises(ServerBusy),
        limit.taken(""),
    ):
        pass


def test_a_waiting_thread_is_next_after_another_ends():
    limit, has_it = ConcurrencyLimit(1), threading.Event()

    def wait():
        with limit.taken("ben", wait_seconds=60):
            has_it.set()

    with limit.taken("ana"):
        waiting = threading.Thread(target=wait)
        waiting.start()
        time.sleep(0.05)
        assert not has_it.is_set()
    waiting.join(60)
    assert has_it.is_set()
