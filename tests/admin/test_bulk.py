"""Actions on several rows: a first POST asks and names who is skipped, a second one does."""

import re

import pytest
from django.test import Client

from apps.checkpoints.models import Checkpoint
from apps.operations.lifecycle import State
from apps.operations.models import Operation
from apps.workers import registry
from apps.workers.models import Worker
from tests.api.saved import damage, saved
from tests.operations.rows import in_state, submitted

OPERATIONS = "/admin/operations/operation/"
CHECKPOINTS = "/admin/checkpoints/checkpoint/"
WORKERS = "/admin/workers/worker/"


def post(client, path, action, *rows, confirmed=True):
    data = {"action": action, "_selected_action": [row.pk for row in rows]}
    return client.post(path, data | ({"confirmed": "yes"} if confirmed else {}))


def messages_after(client, response):
    assert response.status_code == 302
    page = client.get(response["Location"])
    return " ".join(str(message) for message in page.context["messages"])


@pytest.fixture
def two(operator, colleague):
    """One's own cancelled operation, and a colleague's, each with a checkpoint."""
    made = [in_state(State.CANCELLED, person.user) for person in (operator, colleague)]
    for each in made:
        saved(each)
    return made


def states():
    return set(Operation.objects.values_list("state", flat=True))


def test_the_first_post_asks_and_does_nothing(operator, two):
    page = post(operator, OPERATIONS, "resume", *two, confirmed=False)
    text = page.content.decode()
    assert "Resume 1 operation?" in text
    assert "it belongs to carla" in text
    assert "continue from the latest checkpoints" in text
    for label in (r"Resume\s*</button>", r"Cancel\s*</a>"):
        assert re.search(rf">\s*{label}", text)
    assert text.count('name="_selected_action"') == 1 and f'value="{two[0].pk}"' in text
    assert states() == {State.CANCELLED}


def test_the_second_does_it_and_names_who_was_skipped(operator, two):
    messages = messages_after(operator, post(operator, OPERATIONS, "resume", *two))
    assert "Resume: 1 of 2 done." in messages and "it belongs to carla" in messages
    assert [Operation.objects.get(pk=each.pk).state for each in two] == ["RESUMING", "CANCELLED"]


def test_an_admin_does_it_to_all(admin, two):
    assert "Resume: 2 of 2 done." in messages_after(admin, post(admin, OPERATIONS, "resume", *two))
    assert states() == {State.RESUMING}


@pytest.mark.parametrize(
    ("action", "start", "end"),
    [
        ("cancel", State.PENDING, ("CANCELLED", "")),
        ("kill", State.RUNNING, ("RUNNING", "kill")),
        ("delete", State.CANCELLED, None),
    ],
)
def test_what_each_does(operator, django_capture_on_commit_callbacks, action, start, end):
    operation = in_state(start, operator.user)
    with django_capture_on_commit_callbacks(execute=True):
        post(operator, OPERATIONS, action, operation)
    left = Operation.objects.filter(pk=operation.pk).values_list("state", "stop_requested")
    assert list(left) == ([end] if end else [])


def test_what_changed_since_it_was_asked_is_skipped(operator, two):
    post(operator, OPERATIONS, "resume", two[0])
    messages = messages_after(operator, post(operator, OPERATIONS, "resume", two[0]))
    assert "Resume: 0 of 1 done." in messages and "it is resuming" in messages


def test_where_nothing_is_possible_there_is_no_button(operator):
    waiting = submitted(operator.user)
    text = post(operator, OPERATIONS, "kill", waiting, confirmed=False).content.decode()
    assert "Not possible for any of the selected operations." in text
    assert 'type="submit"' not in text.partition('data-testid="skipped"')[2].partition("</form>")[0]


def test_a_viewer_is_offered_nothing(viewer, operator):
    operation = submitted(operator.user)
    assert b'name="action"' not in viewer.get(OPERATIONS).content
    post(viewer, OPERATIONS, "cancel", operation)
    assert states() == {State.PENDING}


def test_without_a_csrf_token_nothing_is_done(operator):
    operation = submitted(operator.user)
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(operator.user)
    assert post(strict, OPERATIONS, "cancel", operation).status_code == 403
    assert states() == {State.PENDING}


def test_checkpoints_are_pinned_unpinned_and_deleted(operator, two):
    mine, others = Checkpoint.objects.order_by("operation__created_at")
    messages = messages_after(operator, post(operator, CHECKPOINTS, "pin", mine, others))
    assert "Pin: 1 of 2 done." in messages and "it belongs to carla" in messages
    assert set(Checkpoint.objects.filter(pinned=True)) == {mine}
    assert "it is pinned" in messages_after(operator, post(operator, CHECKPOINTS, "pin", mine))
    post(operator, CHECKPOINTS, "unpin", mine)
    assert not Checkpoint.objects.filter(pinned=True).exists()
    post(operator, CHECKPOINTS, "delete", mine, others)
    assert set(Checkpoint.objects.all()) == {others}


def test_a_damaged_checkpoint_is_reported(operator, two):
    first = Checkpoint.objects.earliest("operation__created_at")
    damage(first)
    messages = messages_after(operator, post(operator, CHECKPOINTS, "verify", first))
    assert "Verify: 0 of 1 done." in messages
    first.refresh_from_db()
    assert first.health == Checkpoint.Health.CORRUPTED
    assert first.problem in messages


def test_workers_are_drained_by_an_admin_only(admin, operator):
    for name in ("w-1", "w-2"):
        registry.register(worker_id=name)
    registry.drain(worker_id="w-1", reason="by ada")
    workers = list(Worker.objects.order_by("pk"))
    post(operator, WORKERS, "drain", *workers)
    assert not Worker.objects.get(pk="w-2").is_draining
    messages = messages_after(admin, post(admin, WORKERS, "drain", *workers))
    assert "Drain: 1 of 2 done." in messages and "it is draining" in messages
    post(admin, WORKERS, "undrain", *workers)
    assert not Worker.objects.filter(is_draining=True).exists()
