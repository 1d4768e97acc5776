"""Settings of the provider: what is refused at the start, with what is allowed."""

import pytest

from trainops.oidc_settings import read

BASE = {"ISSUER": "https://id.example.org/realms/ml", "CLIENT_ID": "trainops"}


def of(**values):
    return read({f"TRAINOPS_OIDC_{name}": value for name, value in values.items()})


def test_without_settings_there_is_no_provider():
    assert read({}) is None
    assert of(ISSUER="", CLIENT_ID=" ") is None


def test_defaults():
    found = of(**BASE)
    assert (found.name, found.scopes) == ("id.example.org", "openid profile email")
    assert (found.username_claim, found.groups_claim) == ("preferred_username", "groups")
    assert (found.roles, found.creates_accounts, found.session_hours) == ((), True, 12)
    assert "secret" not in repr(of(**BASE, CLIENT_SECRET="secret")).partition("client_secret")[2]


def test_roles_of_groups_with_signs_in_their_names():
    found = of(**BASE, ROLES="*=viewer, /ml/leads=admin, cn=staff=operator")
    assert found.roles == (("*", "viewer"), ("/ml/leads", "admin"), ("cn=staff", "operator"))


def test_the_secret_is_read_from_a_file(tmp_path):
    path = tmp_path / "secret"
    path.write_text("hidden\n")
    assert of(**BASE, CLIENT_SECRET_FILE=str(path)).client_secret == "hidden"
    with pytest.raises(ValueError, match="No such file"):
        of(**BASE, CLIENT_SECRET_FILE=str(tmp_path / "missing"))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ISSUER": ""}, "TRAINOPS_OIDC_CLIENT_ID is set without TRAINOPS_OIDC_ISSUER"),
        ({"CLIENT_ID": ""}, "TRAINOPS_OIDC_ISSUER is set without TRAINOPS_OIDC_CLIENT_ID"),
        ({"ISSUER": "http://id.example.org"}, "got 'http://id.example.org'; allowed: https://HOST"),
        ({"ISSUER": "https://id.example.org?x=1"}, "allowed: https://HOST"),
        ({"ISSUER": "id.example.org"}, "allowed: https://HOST"),
        ({"ISSUER": "https://" + "x" * 250 + ".org"}, "allowed: https://HOST"),
        ({"GROUP_CLAIM": "x"}, "got TRAINOPS_OIDC_GROUP_CLAIM; allowed: .*_GROUPS_CLAIM"),
        ({"ROLES": "staff"}, "got 'staff'; allowed: GROUP=ROLE"),
        ({"ROLES": "staff=king"}, "got 'staff=king'; allowed: GROUP=ROLE, .* viewer, operator"),
        ({"SCOPES": "email"}, "got 'email'; allowed: openid"),
        ({"CREATE_ACCOUNTS": "yes"}, "got 'yes'; allowed: 0, 1"),
        ({"SESSION_HOURS": "0"}, "got '0'; allowed: hours, more than 0 and at most 336"),
        ({"SESSION_HOURS": "x"}, "got 'x'; allowed: hours"),
        ({"PRIVATE_ADDRESSES": "x"}, "TRAINOPS_OIDC_PRIVATE_ADDRESSES: got 'x'; allowed: 0, 1"),
        ({"CLIENT_SECRET": "a", "CLIENT_SECRET_FILE": "b"}, "allowed: one"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_allowed(changed, message):
    with pytest.raises(ValueError, match=message):
        of(**{**BASE, **changed})


@pytest.mark.parametrize("issuer", ["http://127.0.0.1:8080", "http://localhost", "http://[::1]:1"])
def test_plain_http_is_for_this_machine_only(issuer):
    assert of(**BASE | {"ISSUER": issuer}).issuer == issuer
