"""The audit log: who did what, kept in rows that the database refuses to change."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction

from apps.checkpoints import services as checkpoints
from apps.operations.lifecycle import State
from apps.operations.requests import deletion
from tests.api.saved import saved
from tests.operations.rows import in_state
from trainops.http.access_log import note
from trainops.http.models import AuditEntry

pytestmark = pytest.mark.django_db
PASSWORD, AUDIT, TOKENS = "correct horse", "/api/v1/audit", "/api/v1/tokens"


@pytest.fixture
def ada(client):
    user = User.objects.create_user("ada", password=PASSWORD)
    user.groups.add(Group.objects.get(name="admin"))
    client.post("/login/", {"username": "ada", "password": PASSWORD})
    return user


def events(**wanted):
    found = AuditEntry.objects.filter(**wanted).order_by("id")
    return [(each.event, each.actor, each.address, each.details) for each in found]


def test_what_is_done_to_accounts_and_tokens_is_kept_with_name_and_address(client, ada):
    made = client.post(TOKENS, {"name": "ci"}, content_type="application/json").json()["data"]
    client.delete(f"{TOKENS}/{made['token_id']}")
    ada.groups.clear()
    token = {"user": "ada", "token": made["token_id"]}
    assert events() == [
        ("role given", "", "", {"user": "ada", "role": "admin"}),
        ("sign-in ok", "", "127.0.0.1", {"user": "ada", "method": "password"}),
        ("token created", "ada", "127.0.0.1", token | {"scope": "user"}),
        ("token revoked", "ada", "127.0.0.1", token),
        ("role taken", "", "", {"user": "ada", "role": "admin"}),
    ]


def test_what_a_stranger_can_repeat_is_not_kept(client):
    for _ in range(3):
        client.post("/login/", {"username": "a password by mistake", "password": "x"})
        client.get("/api/v1/me", headers={"Authorization": "Bearer x"})
    assert events() == []


def test_what_was_deleted_has_an_entry_that_names_it(client, ada):
    operation, other = (in_state(State.CANCELLED, ada) for _ in range(2))
    for each in (operation, other):
        saved(each)
    assert client.delete(f"/api/v1/operations/{operation.pk}").status_code == 200
    assert client.delete(f"/api/v1/checkpoints/{other.pk}").status_code == 200
    (_, actor, _, deleted), (_, _, _, emptied) = events(event__endswith=" deleted")
    assert (actor, deleted["operation"], deleted["name"]) == ("ada", operation.pk, operation.name)
    assert emptied["operation"] == other.pk and emptied["freed"].startswith("1 checkpoint")


def test_a_deletion_that_fails_leaves_no_entry(ada, monkeypatch):
    operation = in_state(State.CANCELLED, ada)
    monkeypatch.setattr(deletion.checkpoints, "delete", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        deletion.delete(operation_id=operation.pk, actor=ada)
    assert checkpoints is deletion.checkpoints and not events(event="operation deleted")


def test_values_are_bounded():
    note("role given", user="x" * 500)
    assert events()[0][3] == {"user": "x" * 200}


@pytest.mark.database
@pytest.mark.parametrize("statement", ["UPDATE {} SET actor = 'eve'", "DELETE FROM {}"])
def test_the_database_refuses_to_change_or_delete_an_entry(statement):
    note("role given", user="ana")
    before = events()
    for condition in ("", " WHERE event = 'role given'"):
        with (
            pytest.raises(DatabaseError, match="the audit log is append-only"),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(statement.format(AuditEntry._meta.db_table) + condition)
    assert events() == before


@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_flush_empties_it_and_the_next_one_is_guarded():
    note("role given", user="ana")
    call_command("flush", interactive=False, verbosity=0)
    assert not AuditEntry.objects.exists()
    test_the_database_refuses_to_change_or_delete_an_entry("DELETE FROM {}")


def test_admins_list_it_by_event_actor_and_time(client, ada):
    for _ in range(3):
        client.post(TOKENS, {"name": "ci"}, content_type="application/json")
    newest = AuditEntry.objects.first()

    def listed(**query):
        answer = client.get(AUDIT, query)
        assert answer.status_code == 200, answer.json()
        return [each["event"] for each in answer.json()["data"]]

    assert listed() == ["token created"] * 3 + ["sign-in ok", "role given"]
    assert listed(actor="ada", limit=2) == ["token created"] * 2
    assert listed(event="sign-in ok") == ["sign-in ok"]
    later = (newest.created_at + timedelta(seconds=1)).isoformat()
    assert (listed(since=later), len(listed(before=later))) == ([], 5)
    assert client.get(AUDIT, {"since": "yesterday"}).status_code == 400


def test_others_do_not(client, ada):
    ada.groups.set([Group.objects.get(name="operator")])
    assert client.get(AUDIT).status_code == 403
    client.logout()
    assert client.get(AUDIT).status_code == 401


def test_staff_read_it_in_the_admin(client, ada):
    User.objects.filter(pk=ada.pk).update(is_staff=True)
    text = client.get("/admin/access/auditentry/").content.decode()
    assert "sign-in ok" in text and "Audit log" in text
    assert client.get("/admin/access/auditentry/add/").status_code == 403
