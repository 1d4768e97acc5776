import pytest
from django.core.cache import cache
from django.test import Client

from tests.pages import making


@pytest.fixture(autouse=True)
def _nothing_remembered(settings, tmp_path):
    settings.CHECKPOINT_ROOT = tmp_path / "checkpoints"
    cache.clear()


@pytest.fixture
def ana(db):
    """An operator."""
    return making.person("ana", "operator")


@pytest.fixture
def ben(db):
    """Another operator."""
    return making.person("ben", "operator")


@pytest.fixture
def vera(db):
    """A viewer."""
    return making.person("vera", "viewer")


@pytest.fixture
def ada(db):
    """An admin."""
    return making.person("ada", "admin")


@pytest.fixture
def as_(db):
    """Return a client that is signed in as somebody."""

    def sign_in(user):
        client = Client()
        client.force_login(user)
        return client

    return sign_in


@pytest.fixture
def page(as_, ana):
    """The client of the operator ana."""
    return as_(ana)


@pytest.fixture
def fetch(page):
    """The client of ana, as our scripts ask."""
    page.defaults["HTTP_X_REQUESTED_WITH"] = "fetch"
    return page
