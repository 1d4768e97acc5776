"""A message goes where somebody can use it."""

import pytest

from apps.operations.lifecycle import State
from apps.operations.requests import services
from apps.operations.scheduling import dispatch
from tests.api.saved import saved
from tests.operations import rows
from tests.waiting import wait_until


class Post:
    """What Celery's application would send."""

    def __init__(self):
        self.sent = []

    def send_task(self, name, args, queue, ignore_result, headers):
        assert headers is None  # without tracing
        self.sent.append((name, args, queue))


@pytest.fixture
def post(monkeypatch, settings):
    settings.DISPATCH_IS_ON = True
    post = Post()
    monkeypatch.setattr(dispatch, "app", post)
    return post


@pytest.mark.django_db(transaction=True)
def test_a_submission_and_a_resume_wake_who_serves_the_kind_and_the_label(
    post, person, settings, tmp_path
):
    settings.CHECKPOINT_ROOT = tmp_path
    plain, labelled = rows.submitted(), rows.submitted(queue="a100")
    labelled.row.update(state=State.FAILED)
    saved(labelled)
    services.resume(operation_id=labelled.pk, actor=person)
    wait_until(lambda: len(post.sent) == 3)
    to_labelled = ("trainops.wake", [labelled.pk], "trainops.training.a100")
    assert post.sent == [
        ("trainops.wake", [plain.pk], "trainops.training"),
        to_labelled,
        to_labelled,
    ]
