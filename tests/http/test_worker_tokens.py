import pytest
from django.contrib.auth.models import Group, User

from trainops.http.models import Token, TokenScope

pytestmark = pytest.mark.django_db


def test_a_worker_token_counts_no_longer_than_its_owner_is_an_admin(client):
    otto = User.objects.create_user("otto")
    otto.groups.add(Group.objects.get(name="admin"))
    _, secret = Token.objects.create(otto, scope=TokenScope.WORKER)
    body = {"worker_id": "w1", "kinds": ["training"], "slots": 1}

    def register():
        return client.post(
            "/api/v1/workers/register",
            body,
            content_type="application/json",
            HTTP_AUTHORIZATION=f"Bearer {secret}",
        ).status_code

    assert register() == 200
    otto.groups.set([Group.objects.get(name="viewer")])
    assert register() == 403
