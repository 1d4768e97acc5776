"""Versions for event streams: each change that a page shows gives another."""

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from apps.operations import versions
from apps.operations.models import Operation
from tests.api.saved import saved
from tests.pages import making

pytestmark = pytest.mark.django_db


@pytest.fixture
def operation():
    return making.operation(User.objects.create_user("ana"), "RUNNING")


CHANGES = {
    "step": lambda it: it.row.update(step=21),
    "state": lambda it: it.row.update(state="RESUMING"),
    "stop request": lambda it: it.row.update(stop_requested="cancel"),
    "point": lambda it: making.curve(it, first=30, last=30),
    "log": lambda it: making.log(it, "a line\n"),
    "event": lambda it: it.record("EDITED", actor="ana"),
    "checkpoint": lambda it: saved(it),
    "acknowledged": lambda it: it.row.update(acknowledged_at=timezone.now()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_gives_another_version(operation, change):
    other = making.operation(User.objects.get(), "RUNNING")
    topics = {versions.topic_of(operation.pk), versions.topic_of(other.pk)}
    before = versions.current(topics)
    assert versions.current(topics) == before
    CHANGES[change](operation)
    after = versions.current(topics)
    changed = {topic for topic in topics if before[topic] != after[topic]}
    assert changed == {versions.topic_of(operation.pk)}


@pytest.mark.parametrize(
    "change",
    [
        lambda it: it.row.update(step=21),
        lambda it: it.row.update(state="COMPLETED"),
        lambda it: it.record("EDITED", actor="ana"),
        lambda it: making.operation(it.owner),
    ],
)
def test_a_change_of_any_operation_gives_lists_another_version(operation, change):
    before = versions.current([versions.OPERATIONS])
    change(operation)
    assert versions.current([versions.OPERATIONS]) != before


def test_operations_that_are_shown_together_have_one_version(operation):
    other, further = (making.operation(operation.owner, "RUNNING") for _ in range(2))
    topic = versions.topic_of_several([operation.pk, other.pk])
    single = versions.topic_of(further.pk)

    def current():
        return versions.current([topic, single])

    for change in CHANGES.values():
        before = current()
        change(other)
        after = current()
        assert after[topic] != before[topic] and after[single] == before[single]
    before = current()
    CHANGES["step"](further)
    assert current()[topic] == before[topic]


def test_a_deleted_operation_has_no_version(operation):
    topic = versions.topic_of(operation.pk)
    assert versions.current([topic])
    Operation.objects.all().delete()
    assert not versions.current([topic])


def test_all_topics_take_one_query_a_kind(operation, django_assert_num_queries):
    owner = User.objects.get()
    topics = [versions.topic_of(making.operation(owner).pk) for _ in range(5)]
    with django_assert_num_queries(3):
        versions.current([*topics, versions.OPERATIONS])
