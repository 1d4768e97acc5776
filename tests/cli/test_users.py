import os
import subprocess
import sys

import pytest
from django.contrib.auth.models import User

from tests.cli.conftest import ROOT
from trainops.cli import users
from trainops.client.problems import ExitCode
from trainops.http.models import AuditEntry, SecondFactor, Token
from trainops.http.roles import Role, role_of
from trainops.launch import password


@pytest.fixture
def root(ana, settings):
    """The caller of the commands, as a superuser; hashes are fast."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    User.objects.filter(pk=ana.pk).update(is_superuser=True)
    return ana


def test_users_are_added_changed_and_disabled(cli, root):
    added = cli("users", "add", "ben", "--role", "operator")
    ben = User.objects.get(username="ben")
    assert ben.check_password(added.stdout.strip()) and role_of(ben) is Role.OPERATOR
    assert "shown only once" in added.stderr
    assert cli("users", "role", "ben", "none").stdout == "ben: none, active\n"
    assert cli("users", "disable", "ben").stdout == "ben: none, disabled\n"
    shown = cli("users", "ls").stdout.splitlines()
    assert [line.split()[:3] for line in shown[1:]] == [
        ["ana", "superuser", "active"], ["ben", "none", "disabled"],
    ]  # fmt: skip
    assert cli("users", "ls", "-q").stdout == "ana\nben\n"
    reset = cli("reset-password", "ben")
    assert User.objects.get(username="ben").check_password(reset.stdout.strip())
    assert "identities stay" in reset.stderr
    assert cli("reset-password", "ana").exit_code == ExitCode.CONFLICT
    assert cli("reset-password", "../x").exit_code == ExitCode.NOT_FOUND
    assert cli("users", "disable", "none").exit_code == ExitCode.NOT_FOUND


def test_a_service_account_has_tokens(cli, root):
    added = cli("users", "add", "ci", "--role", "viewer", "--service")
    assert added.stdout == "" and "users token ci" in added.stderr
    made = cli("users", "token", "ci", "--name", "nightly", "--scope", "read", "--days", "30")
    token = Token.objects.get(user__username="ci")
    assert (token.scope, token.name) == ("read", "nightly")
    assert len(made.stdout.strip()) > 40 and "shown only once" in made.stderr
    assert token.public_id in cli("users", "tokens", "ci").stdout
    assert cli("users", "revoke", "ci", token.public_id).exit_code == ExitCode.OK
    assert not Token.objects.filter(user__username="ci").exists()
    assert cli("users", "token", "ana").exit_code == ExitCode.CONFLICT


def test_the_audit_log_is_listed_and_exported_whole(cli, root, monkeypatch):
    for _ in range(3):
        cli("token", "--name", "ci")
    shown = cli("users", "log", "--number", "2").stdout.splitlines()
    assert len(shown) == 3 and "token created" in shown[1] and "scope=user" in shown[1]
    monkeypatch.setattr(users, "PAGE", 2)
    exported = cli("users", "log", "--number", "0", "-o", "csv").stdout.splitlines()
    assert len(exported) == 1 + AuditEntry.objects.count() > 4
    assert exported[0].startswith("id,created_at,event,actor,address,details")
    ids = [line.partition(",")[0] for line in exported[1:]]
    assert len(set(ids)) == len(ids)
    assert cli("users", "log", "--actor", "ben", "-o", "json").json == []
    assert cli("users", "log", "--since", "1h", "--event", "user created").exit_code == ExitCode.OK
    assert "--since: got 'x'" in cli("users", "log", "--since", "x").stderr


def test_other_users_may_not(cli, ana):
    ran = cli("users", "ls")
    assert ran.exit_code == ExitCode.FAILED and "superuser" in ran.stderr


def test_a_password_is_reset_without_a_server(root):
    made = password.reset("ana")
    assert User.objects.get(username="ana").check_password(made)


@pytest.mark.slow
@pytest.mark.parametrize("directory", ["missing", "."])
def test_a_local_reset_names_what_is_missing(tmp_path, directory):
    environment = os.environ | {"TRAINOPS_DATA_DIR": str(tmp_path / directory)}
    command = [sys.executable, "-m", "trainops.launch.password", "admin"]
    ran = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )
    says = "There is no installation in" if directory == "missing" else "The database is not usable"
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(says)


def test_a_second_factor_is_removed_by_a_superuser_or_on_the_server(cli, root, monkeypatch):
    ben = User.objects.create_user("ben")
    SecondFactor.objects.create(user=ben, secret="x")
    listed = {row["username"]: row for row in cli("users", "ls", "-o", "json").json}
    assert listed["ben"]["has_second_factor"] and not listed["ana"]["has_second_factor"]
    ran = cli("users", "remove-second-factor", "ben")
    assert ran.stdout == "The second factor of ben was removed.\n"
    assert not SecondFactor.objects.exists()
    assert cli("users", "remove-second-factor", "ben").exit_code == ExitCode.NOT_FOUND
    SecondFactor.objects.create(user=root, secret="x")
    assert cli("users", "remove-second-factor", "ana").exit_code == ExitCode.CONFLICT
    assert password.remove_second_factor("ana") == "The second factor of ana was removed."
    assert not SecondFactor.objects.exists()
