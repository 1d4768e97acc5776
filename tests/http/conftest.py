import pytest


@pytest.fixture(autouse=True)
def _quick_passwords(settings):
    """What is tested is who comes in, not how slow a hash is."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
