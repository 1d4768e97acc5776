"""Several people at once: exactly one wins, and the others get a refusal."""

import threading

import pytest
from django.db import connection
from django.test import Client

from apps.operations.lifecycle import State
from apps.operations.models import Event, Operation
from tests.api.saved import saved
from tests.operations.rows import CONFIG, in_state

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


def at_once(user, num, ask):
    """Call `ask` with `num` clients in threads that start together; return the answers."""
    gate, answers = threading.Barrier(num), []

    def run():
        client = Client()
        client.force_login(user)
        gate.wait()
        try:
            answers.append(ask(client))
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(num)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return answers


def post(client, path):
    return client.post(path, "", content_type="application/json")


def test_of_three_resumes_exactly_one_wins(operator):
    operation = in_state(State.CANCELLED, operator.user)
    saved(operation)
    path = f"/api/v1/operations/{operation.pk}/resume"
    answers = at_once(operator.user, 3, lambda client: post(client, path))
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409]
    codes = {a.json()["error"]["code"] for a in answers if a.status_code == 409}
    assert codes == {"OPERATION_NOT_RESUMABLE"}
    assert Event.objects.filter(what="RESUMING").count() == 1


def test_of_three_cancels_exactly_one_is_written_down(operator):
    operation = in_state(State.RUNNING, operator.user)
    path = f"/api/v1/operations/{operation.pk}/cancel"
    answers = at_once(operator.user, 3, lambda client: post(client, path))
    assert sorted(answer.status_code for answer in answers) == [202, 409, 409]
    assert Event.objects.filter(what="CANCEL_REQUESTED").count() == 1


def test_the_same_key_three_times_at_once_makes_one_operation(operator):
    body = {"kind": "training", "config": CONFIG}

    def submit(client):
        return client.post(
            "/api/v1/operations",
            body,
            content_type="application/json",
            headers={"Idempotency-Key": "once"},
        )

    answers = at_once(operator.user, 3, submit)
    assert [answer.status_code for answer in answers] == [202, 202, 202]
    assert len({answer.json()["data"]["id"] for answer in answers}) == 1
    assert Operation.objects.count() == 1


def test_a_resume_and_a_delete_of_its_checkpoints_never_both_win(operator):
    operation = in_state(State.CANCELLED, operator.user)
    saved(operation)
    asks = iter(["resume", "delete"])
    lock = threading.Lock()

    def ask(client):
        with lock:
            what = next(asks)
        if what == "resume":
            return post(client, f"/api/v1/operations/{operation.pk}/resume")
        return client.delete(f"/api/v1/checkpoints/{operation.pk}")

    at_once(operator.user, 2, ask)
    operation.refresh_from_db()
    has_checkpoint = operation.checkpoints.exists()
    assert (operation.state, has_checkpoint) in [("RESUMING", True), ("CANCELLED", False)]
