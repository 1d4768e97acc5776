"""Shares in the admin: who edits them, what is checked, what the audit log keeps."""

import pytest
from django.contrib.auth.models import User

from apps.operations.models import Share
from trainops.http.models import AuditEntry

pytestmark = pytest.mark.django_db
ADD = "/admin/operations/share/add/"
FIELDS = {
    "owner": "", "project": "", "weight": "1", "max_slots": "", "max_gpus": "",
    "budget_period": "week",
}  # fmt: skip


@pytest.fixture
def ana():
    return User.objects.create_user("ana")


def posted(client, **given):
    return client.post(ADD, FIELDS | {"gpu_hours_per_week": ""} | given)


def test_an_admin_adds_changes_and_deletes_a_share(admin_client, ana):
    assert posted(admin_client, owner=ana.pk, weight="2", max_slots="4").status_code == 302
    share = Share.objects.get()
    assert (share.owner, share.weight, share.max_slots, share.max_gpus) == (ana, 2, 4, None)
    page = f"/admin/operations/share/{share.pk}"
    changed = FIELDS | {"owner": ana.pk, "max_gpus": "0", "gpu_hours_per_week": "1.5"}
    assert admin_client.post(f"{page}/change/", changed).status_code == 302
    share.refresh_from_db()
    assert (share.weight, share.max_slots, share.max_gpus) == (1, None, 0)
    assert admin_client.post(f"{page}/delete/", {"post": "yes"}).status_code == 302
    assert not Share.objects.exists()
    entries = AuditEntry.objects.filter(event__startswith="share").order_by("id")
    assert [(each.event, each.details["share"]) for each in entries] == [
        ("share set", "ana"),
        ("share set", "ana"),
        ("share deleted", "ana"),
    ]
    assert entries[0].details["max_slots"] == "4"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"owner": True, "project": "vision"},
        {"project": "vision", "weight": "0"},
        {"project": "vision", "weight": "nan"},
        {"project": "vision", "max_slots": "-1"},
        {"project": "vision", "gpu_hours_per_week": "-1"},
        {"project": "vision", "gpu_hours_per_week": "inf"},
        {"project": "x" * 65},
    ],
)
def test_a_share_that_is_not_allowed_is_refused(admin_client, ana, given):
    if given.get("owner"):
        given = given | {"owner": ana.pk}
    response = posted(admin_client, **given)
    assert response.status_code == 200
    assert response.context["adminform"].form.errors
    assert not Share.objects.exists()


def test_an_admin_sets_the_members_of_a_project(admin_client, ana):
    assert posted(admin_client, owner=ana.pk, members=[ana.pk]).status_code == 200
    assert not Share.objects.exists()
    assert posted(admin_client, project="vision", members=[ana.pk]).status_code == 302
    share = Share.objects.get()
    assert list(share.members.all()) == [ana]
    assert AuditEntry.objects.get(event="share set").details["members"] == "ana"
    assert "ana" in admin_client.get(f"/admin/operations/share/{share.pk}/change/").content.decode()


def test_an_owner_or_project_has_one_share(admin_client, ana):
    Share.objects.create(owner=ana)
    Share.objects.create(project="vision")
    assert posted(admin_client, owner=ana.pk).status_code == 200
    assert posted(admin_client, project=" vision ").status_code == 200
    assert Share.objects.count() == 2
