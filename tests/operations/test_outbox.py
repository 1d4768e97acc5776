"""Subscribers get every event at least once, and those of one operation in order."""

import threading
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone

from apps.operations import outbox
from apps.operations.models import Event, Subscription
from apps.operations.outbox import Subscriber
from tests.operations import rows

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


class Listener:
    """A subscriber that records its events, and fails for the events that the test names."""

    def __init__(self, name="listener"):
        self.name, self.got, self.fails_at = name, [], set()

    def handle(self, event):
        if event.note in self.fails_at:
            raise ZeroDivisionError(event.note)
        self.got.append(event.note)


@pytest.fixture
def listeners(monkeypatch):
    """Subscribe these listeners alone."""

    def subscribe(*some, whats=frozenset()):
        chosen = {each.name: Subscriber(each.name, each.handle, whats) for each in some}
        monkeypatch.setattr(outbox, "_subscribers", chosen)
        for each in some:
            newest = Event.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
            Subscription.objects.create(pk=each.name, cursor=newest)

    return subscribe


def say(operation, *notes, what="X"):
    for note in notes:
        operation.record(what, actor="test", note=note)


def make_due(name="listener"):
    """Let the pauses of all retries be over."""
    row = Subscription.objects.get(pk=name)
    for retry in row.retries.values():
        retry["not_before"] = (timezone.now() - timedelta(seconds=1)).isoformat()
    row.save()


def test_each_event_is_delivered_once_and_in_order(listeners, monkeypatch):
    monkeypatch.setattr(outbox, "BATCH", 2)
    listener, operation = Listener(), rows.submitted()
    listeners(listener)
    say(operation, *"abcde")
    outbox.deliver()
    say(operation, "f")
    outbox.deliver()
    assert listener.got == [*"abcdef"]


def test_only_events_of_interest_are_delivered(listeners):
    listener, operation = Listener(), rows.submitted()
    listeners(listener, whats=frozenset({"Y"}))
    say(operation, "a")
    say(operation, "b", what="Y")
    outbox.deliver()
    assert listener.got == ["b"]


def test_a_subscriber_that_fails_holds_up_neither_others_nor_other_operations(listeners):
    listener, other = Listener(), Listener("other")
    one, two = rows.submitted(), rows.submitted()
    listeners(listener, other)
    listener.fails_at = {"a"}
    say(one, "a", "b")
    say(two, "c")
    outbox.deliver()
    assert (listener.got, other.got) == (["c"], ["a", "b", "c"])
    outbox.deliver()
    assert listener.got == ["c"], "not before its pause is over"
    listener.fails_at = set()
    make_due()
    say(one, "d")
    outbox.deliver()
    assert listener.got == ["c", "a", "b", "d"]


def test_an_event_that_always_fails_is_given_up(listeners, monkeypatch, caplog):
    monkeypatch.setattr(outbox, "MAX_FAILURES", 3)
    listener, operation = Listener(), rows.submitted()
    listeners(listener)
    listener.fails_at = {"a"}
    say(operation, "a", "b")
    for _ in range(4):
        outbox.deliver()
        make_due()
    assert listener.got == ["b"]
    assert "is given up" in caplog.text
    assert Subscription.objects.get(pk="listener").retries == {}


def test_what_a_subscriber_wrote_before_it_failed_is_rolled_back(listeners):
    operation = rows.submitted()
    listener = Listener()

    def handle(event):
        if event.note == "a":
            operation.record("WRITTEN", actor="test", note="half")
            raise ZeroDivisionError

    listener.handle = handle
    listeners(listener)
    say(operation, "a")
    outbox.deliver()
    assert not operation.events.filter(what="WRITTEN").exists()


def test_a_new_subscriber_starts_a_day_back(listeners, monkeypatch):
    operation, listener = rows.submitted(), Listener()
    say(operation, "old", "new")
    old = Event.objects.filter(note="old")
    Event.objects.filter(pk__lte=old.get().pk).update(at=timezone.now() - timedelta(days=2))
    monkeypatch.setattr(
        outbox, "_subscribers", {"listener": Subscriber("listener", listener.handle)}
    )
    outbox.create_cursors()
    outbox.deliver()
    assert listener.got == ["new"]


def test_an_event_that_becomes_visible_late_is_delivered(listeners):
    """Its id was given out before that of an event which was committed first."""
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has one writer at a time: ids are in the order of commits")
    first, second, listener = rows.submitted(), rows.submitted(), Listener()
    listeners(listener)
    has_written, may_commit = threading.Event(), threading.Event()

    def write_late():
        with transaction.atomic():
            say(first, "late")
            has_written.set()
            assert may_commit.wait(30)
        connection.close()

    thread = threading.Thread(target=write_late)
    thread.start()
    assert has_written.wait(30)
    say(second, "early")
    outbox.deliver()
    assert listener.got == ["early"]
    may_commit.set()
    thread.join()
    outbox.deliver()
    assert listener.got == ["early", "late"]
    assert Subscription.objects.get(pk="listener").gaps == {}


def test_an_id_that_was_rolled_back_is_forgotten_after_a_while(listeners, monkeypatch):
    if connection.vendor != "postgresql":
        pytest.skip("SQLite gives an id that was rolled back out again")
    operation, listener = rows.submitted(), Listener()
    listeners(listener)
    with transaction.atomic():
        say(operation, "never")
        transaction.set_rollback(True)
    say(operation, "a")
    outbox.deliver()
    assert len(Subscription.objects.get(pk="listener").gaps) == 1
    monkeypatch.setattr(outbox, "GAP_SECONDS", 0.0)
    say(operation, "b")
    outbox.deliver()
    assert (listener.got, Subscription.objects.get(pk="listener").gaps) == (["a", "b"], {})


def test_a_subscriber_that_takes_long_holds_up_no_other(listeners):
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has one writer at a time")
    slow, other, operation = Listener("slow"), Listener("other"), rows.submitted()
    has_begun, may_end = threading.Event(), threading.Event()
    note = slow.handle

    def handle(event):
        has_begun.set()
        assert may_end.wait(30)
        note(event)

    slow.handle = handle
    listeners(slow, other)
    say(operation, "a")

    def deliver():
        outbox.deliver()
        connection.close()

    thread = threading.Thread(target=deliver)
    thread.start()
    assert has_begun.wait(30)
    say(operation, "b")
    outbox.deliver()
    assert (slow.got, other.got) == ([], ["a", "b"])
    may_end.set()
    thread.join()
    assert slow.got == ["a", "b"]


def test_many_that_deliver_at_once_deliver_each_event_once(listeners):
    listener, operation = Listener(), rows.submitted()
    listeners(listener)
    say(operation, *map(str, range(50)))

    def deliver():
        try:
            outbox.deliver()
        finally:
            connection.close()

    threads = [threading.Thread(target=deliver) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert listener.got == [str(number) for number in range(50)]
