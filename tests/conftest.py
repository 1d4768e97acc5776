from uuid import uuid4

import pytest
from django.contrib.auth.models import User

from apps.datasets import validation
from apps.datasets.tables import child
from tests import storages


@pytest.fixture(autouse=True)
def _no_messages(settings):
    """No broker runs in most tests: rows are looked at, not messages."""
    settings.DISPATCH_IS_ON = False


@pytest.fixture(autouse=True)
def _own_storage(settings):
    """Each test's database is new, and so is its storage: another's would be a foreign one."""
    storages.place(settings, settings.DATA_DIR / "storages" / uuid4().hex)


@pytest.fixture(autouse=True)
def _quick(settings):
    """Slow hashes and a list of all static files are good for nothing that is tested here."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.WHITENOISE_AUTOREFRESH = True  # looks for a file when it is asked for


@pytest.fixture
def person(db):
    return User.objects.create_user("ana", password="correct horse")


@pytest.fixture
def in_process(monkeypatch):
    """Reads uploads in this process: the same code, without half a second to start another."""
    monkeypatch.setattr(validation, "call", lambda module, request, limits: child.answer(request))
