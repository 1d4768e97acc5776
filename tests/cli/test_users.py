import os
import subprocess
import sys

import pytest
from django.contrib.auth.models import User

from tests.cli.conftest import ROOT
from trainops.client.problems import ExitCode
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
    made = cli("reset-password", "ben").stdout.strip()
    assert User.objects.get(username="ben").check_password(made)
    assert cli("reset-password", "ana").exit_code == ExitCode.CONFLICT
    assert cli("reset-password", "../x").exit_code == ExitCode.NOT_FOUND
    assert cli("users", "disable", "none").exit_code == ExitCode.NOT_FOUND


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
