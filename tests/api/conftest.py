from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from trainops.http.roles import ensure_roles


@dataclass
class Api:
    """A signed-in client that speaks JSON and knows the prefix."""

    user: User
    client: Client

    def get(self, path: str, **query: Any) -> Any:
        return self.client.get(f"/api/v1/{path}", query)

    def post(self, path: str, body: Any = None, **options: Any) -> Any:
        body = "" if body is None else body
        options = {"content_type": "application/json"} | options
        return self.client.post(f"/api/v1/{path}", body, **options)

    def delete(self, path: str) -> Any:
        return self.client.delete(f"/api/v1/{path}")


def signed_in(name: str, role: str | None) -> Api:
    ensure_roles()
    user = User.objects.create_user(name)
    if role:
        user.groups.add(Group.objects.get(name=role))
    client = Client()
    client.force_login(user)
    return Api(user, client)


@pytest.fixture
def viewer(db):
    return signed_in("vera", "viewer")


@pytest.fixture
def operator(db):
    return signed_in("otto", "operator")


@pytest.fixture
def colleague(db):
    return signed_in("carla", "operator")


@pytest.fixture
def admin(db):
    return signed_in("ada", "admin")


@pytest.fixture(autouse=True)
def _checkpoints_of_its_own(settings, tmp_path):
    settings.CHECKPOINT_ROOT = tmp_path / "checkpoints"
