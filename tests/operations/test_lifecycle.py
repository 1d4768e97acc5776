import pytest

from apps.operations.lifecycle import MOVES, State
from apps.operations.models import Event
from tests.operations import rows
from trainops.clock import seconds_from_now

pytestmark = [pytest.mark.django_db, pytest.mark.database]


@pytest.mark.parametrize("source", State)
@pytest.mark.parametrize("target", State)
def test_the_table_of_moves_is_what_the_database_does(source, target):
    operation = rows.in_state(source)
    fields = {"lease_expires_at": seconds_from_now(60)} if target is State.RUNNING else {}

    moved = operation.row.move(target, actor="test", **fields)

    assert moved == (target in MOVES[source])
    operation.refresh_from_db()
    assert operation.state == (target if moved else source)


def test_every_move_leaves_an_event_that_says_by_whom_and_why():
    operation = rows.submitted()
    operation.row.move(State.CANCELLED, actor="ana", note="she changed her mind")

    event = Event.objects.filter(operation=operation).first()
    assert (event.what, event.actor, event.note, event.from_state) == (
        State.CANCELLED,
        "ana",
        "she changed her mind",
        State.PENDING,
    )


def test_a_refused_move_leaves_no_event():
    operation = rows.in_state(State.COMPLETED)
    before = Event.objects.count()
    assert not operation.row.move(State.FAILED, actor="a late worker")
    assert Event.objects.count() == before
