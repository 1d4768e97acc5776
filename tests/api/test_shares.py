"""The endpoints of shares."""

import pytest
from django.contrib.auth.models import User

from apps.operations.models import Share
from tests.operations import rows

pytestmark = pytest.mark.django_db
URL = "/api/v1/shares"


def set_(client, **body):
    return client.post(URL, body, content_type="application/json")


def test_an_admin_sets_replaces_and_deletes_a_share(admin_client):
    ana = User.objects.create_user("ana")
    first = set_(admin_client, owner="ana", max_slots=2, weight=3).json()["data"]
    assert (first["owner"], first["weight"], first["max_slots"]) == ("ana", 3, 2)
    second = set_(admin_client, owner="ana", max_gpus=1).json()["data"]
    assert second["share_id"] == first["share_id"]
    assert (second["weight"], second["max_slots"], second["max_gpus"]) == (1, None, 1)
    rows.claimed(ana)
    (listed,) = admin_client.get(URL).json()["data"]
    assert listed["used"] == {
        "slots": 1, "gpus": 0, "gpu_hours": 0, "budget_gpu_hours": 0, "budget_compute_hours": 0,
    }  # fmt: skip
    assert (listed["budget_period"], listed["budget_renewed_at"]) == ("week", None)
    address = f"{URL}/{first['share_id']}"
    assert admin_client.delete(address).status_code == 200
    assert admin_client.delete(address).json()["error"]["code"] == "SHARE_NOT_FOUND"
    assert not Share.objects.exists()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "project"),
        ({"owner": "nobody"}, "owner"),
        ({"project": "vision", "weight": 0}, "weight"),
        ({"project": "vision", "weight": "nan"}, "weight"),
        ({"project": "vision", "gpu_hours_per_week": "inf"}, "gpu_hours_per_week"),
        ({"project": "vision", "gpu_hours_per_week": "nan"}, "gpu_hours_per_week"),
        ({"project": "vision", "budget_gpu_hours": -1}, "budget_gpu_hours"),
        ({"project": "vision", "budget_compute_hours": "nan"}, "budget_compute_hours"),
        ({"project": "vision", "budget_period": "year"}, "budget_period"),
        ({"project": "vision", "max_checkpoint_bytes": -1}, "max_checkpoint_bytes"),
        ({"project": "vision", "max_checkpoint_bytes": 2**63}, "max_checkpoint_bytes"),
        ({"project": "vision", "max_slots": -1}, "max_slots"),
        ({"project": "vision", "slots": 1}, "slots"),
    ],
)
def test_a_share_that_is_not_allowed_names_its_field(admin_client, body, field):
    response = set_(admin_client, **body)
    assert response.status_code == 400
    assert field in response.json()["error"]["details"]["fields"]
    assert not Share.objects.exists()


def test_only_admins_change_shares(client):
    user = User.objects.create_user("ben")
    client.force_login(user)
    share = Share.objects.create(project="vision")
    assert set_(client, project="speech").status_code == 403
    assert client.delete(f"{URL}/{share.pk}").status_code == 403
