"""A provider in a process of its own, and sign-ins as a browser does them."""

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.identity.provider import CLIENT, SECRET
from trainops import oidc_settings
from trainops.http.oidc import provider as cached
from trainops.http.roles import ensure_roles


@dataclass(frozen=True)
class Provider:
    issuer: str
    process: subprocess.Popen

    def control(self, **state):
        httpx.post(f"{self.issuer}/control", content=json.dumps(state)).raise_for_status()

    def person(self, sub="1", name="ben", groups=("staff",), **claims):
        return {"sub": sub, "preferred_username": name, "groups": [*groups], **claims}

    def requests(self):
        return httpx.post(f"{self.issuer}/requests", content="{}").json()["requests"]

    def logout_token(self, **claims):
        """Return a logout token with these claims; None leaves one out."""
        answer = httpx.post(f"{self.issuer}/logout-token", content=json.dumps(claims))
        return answer.json()["token"]

    def authorize(self, address):
        """Follow the redirect to the provider; return the one back."""
        assert address.startswith(self.issuer), address
        answer = httpx.get(address)
        assert answer.status_code == 302, answer.text
        return answer.headers["Location"]


def start():
    script = Path(__file__).with_name("provider.py")
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    port = int(process.stdout.readline())
    return Provider(f"http://127.0.0.1:{port}", process)


def stop(provider):
    provider.process.kill()
    provider.process.wait()
    provider.process.stdout.close()


@pytest.fixture(scope="package")
def running_provider():
    provider = start()
    yield provider
    stop(provider)


@pytest.fixture
def provider(running_provider, settings, db):
    """The provider, configured: anybody with the group staff is an operator."""
    ensure_roles()
    running_provider.control()
    configure(settings, running_provider)
    yield running_provider
    cached.forget()


def configure(settings, provider, **more):
    """Set the settings, as from these variables of the environment."""
    settings.OIDC = oidc_settings.read(
        {
            f"TRAINOPS_OIDC_{name}": value
            for name, value in {
                "ISSUER": provider.issuer,
                "CLIENT_ID": CLIENT,
                "CLIENT_SECRET": SECRET,
                "NAME": "Example",
                "ROLES": "staff=operator,leads=admin",
                "PRIVATE_ADDRESSES": "127.0.0.0/8",
                **more,
            }.items()
        }
    )
    cached.forget()


def change(settings, **fields):
    settings.OIDC = replace(settings.OIDC, **fields)


@pytest.fixture
def sign_in(provider):
    """Return a function that signs a client in by the provider; it returns the last response."""

    def sign_in(client, to="/workers/", address="/login/oidc"):
        begun = client.get(address, {"next": to} if address == "/login/oidc" else None)
        assert begun.status_code == 302, begun.content
        back = provider.authorize(begun.url)
        return client.get(path_of(back))

    return sign_in


def path_of(address):
    parts = urlsplit(address)
    return f"{parts.path}?{parts.query}"
