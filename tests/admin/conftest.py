import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from trainops.http.roles import ensure_roles


def staff(name, role, **client):
    ensure_roles()
    user = User.objects.create_user(name, is_staff=True)
    user.groups.add(Group.objects.get(name=role))
    browser = Client(**client)
    browser.force_login(user)
    browser.user = user
    return browser


@pytest.fixture
def viewer(db):
    return staff("vera", "viewer")


@pytest.fixture
def operator(db):
    return staff("otto", "operator")


@pytest.fixture
def colleague(db):
    return staff("carla", "operator")


@pytest.fixture
def admin(db):
    return staff("ada", "admin")


@pytest.fixture
def root(db):
    browser = staff("root", "admin")
    browser.user.is_superuser = True
    browser.user.save()
    return browser


@pytest.fixture(autouse=True)
def _checkpoints_of_its_own(settings, tmp_path):
    settings.CHECKPOINT_ROOT = tmp_path / "checkpoints"
