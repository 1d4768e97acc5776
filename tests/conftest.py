import pytest
from django.contrib.auth.models import User


@pytest.fixture(autouse=True)
def _no_messages(settings):
    """No broker runs in most tests: rows are looked at, not messages."""
    settings.DISPATCH_IS_ON = False


@pytest.fixture
def person(db):
    return User.objects.create_user("ana", password="correct horse")
