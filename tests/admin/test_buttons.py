"""Buttons of the admin: a GET only asks, a POST does, and only for whom the rule allows it."""

import re

import pytest
from django.contrib.admin.utils import quote
from django.db.models import RestrictedError
from django.test import Client

from apps.checkpoints.models import Checkpoint
from apps.operations.errors import NotAllowed
from apps.operations.lifecycle import ACTIVE, State
from apps.operations.models import Operation
from apps.operations.requests import deletion, submission
from apps.workers import registry
from apps.workers.models import Worker
from tests.api.saved import CHANGED, CHANGED_FILE, damage, saved
from tests.operations.rows import in_state, submitted, subtask_of
from tests.thinning import quick_some
from trainops.clock import seconds_from_now
from trainops.http.models import Token

SUBMITTED = {"_form_submitted": "on"}


def operation_at(operation, button):
    return f"/admin/operations/operation/{quote(operation.pk)}/{button}/"


def checkpoint_at(checkpoint, button):
    return f"/admin/checkpoints/checkpoint/{quote(checkpoint.pk)}/{button}/"


def messages_of(client, response):
    page = client.get(response["Location"] if "Location" in response else response["HX-Redirect"])
    return " ".join(str(message) for message in page.context["messages"])


STARTS = {
    "cancel": State.PENDING,
    "kill": State.RUNNING,
    "resume": State.CANCELLED,
    "remove": State.CANCELLED,
}


@pytest.fixture(params=quick_some(STARTS, every=3))
def button(request):
    return request.param


@pytest.fixture
def operation(operator, button):
    operation = in_state(STARTS[button], operator.user)
    saved(operation)
    return operation


def changed(operation):
    now = Operation.objects.filter(pk=operation.pk).first()
    return now is None or (now.state, now.stop_requested) != (operation.state, "")


def test_a_get_asks_and_does_nothing(operator, operation, button):
    page = operator.get(operation_at(operation, button))
    assert page.status_code == 200
    assert b'method="post"' in page.content
    assert b"operation?" in page.content
    assert not changed(operation)


def test_a_post_that_no_dialog_sent_does_nothing(operator, operation, button):
    assert operator.post(operation_at(operation, button), {"x": "1"}).status_code == 200
    assert not changed(operation)


def test_a_post_does_it(operator, operation, button):
    response = operator.post(operation_at(operation, button), SUBMITTED)
    assert response.status_code == 302
    assert changed(operation)
    assert messages_of(operator, response)


def test_a_resume_under_changed_code_names_the_files_and_asks(operator):
    operation = in_state(State.CANCELLED, operator.user)
    saved(operation, environment=CHANGED)
    asked = operator.get(operation_at(operation, "resume")).content.decode()
    assert 'name="accept_inexact"' in asked and CHANGED_FILE in asked
    assert operator.post(operation_at(operation, "resume"), SUBMITTED).status_code == 200
    assert not changed(operation)
    operator.post(operation_at(operation, "resume"), {**SUBMITTED, "accept_inexact": "on"})
    assert Operation.objects.get().accepts_inexact


def test_a_resume_that_must_be_exact_may_be_accepted_as_it_is(operator):
    operation = in_state(State.CANCELLED, operator.user)
    saved(operation)
    assert b"accept_inexact" not in operator.get(operation_at(operation, "resume")).content
    Operation.objects.update(config=operation.config | {"exact": "required"})
    assert b"accept_inexact" in operator.get(operation_at(operation, "resume")).content
    operator.post(operation_at(operation, "resume"), SUBMITTED)
    assert changed(operation) and not Operation.objects.get().accepts_inexact


@pytest.mark.slow
def test_strangers_neither_see_the_button_nor_may_post(viewer, colleague, operation, button):
    for stranger in (viewer, colleague):
        page = stranger.get(f"/admin/operations/operation/{quote(operation.pk)}/change/")
        assert page.status_code == 200
        assert operation_at(operation, button).encode() not in page.content
        assert stranger.get(operation_at(operation, button)).status_code == 403
        assert stranger.post(operation_at(operation, button), SUBMITTED).status_code == 403
    assert not changed(operation)


@pytest.mark.slow
def test_the_owner_and_an_admin_see_the_button(operator, admin, operation, button):
    for entitled in (operator, admin):
        page = entitled.get(f"/admin/operations/operation/{quote(operation.pk)}/change/")
        assert operation_at(operation, button).encode() in page.content


def test_without_a_csrf_token_nothing_is_done(operator, operation, button):
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(operator.user)
    assert strict.post(operation_at(operation, button), SUBMITTED).status_code == 403
    assert not changed(operation)


def test_an_anonymous_visitor_is_sent_to_the_login(client, operation, button):
    response = client.post(operation_at(operation, button), SUBMITTED)
    assert (response.status_code, "login" in response["Location"]) == (302, True)
    assert not changed(operation)


def test_a_button_that_the_state_does_not_allow_is_not_there(operator):
    operation = submitted(operator.user)
    page = operator.get(f"/admin/operations/operation/{quote(operation.pk)}/change/")
    assert operation_at(operation, "cancel").encode() in page.content
    assert operation_at(operation, "resume").encode() not in page.content
    assert operator.post(operation_at(operation, "resume"), SUBMITTED).status_code == 403


@pytest.fixture
def server(operator):
    """A distributed one that was cancelled; it and both of its clients had saved something."""
    server = in_state(State.CANCELLED, operator.user)
    for each in (server, *(subtask_of(server, State.CANCELLED, client) for client in (0, 1))):
        saved(each)
    return server


def test_a_server_goes_with_its_clients_and_both_are_named(
    operator, server, tmp_path, django_capture_on_commit_callbacks
):
    asked = operator.get(operation_at(server, "remove")).content
    assert b"including its subtasks" in asked
    with django_capture_on_commit_callbacks(execute=True):
        response = operator.post(operation_at(server, "remove"), SUBMITTED)
    assert "with 3 checkpoints and 2 subtasks" in messages_of(operator, response)
    assert not Operation.objects.exists() and not Checkpoint.objects.exists()
    assert not [each for each in (tmp_path / "checkpoints").rglob("op_*/*/*") if each.is_file()]


@pytest.mark.parametrize("state", sorted(ACTIVE))
def test_an_active_server_stays_with_its_clients(admin, root, server, state):
    lease = seconds_from_now(60) if state == State.RUNNING else None
    server.row.update(state=state, lease_expires_at=lease)
    for entitled in (admin, root):
        assert entitled.post(operation_at(server, "remove"), SUBMITTED).status_code == 403
    with pytest.raises(NotAllowed, match="cancel it first"):
        deletion.delete(operation_id=server.pk, actor=admin.user)
    assert Operation.objects.count() == Checkpoint.objects.count() == 3


def test_a_server_is_not_deleted_from_under_its_clients(server):
    with pytest.raises(RestrictedError):
        server.delete()
    assert Operation.objects.count() == 3


def test_a_client_alone_has_no_buttons(admin, server):
    part = Operation.objects.exclude(pk=server.pk).first()
    page = admin.get(f"/admin/operations/operation/{quote(part.pk)}/change/").content
    for wanted in STARTS:
        assert operation_at(part, wanted).encode() not in page
        assert admin.post(operation_at(part, wanted), SUBMITTED).status_code == 403
    kept = Checkpoint.objects.get(operation=part)
    assert admin.post(checkpoint_at(kept, "remove"), SUBMITTED).status_code == 403
    assert Operation.objects.count() == Checkpoint.objects.count() == 3


def test_the_dialog_leads_on_when_htmx_posts_it(operator):
    operation = submitted(operator.user)
    response = operator.post(
        operation_at(operation, "cancel"), SUBMITTED, headers={"HX-Request": "true"}
    )
    assert response["HX-Redirect"] == f"/admin/operations/operation/{quote(operation.pk)}/change/"
    assert "is CANCELLED" in messages_of(operator, response)


def test_a_refusal_is_reported(operator):
    operation = in_state(State.CANCELLED, operator.user)
    damage(saved(operation))
    response = operator.post(operation_at(operation, "resume"), SUBMITTED)
    assert "from what was saved" in messages_of(operator, response)
    operation.refresh_from_db()
    assert operation.state == "CANCELLED"


@pytest.fixture
def checkpoint(operator):
    return saved(in_state(State.CANCELLED, operator.user))


@pytest.mark.parametrize("wanted", ["verify", "pin", "remove"])
def test_a_checkpoints_buttons_ask_before_they_do(operator, viewer, checkpoint, wanted):
    before = list(Checkpoint.objects.values())
    assert operator.get(checkpoint_at(checkpoint, wanted)).status_code == 200
    assert viewer.post(checkpoint_at(checkpoint, wanted), SUBMITTED).status_code == 403
    assert list(Checkpoint.objects.values()) == before
    assert operator.post(checkpoint_at(checkpoint, wanted), SUBMITTED).status_code == 302


@pytest.mark.slow
def test_checkpoints_are_pinned_unpinned_verified_and_deleted(operator, checkpoint):
    def press(wanted):
        response = operator.post(checkpoint_at(checkpoint, wanted), SUBMITTED)
        return messages_of(operator, response)

    assert "is pinned" in press("pin")
    assert Checkpoint.objects.get().pinned
    assert "no longer pinned" in press("unpin")
    assert "is undamaged" in press("verify")
    damage(checkpoint)
    assert "altered: model.pt" in press("verify")
    assert Checkpoint.objects.get().health == "corrupted"
    assert "freed" in press("remove")
    assert not Checkpoint.objects.exists()


def test_checkpoints_of_others_and_those_in_use_stay(colleague, operator, checkpoint):
    for wanted in ("pin", "remove"):
        assert colleague.post(checkpoint_at(checkpoint, wanted), SUBMITTED).status_code == 403
    checkpoint.operation.row.update(state="RESUMING")
    assert operator.post(checkpoint_at(checkpoint, "remove"), SUBMITTED).status_code == 403
    assert Checkpoint.objects.filter(pinned=False).exists()


def test_workers_are_drained_by_admins(operator, admin):
    registry.register(worker_id="w")
    assert operator.post("/admin/workers/worker/w/drain/", SUBMITTED).status_code == 403
    assert admin.post("/admin/workers/worker/w/drain/", SUBMITTED).status_code == 302
    assert Worker.objects.get().is_draining
    assert admin.post("/admin/workers/worker/w/undrain/", SUBMITTED).status_code == 302
    assert not Worker.objects.get().is_draining


def test_tokens_are_revoked_by_admins(operator, admin):
    token, _ = Token.objects.create(operator.user)
    address = f"/admin/access/token/{quote(token.pk)}/revoke/"
    assert operator.post(address, SUBMITTED).status_code == 403
    assert admin.post(address, SUBMITTED).status_code == 302
    assert not Token.objects.exists()


@pytest.mark.slow
def test_the_lists_link_leads_to_the_page_with_its_buttons(operator, monkeypatch):
    """Ids hold underscores, which the admin quotes in addresses: `_23` alone would read as `#`."""
    monkeypatch.setattr(submission, "new_id", lambda kind: f"op_{kind}_20260101_235959_23c965")
    submitted(operator.user)
    page = operator.get("/admin/operations/operation/").content.decode()
    (address,) = set(re.findall(r'href="(/admin/operations/operation/[^"?]+/change/)', page))
    buttons = re.findall(r'hx-get="([^"]+)"', operator.get(address).content.decode())
    (cancel,) = [each for each in buttons if "/cancel/" in each]
    assert operator.post(cancel, SUBMITTED)["Location"] == address
    assert Operation.objects.get().state == "CANCELLED"


@pytest.mark.parametrize("button", ["rule/{}/send_test/", "delivery/{}/retry/"])
def test_a_notification_that_does_not_exist_is_refused(admin, button):
    for number in (7, 10**30):
        response = admin.post(f"/admin/notifications/{button.format(number)}", SUBMITTED)
        assert re.search(rf"You have no .* {number}\.", messages_of(admin, response))
    response = admin.post(f"/admin/notifications/{button.format('x')}", SUBMITTED)
    assert response.status_code == 404
